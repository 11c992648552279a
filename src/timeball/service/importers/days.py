"""What imports of closures have in common: the years that one may ask for, days as rules, the extra."""

from __future__ import annotations

import datetime as dt
import importlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType

from timeball.errors import InvalidInput
from timeball.model.calendar import Source

YEARS_MAX = 50
YEARS_AHEAD = 5
_YEARS = re.compile(r"(\d{4})(?:-(\d{4}))?")
DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Years:
    """Both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Rules, where they are from, and remarks."""

    rules: Sequence[str]
    source: Source
    notes: Sequence[str] = ()


def read_years(text: str | None, *, this_year: int) -> Years:
    """`2026-2035` or `2026`; by default this year and the next few. Raises InvalidInput."""
    if text is None:
        return Years(first=this_year, last=this_year + YEARS_AHEAD)
    match = _YEARS.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(f"{text!r} are no years", hint="write 2026-2035", field="years")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1900 <= first <= last <= 2200 or last - first >= YEARS_MAX:
        raise InvalidInput(
            f"{text!r} cannot be imported", hint=f"at most {YEARS_MAX} years, from 1900 to 2200", field="years"
        )
    return Years(first=first, last=last)


def day_rules(days: Iterable[dt.date]) -> list[str]:
    """Rules for days in whatever order; days that follow on each other become one rule."""
    rules: list[str] = []
    run: list[dt.date] = []
    for day in sorted(set(days)):
        if run and day != run[-1] + DAY:
            rules.append(_rule(run))
            run = []
        run.append(day)
    return [*rules, _rule(run)] if run else rules


def extra(module: str) -> ModuleType:
    """A module of the extra `calendars`: only an import needs it, never an instance. Raises InvalidInput."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidInput(
            f"the package for this import is not installed ({error})", hint="pip install 'timeball[calendars]'"
        ) from error


def _rule(run: list[dt.date]) -> str:
    return run[0].isoformat() if len(run) == 1 else f"{run[0].isoformat()}..{run[-1].isoformat()}"
