"""Public holidays of a country as rules, through the package `holidays`."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from timeball.errors import InvalidInput
from timeball.model.calendar import Source
from timeball.service.importers.days import Imported, Years, day_rules, extra

NAMED_MAX = 40
_IN_PART = re.compile(r"available only from \d{4} to (\d{4})")


def import_country(country: str, subdivision: str | None, years: Years) -> Imported:
    """The public holidays of a country (`DE`) or a part of it (`BY`). Raises InvalidInput: not known, or no days."""
    package = extra("holidays")
    _check(package.list_supported_countries(include_aliases=True), country, subdivision)
    with warnings.catch_warnings(record=True) as said:  # it warns of years that it knows only in part
        warnings.simplefilter("always")
        span = range(years.first, years.last + 1)
        found: Any = package.country_holidays(country, subdiv=subdivision, years=span)
    days = {day: name for day, name in found.items() if years.first <= day.year <= years.last}
    place = country if subdivision is None else f"{country}-{subdivision}"
    if not days:
        raise InvalidInput(f"no holidays of {place} are known for {years}", hint="other --years", field="years")
    last = max(day.year for day in days)
    notes = [f"{place}: {text}" for text in dict.fromkeys(str(warning.message) for warning in said)]
    if last < years.last:
        notes.append(f"no holidays of {place} are known after {last}")
    if any(_estimated(found, name) for name in days.values()):
        notes.append(f"some days of {place} are estimates: they depend on the sight of the moon")
    whole = min([last, *(int(year) for note in notes for year in _IN_PART.findall(note))])
    if whole < last:
        notes.append(f"the holidays of {place} are known in part only after {whole}")
    source = Source(what=f"holidays {package.__version__}: {place}, {years}", until=f"{whole}-12-31")
    return Imported(rules=day_rules(days), source=source, notes=notes)


def _estimated(found: Any, name: str) -> bool:
    """Whether a name carries the package's mark for estimates, in the language of country or host."""
    label: str = getattr(found, "estimated_label", None) or ""
    marks = {str(found.tr(label)), label, "(estimated)"} if label else {"(estimated)"}
    return any(mark.replace("%s", "").strip() in name for mark in marks)


def _check(known: Mapping[str, Iterable[str]], country: str, subdivision: str | None) -> None:
    if country not in known:
        raise InvalidInput(f"no country {country!r} is known", hint=_hint(country, known), field="country")
    parts = known[country]
    if subdivision is not None and subdivision not in parts:
        raise InvalidInput(
            f"{country} has no part {subdivision!r}", hint=_hint(subdivision, parts), field="subdivision"
        )


def _hint(word: str, known: Iterable[str]) -> str:
    choices = sorted(known)
    close = difflib.get_close_matches(word.upper(), choices, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    more = ", …" if len(choices) > NAMED_MAX else ""
    return f"known: {', '.join(choices[:NAMED_MAX]) or 'none'}{more}"
