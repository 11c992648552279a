"""Schedules without repetition: `@at` one instant, and none at all. Owns how an instant is written."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from timeball.errors import ScheduleError
from timeball.schedule.contract import MICROSECONDS, Schedule
from timeball.schedule.days import EPOCH_ORDINAL
from timeball.schedule.refusals import refusal
from timeball.schedule.segments import DAY_SECONDS, Zone, first_reading
from timeball.schedule.words import in_language

MANUAL_WORDS = frozenset({"", "none", "manual"})
_FORMS = "write @at 2030-01-31T09:00:00+01:00, or @at 2030-01-31 09:00 for the time in the schedule's zone"
_INSTANT = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[Tt ](?P<time>\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)\s*"
    r"(?P<offset>[Zz]|(?P<sign>[+-])(?P<hours>[01]\d|2[0-3]):(?P<minutes>[0-5]\d))?"
)
_YEAR_MIN, _YEAR_MAX = 1000, 9000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (a wall time has no zone)


class At(Schedule):
    """One tick, at `instant` (microseconds). `shown`: the instant as the wall clock of the zone shows it."""

    __slots__ = ("instant", "shown")

    def __init__(self, *, text: str, zone: Zone, instant: int) -> None:
        super().__init__(text=text, timezone=zone.name)
        self.instant = instant
        self.shown = shown(zone, instant)

    def next_after(self, instant: int) -> int | None:
        return self.instant if instant < self.instant else None

    def previous_before(self, instant: int) -> int | None:
        return self.instant if instant > self.instant else None

    def count_between(self, after: int, until: int) -> int:
        return 1 if after < self.instant <= until else 0

    def most_a_day(self) -> int:
        return 1

    def describe(self, language: str = "en") -> str:
        return in_language(language).once(self.shown, self.timezone)


class Manual(Schedule):
    """No tick: the job runs only when it is triggered."""

    __slots__ = ()

    def next_after(self, instant: int) -> int | None:
        del instant

    def previous_before(self, instant: int) -> int | None:
        del instant

    def count_between(self, after: int, until: int) -> int:
        del after, until
        return 0

    def most_a_day(self) -> int:
        return 0

    def describe(self, language: str = "en") -> str:
        return in_language(language).manual()


def read_instant(word: str, position: int, *, zone: Zone, dst: str) -> int:
    """Return the microseconds of an `@at`. Raises ScheduleError (`bad-instant`, `never-fires`)."""
    match = _INSTANT.fullmatch(word)
    if match is None:
        raise _bad(f"{word[:40]!r} is not an instant", position)
    try:
        moment = datetime.fromisoformat(f"{match['day']}T{match['time']}")
    except ValueError as error:
        raise _bad(f"{word[:40]} is not on the calendar ({error})", position) from None
    if not _YEAR_MIN <= moment.year <= _YEAR_MAX:
        raise _bad(f"the year {moment.year} is outside {_YEAR_MIN} to {_YEAR_MAX}", position)
    seconds = (moment.toordinal() - EPOCH_ORDINAL) * DAY_SECONDS
    seconds += moment.hour * 3600 + moment.minute * 60 + moment.second
    if match["offset"] is None:
        return _local(zone, seconds, position, dst=dst) * MICROSECONDS + moment.microsecond
    offset = 0
    if match["sign"]:
        offset = int(match["hours"]) * 3600 + int(match["minutes"]) * 60
    return (seconds + offset if match["sign"] == "-" else seconds - offset) * MICROSECONDS + moment.microsecond


def _local(zone: Zone, wall: int, position: int, *, dst: str) -> int:
    """Return the first second at which the clock of the zone reads `wall`; in a gap, the first one after it."""
    second, skipped = first_reading(zone, wall)
    if skipped and dst == "literal":
        raise refusal(
            "never-fires",
            f"the clocks of {zone.name} skip that time",
            position=position,
            hint="choose a time after the change, or write the instant with its offset",
        )
    return second


def _bad(message: str, position: int) -> ScheduleError:
    return refusal("bad-instant", message, position=position, hint=_FORMS)


def shown(zone: Zone, instant: int) -> str:
    """Return an instant as the wall clock of a zone shows it."""
    second, part = divmod(instant, MICROSECONDS)
    moment = _EPOCH + timedelta(seconds=second + zone.offset_at(second), microseconds=part)
    return moment.isoformat(" ", "minutes" if not (moment.second or part) else "auto")
