"""A schedule whose ticks on closed days move to an open day. Owns the moved ticks; `Excluded` has those that stay.

A tick moves to the same wall time of the nearest open day after (`next`) or before (`previous`) it; a time that is
skipped there becomes the first instant after the gap. Several ticks at one instant are one tick. A day that a zone
skipped whole is no day to move to.

Every tick lands somewhere, so the next day that has ticks is found with one question to the inner schedule. What a day
has, its own ticks and those that moved there, is laid out once and kept: the work is per day, not per tick.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from timeball.schedule.closures import RUN_DAYS_MAX
from timeball.schedule.contract import MICROSECONDS, Schedule
from timeball.schedule.excluded import JUMPS_MAX, Excluded, Openings
from timeball.schedule.exclusions import wrong
from timeball.schedule.segments import DAY_SECONDS, FIRST_SECOND, LAST_SECOND, first_reading
from timeball.schedule.words import in_language

TICKS_A_DAY_MAX = 96
_NEAR_DAYS = 2  # no zone ever set its clocks by more
_DAYS_KEPT = 32
_FIRST_DAY, _LAST_DAY = FIRST_SECOND // DAY_SECONDS + 400, LAST_SECOND // DAY_SECONDS - 400


class _Day(NamedTuple):
    """An open day. `own`: its ticks; `moved`: those that come from closed days and are not its own as well.

    `even`: the clock does not change around it, so all of it lies after the day before and before the day after.
    """

    even: bool
    own: tuple[int, ...]
    moved: tuple[int, ...]
    ticks: tuple[int, ...]


class Rolled(Schedule):
    """The open ticks, and the closed ones moved. `step`: 1 moves them to the next open day, -1 to the previous."""

    __slots__ = ("_closures", "_days", "_inner", "_open", "_zone", "step")

    def __init__(self, inner: Schedule, openings: Openings, *, step: int, name: str = "") -> None:
        super().__init__(text=inner.text, timezone=inner.timezone)
        _check(inner, openings)
        self.step = step
        self._inner = inner
        self._open = Excluded(inner, openings, name=name)
        self._closures, self._zone = openings.closures, openings.zone
        self._days: dict[int, _Day] = {}

    def next_after(self, instant: int) -> int | None:
        number = self._number(instant)
        day = self._day(number)
        if not day.even:
            return self._next_among(number, instant)
        if day.ticks and instant < day.ticks[-1]:
            return day.ticks[bisect_right(day.ticks, instant)]
        return self._first_of(self._following(number), instant)

    def previous_before(self, instant: int) -> int | None:
        number = self._number(instant)
        day = self._day(number)
        if not day.even:
            return self._previous_among(number, instant)
        if day.ticks and instant > day.ticks[0]:
            return day.ticks[bisect_left(day.ticks, instant) - 1]
        return self._last_of(self._preceding(number), instant)

    def count_between(self, after: int, until: int) -> int:
        moved = (day.moved for day in self._landings(after, until))
        extra = sum(bisect_right(ticks, until) - bisect_right(ticks, after) for ticks in moved)
        return self._open.count_between(after, until) + extra if after < until else 0

    def most_a_day(self) -> int:
        return self._open.most_a_day()

    def describe(self, language: str = "en") -> str:
        inner, roll = self._inner.describe(language), "next" if self.step > 0 else "previous"
        return in_language(language).closed(inner, self._open.name, roll)

    def _next_among(self, number: int, instant: int) -> int | None:
        """The next tick where days may overlap: the first of all days that are near, or of the one that follows."""
        ticks = [tick for tick in self._near(number) if tick > instant]
        return min(ticks) if ticks else self._first_of(self._following(number + _NEAR_DAYS), instant)

    def _previous_among(self, number: int, instant: int) -> int | None:
        ticks = [tick for tick in self._near(number) if tick < instant]
        return max(ticks) if ticks else self._last_of(self._preceding(number - _NEAR_DAYS), instant)

    def _near(self, number: int) -> Iterator[int]:
        for near in range(number - _NEAR_DAYS, number + _NEAR_DAYS + 1):
            yield from self._day(near).ticks

    def _first_of(self, number: int | None, instant: int) -> int | None:
        if number is None:
            return None
        day = self._day(number)
        ticks = day.ticks if day.even else [tick for tick in self._near(number) if tick > instant]
        return min(ticks, default=None)

    def _last_of(self, number: int | None, instant: int) -> int | None:
        if number is None:
            return None
        day = self._day(number)
        ticks = day.ticks if day.even else [tick for tick in self._near(number) if tick < instant]
        return max(ticks, default=None)

    def _following(self, number: int) -> int | None:
        """The first day after one that has ticks. Those that would land on that day or before it are passed over."""
        # Forward from a closed day: what lies before it in its run lands after it.
        after = self._landing(number, -1) + 1 if self.step > 0 else self._landing(number + 1, 1)
        tick = self._inner.next_after(self._begin(after) - 1)
        return None if tick is None else self._landing(self._number(tick), self.step)

    def _preceding(self, number: int) -> int | None:
        before = self._landing(number - 1, -1) + 1 if self.step > 0 else self._landing(number, 1)
        tick = self._inner.previous_before(self._begin(before))
        return None if tick is None else self._landing(self._number(tick), self.step)

    def _landings(self, after: int, until: int) -> Iterator[_Day]:
        """The days near a stretch of time that something moved to, in order."""
        start = self._number(after) - _NEAR_DAYS
        position = self._begin(self._landing(start, -1)) - 1
        last = self._number(until) + _NEAR_DAYS + RUN_DAYS_MAX
        for _ in range(JUMPS_MAX * RUN_DAYS_MAX):
            tick = self._inner.next_after(position)
            if tick is None or (number := self._number(tick)) > last:
                return
            closed, _, end = self._open.openings.at(tick)
            if closed:
                yield self._day(self._landing(number, self.step))
                end = self._begin(self._landing(number, 1))
            position = end - 1

    def _day(self, number: int) -> _Day:
        day = self._days.get(number)
        if day is None:
            day = self._laid_out(number)
            kept = dict(list(self._days.items())[1 - _DAYS_KEPT :])
            self._days = {**kept, number: day}  # replaced whole: others may be reading the old one
        return day

    def _laid_out(self, number: int) -> _Day:
        even = self._even(number)
        if self._blocked(number):
            return _Day(even, (), (), ())
        own = tuple(tick for tick, shown in self._shown(number, number, even=even) if shown // DAY_SECONDS == number)
        first, last = number, number
        while self._blocked(first - 1 if self.step > 0 else last + 1):
            first, last = (first - 1, last) if self.step > 0 else (first, last + 1)
        if first == last:
            return _Day(even, own, (), own)
        first, last = (first, last - 1) if self.step > 0 else (first + 1, last)
        moved = tuple(sorted(set(self._moved(first, last, number)) - set(own)))
        return _Day(even, own, moved, tuple(sorted((*own, *moved))))

    def _moved(self, first: int, last: int, landing: int) -> Iterator[int]:
        """Where the ticks of closed days go."""
        for tick, shown in self._shown(first, last, even=False):
            if first <= shown // DAY_SECONDS <= last:
                second, skipped = first_reading(self._zone, shown % DAY_SECONDS + landing * DAY_SECONDS)
                yield second * MICROSECONDS + (0 if skipped else tick % MICROSECONDS)

    def _shown(self, first: int, last: int, *, even: bool) -> Iterator[tuple[int, int]]:
        """The ticks from one day to another with what the clock shows, in seconds; if not `even` some more after."""
        end = self._begin(last + 1 if even else last + 1 + _NEAR_DAYS)
        for tick in self._inner.between(self._begin(first) - 1, end - 1):
            second = tick // MICROSECONDS
            yield tick, second + self._zone.offset_at(second)

    def _landing(self, number: int, step: int) -> int:
        """The nearest day in that direction that is open and that there was."""
        while self._blocked(number) and _FIRST_DAY < number < _LAST_DAY:
            number += step
        return number

    def _blocked(self, number: int) -> bool:
        return self._closures.closed_day(number) or not (self._even(number) or self._exists(number))

    def _even(self, number: int) -> bool:
        start = (number - _NEAR_DAYS) * DAY_SECONDS
        end = start + (2 * _NEAR_DAYS + 1) * DAY_SECONDS
        starts = self._zone.covering(end + DAY_SECONDS).starts
        return bisect_right(starts, start - DAY_SECONDS) == bisect_right(starts, end + DAY_SECONDS)

    def _exists(self, number: int) -> bool:
        """Whether the clock ever shows a day; a zone may skip one."""
        second, _ = first_reading(self._zone, number * DAY_SECONDS)
        return second + self._zone.offset_at(second) < (number + 1) * DAY_SECONDS

    def _number(self, instant: int) -> int:
        """The day that the clock shows, from the epoch."""
        second = instant // MICROSECONDS
        day = (second + self._zone.offset_at(second)) // DAY_SECONDS
        return min(max(day, _FIRST_DAY), _LAST_DAY)

    def _begin(self, number: int) -> int:
        return first_reading(self._zone, number * DAY_SECONDS)[0] * MICROSECONDS


def _check(inner: Schedule, openings: Openings) -> None:
    if not openings.closures.whole_days:
        raise wrong(
            "only a calendar of whole days can roll",
            "leave times of day out of its rules, or use roll = skip",
            kind="cannot-roll",
        )
    if inner.most_a_day() > TICKS_A_DAY_MAX:
        raise wrong(
            f"only a schedule of at most {TICKS_A_DAY_MAX} ticks a day can roll",
            "make it rarer, or use roll = skip",
            kind="cannot-roll",
        )
    if openings.closures.longest_run_days > RUN_DAYS_MAX:
        raise wrong(
            f"the calendar is closed for more than {RUN_DAYS_MAX} days on end, too long to roll over",
            "use roll = skip",
            kind="cannot-roll",
        )
