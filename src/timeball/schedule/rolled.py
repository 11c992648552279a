"""A schedule whose ticks on closed days move to an open day. Owns the moved ticks; `Excluded` has those that stay.

A tick moves to the same wall time of the nearest open day after (`next`) or before (`previous`) it; a time that is
skipped there becomes the first instant after the gap. Several ticks at one instant are one tick. A day that a zone
skipped whole is no day to move to.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from timeball.schedule.closures import RUN_DAYS_MAX
from timeball.schedule.contract import MICROSECONDS, Schedule
from timeball.schedule.excluded import JUMPS_MAX, Excluded, Openings
from timeball.schedule.exclusions import wrong
from timeball.schedule.segments import DAY_SECONDS, FIRST_SECOND, LAST_SECOND, first_reading
from timeball.schedule.words import in_language

TICKS_A_DAY_MAX = 96
_NEAR_DAYS = 2  # no zone ever set its clocks by more
_LANDINGS_KEPT = 16
_FIRST_DAY, _LAST_DAY = FIRST_SECOND // DAY_SECONDS + 400, LAST_SECOND // DAY_SECONDS - 400


class Rolled(Schedule):
    """The open ticks, and the closed ones moved. `step`: 1 moves them to the next open day, -1 to the previous."""

    __slots__ = ("_landings", "_open", "step")

    def __init__(self, inner: Schedule, openings: Openings, *, step: int, name: str = "") -> None:
        super().__init__(text=inner.text, timezone=inner.timezone)
        _check(inner, openings)
        self.step = step
        self._open = Excluded(inner, openings, name=name)
        self._landings: dict[int, tuple[int, ...]] = {}

    def next_after(self, instant: int) -> int | None:
        stays = self._open.next_after(instant)
        moved = self._moved_after(instant, stays)
        return min((tick for tick in (stays, moved) if tick is not None), default=None)

    def previous_before(self, instant: int) -> int | None:
        stays = self._open.previous_before(instant)
        moved = self._moved_before(instant, stays)
        return max((tick for tick in (stays, moved) if tick is not None), default=None)

    def count_between(self, after: int, until: int) -> int:
        total = self._open.count_between(after, until)
        tick = self._moved_after(after, until)
        while tick is not None and tick <= until:
            total += 1
            tick = self._moved_after(tick, until)
        return total

    def most_a_day(self) -> int:
        return self._open.most_a_day()

    def describe(self, language: str = "en") -> str:
        inner, roll = self._open.inner.describe(language), "next" if self.step > 0 else "previous"
        return in_language(language).closed(inner, self._open.name, roll)

    def _moved_after(self, instant: int, limit: int | None) -> int | None:
        """Return the first moved tick after `instant`; None also when it lies well after `limit`."""
        day = self._day(instant) - _NEAR_DAYS
        while self._blocked(day - 1) and day > _FIRST_DAY:
            day -= 1
        last = _LAST_DAY if limit is None else self._day(limit) + _NEAR_DAYS
        position = self._begin(day) - 1
        for _ in range(JUMPS_MAX):
            tick = self._open.inner.next_after(position)
            if tick is None:
                return None
            day = self._day(tick)
            closed, _, position = self._open.openings.at(tick)
            if closed:
                ticks = self._landed(self._landing(day, self.step))
                index = bisect_right(ticks, instant)
                if index < len(ticks):
                    return ticks[index]
                position = self._begin(self._landing(day, 1))
            if day > last + (RUN_DAYS_MAX if closed else 0):
                return None
            position -= 1
        return None

    def _moved_before(self, instant: int, limit: int | None) -> int | None:
        """Return the last moved tick before `instant`; None also when it lies well before `limit`."""
        day = self._day(instant) + _NEAR_DAYS
        while self._blocked(day) and day < _LAST_DAY:
            day += 1
        first = _FIRST_DAY if limit is None else self._day(limit) - _NEAR_DAYS
        position = self._begin(day + 1)
        for _ in range(JUMPS_MAX):
            tick = self._open.inner.previous_before(position)
            if tick is None:
                return None
            day = self._day(tick)
            closed, position, _ = self._open.openings.at(tick)
            if closed:
                ticks = self._landed(self._landing(day, self.step))
                index = bisect_left(ticks, instant) - 1
                if index >= 0:
                    return ticks[index]
                position = self._begin(self._landing(day, -1) + 1)
            if day < first - (RUN_DAYS_MAX if closed else 0):
                return None
        return None

    def _landed(self, landing: int) -> tuple[int, ...]:
        """Return the ticks that move to a day, ascending, without those that it has anyway."""
        found = self._landings.get(landing)
        if found is None:
            ticks: set[int] = set()
            day = landing - self.step
            while self._blocked(day):
                ticks.update(self._moved_from(day, landing))
                day -= self.step
            found = tuple(tick for tick in sorted(ticks) if self._open.next_after(tick - 1) != tick)
            kept = dict(list(self._landings.items())[1 - _LANDINGS_KEPT :])
            self._landings = {**kept, landing: found}  # replaced whole: others may be reading the old one
        return found

    def _moved_from(self, day: int, landing: int) -> set[int]:
        zone = self._open.openings.zone
        ticks: set[int] = set()
        for start, end, offset in self._pieces(day):
            for tick in self._open.inner.between(start * MICROSECONDS - 1, end * MICROSECONDS - 1):
                second, part = divmod(tick, MICROSECONDS)
                moved, skipped = first_reading(zone, second + offset + (landing - day) * DAY_SECONDS)
                ticks.add(moved * MICROSECONDS + (0 if skipped else part))
        return ticks

    def _pieces(self, day: int) -> list[tuple[int, int, int]]:
        """Return the stretches of seconds in which the clock shows a day: start, end (exclusive), offset."""
        first, last = day * DAY_SECONDS, (day + 1) * DAY_SECONDS
        table = self._open.openings.zone.covering(last + 2 * DAY_SECONDS)
        index = max(bisect_right(table.starts, first - 2 * DAY_SECONDS) - 1, 0)
        pieces: list[tuple[int, int, int]] = []
        while index < len(table.starts) and table.starts[index] < last + 2 * DAY_SECONDS:
            offset, start = table.offsets[index], table.starts[index]
            end = table.starts[index + 1] if index + 1 < len(table.starts) else LAST_SECOND
            start, end = max(start, first - offset), min(end, last - offset)
            if start < end:
                pieces.append((start, end, offset))
            index += 1
        return pieces

    def _landing(self, day: int, step: int) -> int:
        """Return the nearest day in that direction that is open and that there was."""
        while self._blocked(day) and _FIRST_DAY < day < _LAST_DAY:
            day += step
        return day

    def _blocked(self, day: int) -> bool:
        return self._open.openings.closures.closed_day(day) or not self._pieces(day)

    def _day(self, instant: int) -> int:
        """Return the day that the clock shows."""
        second = instant // MICROSECONDS
        day = (second + self._open.openings.zone.offset_at(second)) // DAY_SECONDS
        return min(max(day, _FIRST_DAY), _LAST_DAY)

    def _begin(self, day: int) -> int:
        return first_reading(self._open.openings.zone, day * DAY_SECONDS)[0] * MICROSECONDS


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
