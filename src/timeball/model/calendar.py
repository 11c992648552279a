"""Calendars: when schedules are closed, and what becomes of ticks that lie there. Knows no rule's grammar.

The content goes with the job (`exclude`), so that the history of a job says what was closed when; `name` says which
named calendar it is a copy of.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self, cast

from timeball.errors import InvalidInput

CALENDAR_CHARS_MAX = 60_000
CONTENT_CHARS_MAX = 59_000
"""Of a named calendar: with its name and a roll it must still fit into a job."""
DESCRIPTION_CHARS_MAX = 1000


class Roll(StrEnum):
    """What becomes of a tick on a closed day."""

    SKIP = "skip"
    PREVIOUS = "previous"
    NEXT = "next"


KEYS = ("name", "exclude", "timezone", "roll")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where imported rules came from, and the last day (`2035-12-31`) that it was asked for."""

    what: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a named calendar says. `timezone`: of its rules; empty: that of each schedule."""

    exclude: tuple[str, ...]
    timezone: str = ""
    description: str = ""
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no job could carry; raises InvalidInput."""
        check_rules(self.exclude)
        for name in ("timezone", "description"):
            if not isinstance(getattr(self, name), str):
                raise _wrong(f"{name} of calendar must be text")
        if len(self.description) > DESCRIPTION_CHARS_MAX:
            raise _wrong(f"description of calendar is too long; at most {DESCRIPTION_CHARS_MAX} characters")
        if len(self.to_json()) > CONTENT_CHARS_MAX:
            raise _wrong(f"the calendar is longer than {CONTENT_CHARS_MAX} characters", "name fewer years")

    @property
    def until(self) -> str:
        """The last day that all its sources reach to; empty when there is no source."""
        return min((source.until for source in self.sources), default="")

    def to_json(self) -> str:
        """Canonical JSON of all but the description."""
        values = {key: value for key, value in asdict(self).items() if value and key != "description"}
        return json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, *, description: str) -> Self:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(
            exclude=tuple(values["exclude"]),
            timezone=values.get("timezone", ""),
            description=description,
            sources=tuple(Source(**source) for source in values.get("sources", ())),
        )

    def copy_in(self, calendar: Mapping[str, Any]) -> dict[str, Any]:
        """A job's calendar with this content; its name and its roll stay."""
        kept = {key: calendar[key] for key in ("name", "roll") if key in calendar}
        zone = {"timezone": self.timezone} if self.timezone else {}
        return {**kept, "exclude": list(self.exclude), **zone}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """A named calendar as stored. `version` goes up at every change; `updated_at` in microseconds UTC."""

    namespace: str
    name: str
    content: Content
    version: int
    updated_at: int


def calendar_name(calendar: Mapping[str, Any]) -> str:
    """The name of the calendar that a job's is a copy of; empty when it is the job's own."""
    return calendar.get("name", "")


def check_calendar(value: object) -> None:
    """Refuse what is no calendar of a job: an empty object, or `name` or `exclude` with `timezone` and `roll`."""
    if not isinstance(value, Mapping):
        raise _wrong("calendar must be a JSON object or the name of a calendar")
    calendar = cast("Mapping[str, Any]", value)
    _check_keys(calendar)
    for key in ("name", "timezone", "roll"):
        if not isinstance(calendar.get(key, ""), str):
            raise _wrong(f"{key} of calendar must be text")
    if calendar.get("roll", Roll.SKIP) not in list(Roll):
        raise _wrong(f"roll cannot be {calendar['roll']!r}", f"one of {', '.join(Roll)}")
    check_rules(calendar.get("exclude", []))
    if calendar and not calendar.get("name") and "exclude" not in calendar:
        raise _wrong("calendar says nothing of what is closed", "a name of a calendar, or exclude with rules")
    size = len(json.dumps(dict(calendar), ensure_ascii=False))
    if size > CALENDAR_CHARS_MAX:
        raise _wrong(f"calendar is {size} characters long", f"at most {CALENDAR_CHARS_MAX}; name fewer years")


def _check_keys(calendar: Mapping[str, Any]) -> None:
    for key in calendar:
        if key not in KEYS:
            close = difflib.get_close_matches(str(key), KEYS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(KEYS)}"
            raise _wrong(f"calendar has no {key!r}", hint)


def check_rules(value: object) -> None:
    """Refuse what is no list of texts."""
    if not isinstance(value, list | tuple) or not all(isinstance(rule, str) for rule in cast("list[object]", value)):
        raise _wrong("exclude of calendar must be a list of rules", 'for example ["sat,sun", "12-25"]')


def named_calendar(value: object) -> object:
    """A name is short for a calendar of that name; an empty one takes the calendar off."""
    if isinstance(value, str):
        return {"name": value} if value else {}
    return value


def _wrong(message: str, hint: str | None = None) -> InvalidInput:
    return InvalidInput(message, hint=hint, field="calendar")
