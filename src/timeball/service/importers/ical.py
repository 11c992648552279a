"""Events of an iCalendar file as rules, through `icalendar` and `recurring-ical-events`. Expands some years only.

A whole day is closed as a day; an event with times from minute to minute, by the clock of the calendar's zone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

from timeball.errors import InvalidInput
from timeball.model.calendar import Source
from timeball.schedule import resolve_zone
from timeball.service.importers.days import DAY, Imported, Years, day_rules, extra

SIZE_MAX = 4 * 1024 * 1024
EVENTS_MAX = 5000
CLOSURES_MAX = 5000
_TOO_OFTEN = {"SECONDLY", "MINUTELY", "HOURLY"}
_TIMES = {"DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE", "RECURRENCE-ID"}
_MINUTE = dt.timedelta(minutes=1)
Stretch = tuple[dt.datetime, dt.datetime]


def import_ical(text: str, years: Years, *, timezone: str, name: str) -> Imported:
    """What the events of a file close; cancelled ones do not count. `name`: of the file, for the source.

    `timezone`: the calendar's; empty: none, and then an event with a time in some zone is refused. Raises InvalidInput.
    """
    days: set[dt.date] = set()
    stretches: set[Stretch] = set()
    for event in _events(_read(text), years):
        if str(event.get("STATUS", "")).upper() == "CANCELLED":
            continue
        start, end = event["DTSTART"].dt, event["DTEND"].dt
        if isinstance(start, dt.datetime):
            stretches |= _stretch(_wall(start, timezone), _wall(end, timezone))
        else:
            days |= _days(start, end, years)
        if len(days) + len(stretches) > CLOSURES_MAX:
            raise InvalidInput(f"the file closes more than {CLOSURES_MAX} days", hint="fewer --years", field="years")
    if not days and not stretches:
        raise InvalidInput(f"no event of the file lies in {years}", hint="other --years", field="years")
    last = max([*days, *(end.date() for _, end in stretches)])
    written = [f"{start:%Y-%m-%d %H:%M}..{end:%Y-%m-%d %H:%M}" for start, end in sorted(stretches)]
    source = Source(what=f"iCalendar {name[:100]}, {years}", until=min(last, dt.date(years.last, 12, 31)).isoformat())
    return Imported(rules=[*day_rules(days), *written], source=source)


def _read(text: str) -> Any:
    if len(text) > SIZE_MAX:
        raise InvalidInput(f"the file is larger than {SIZE_MAX} bytes")
    try:
        calendar = extra("icalendar").Calendar.from_ical(text)
        events = list(calendar.walk("VEVENT"))
    except ValueError as error:
        raise InvalidInput(f"the file is no iCalendar: {str(error)[:200]}", hint="a file of VEVENTs, .ics") from error
    if len(events) > EVENTS_MAX:
        raise InvalidInput(f"the file has more than {EVENTS_MAX} events", hint="export fewer of them")
    for event in events:
        _check(event)
    return calendar


def _check(event: Any) -> None:
    """Refuse what would be left out or moved in silence, and what would never end."""
    wrong = _trouble(event)
    if wrong is not None:
        raise InvalidInput(
            f"event {str(event.get('SUMMARY', ''))[:50]!r}: {wrong}", hint="mend the file, or leave it out"
        )


def _trouble(event: Any) -> str | None:
    unread = sorted({str(name) for name, _ in event.errors} & _TIMES)
    if unread:
        return f"{unread[0]} cannot be read"
    rules = event.get("RRULE", [])
    for rule in rules if isinstance(rules, list) else [rules]:
        if _TOO_OFTEN & {str(word).upper() for word in rule.get("FREQ", [])}:
            return "it comes more often than daily"
    for name in ("DTSTART", "DTEND"):
        given = event.get(name)
        zone = given.params.get("TZID") if given is not None else None
        if given is not None and zone is not None and getattr(given.dt, "tzinfo", None) is None:
            return f"its time zone {str(zone)[:50]!r} is not known"
    return None


def _events(calendar: Any, years: Years) -> Iterator[Any]:
    """The occurrences, a month at a time, so that a file that would never end is noticed early."""
    package = extra("recurring_ical_events")
    try:
        query = package.of(calendar)
        for month in range(years.first * 12, (years.last + 1) * 12):
            first, last = (dt.date(m // 12, m % 12 + 1, 1) for m in (month, month + 1))
            yield from query.between(first, last)
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise InvalidInput(f"the events of the file cannot be read: {str(error)[:200]}") from error


def _wall(moment: dt.datetime, timezone: str) -> dt.datetime:
    """What the clock of the calendar's zone shows then."""
    if moment.tzinfo is None:
        return moment
    if not timezone:
        raise InvalidInput(
            "the file has events with a time of day in some zone",
            hint="--timezone ZONE of the calendar",
            field="timezone",
        )
    return moment.astimezone(resolve_zone(timezone)).replace(tzinfo=None)


def _stretch(start: dt.datetime, end: dt.datetime) -> set[Stretch]:
    """To whole minutes, outwards; nothing where it has no length."""
    first = start.replace(second=0, microsecond=0)
    last = end.replace(second=0, microsecond=0)
    last += _MINUTE if last < end else dt.timedelta()
    return {(first, last)} if start < end else set()


def _days(start: dt.date, end: dt.date, years: Years) -> set[dt.date]:
    """The end does not count; an event without an end is one day."""
    first, last = max(start, dt.date(years.first, 1, 1)), min(max(end - DAY, start), dt.date(years.last, 12, 31))
    return {first + n * DAY for n in range((last - first).days + 1)}
