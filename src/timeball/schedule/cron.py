"""The schedule of a cron expression. Owns how wall times become instants; knows nothing of the text's grammar.

Two rules for the hours that a zone skips or repeats:

* Elapsed time (`literal`, and interval-like expressions under `vixie`): an instant is a tick when the wall clock shows
  a matching time. What is skipped does not run, what is repeated runs twice.
* Fixed times (`vixie`): each matching wall time has one tick, the first instant at which the clock shows that time or
  a later one. What is skipped runs once, right after the gap; what is repeated runs the first time.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right

from timeball.schedule.contract import MICROSECONDS, Schedule
from timeball.schedule.days import SEARCH_YEARS_MAX
from timeball.schedule.expression import Expression
from timeball.schedule.segments import DAY_SECONDS, FIRST_SECOND, LAST_SECOND, Zone, first_reading
from timeball.schedule.wall import Wall
from timeball.schedule.words import in_language

_SEARCH_SECONDS = SEARCH_YEARS_MAX * 366 * DAY_SECONDS
_SHOWN_AGAIN_SECONDS = 2 * DAY_SECONDS  # no zone ever set its clocks back by more


class Cron(Schedule):
    """Ticks on whole seconds, found over the zone's stretches of constant offset."""

    __slots__ = ("_expression", "_wall", "_zone")

    def __init__(self, *, text: str, zone: Zone, expression: Expression, wall: Wall) -> None:
        super().__init__(text=text, timezone=zone.name)
        self._zone = zone
        self._expression = expression
        self._wall = wall

    def next_after(self, instant: int) -> int | None:
        second = instant // MICROSECONDS + 1
        if second >= LAST_SECOND:
            return None
        found = self._next(second if second > FIRST_SECOND else FIRST_SECOND)
        return None if found is None else found * MICROSECONDS

    def previous_before(self, instant: int) -> int | None:
        second = -(-instant // MICROSECONDS) - 1
        if second < FIRST_SECOND:
            return None
        found = self._previous(second if second < LAST_SECOND else LAST_SECOND - 1)
        return None if found is None else found * MICROSECONDS

    def count_between(self, after: int, until: int) -> int:
        since = max(after // MICROSECONDS + 1, FIRST_SECOND)
        end = min(until // MICROSECONDS + 1, LAST_SECOND)
        return self._count(since, end) if since < end else 0

    def marks(self, start: int, seconds: int) -> dict[int, int]:
        since, end = max(start, FIRST_SECOND), min(start + seconds, LAST_SECOND)
        bits = self._bits(since, end) << since - start if since < end else 0
        return {0: bits} if bits else {}

    def most_a_day(self) -> int:
        return self._wall.per_day

    def describe(self, language: str = "en") -> str:
        return in_language(language).cron(self._expression)

    @abstractmethod
    def _next(self, second: int) -> int | None:
        """Return the first tick at or after `second`."""

    @abstractmethod
    def _previous(self, second: int) -> int | None:
        """Return the last tick at or before `second`."""

    @abstractmethod
    def _count(self, since: int, end: int) -> int:
        """Return how many ticks lie in `since <= tick < end`; there is a second between the two."""

    @abstractmethod
    def _bits(self, since: int, end: int) -> int:
        """Return the ticks in `since <= tick < end`, bit 0 for `since`."""


class ElapsedCron(Cron):
    """A tick is an instant at which the wall clock shows a matching time."""

    __slots__ = ()

    def _next(self, second: int) -> int | None:
        zone, find = self._zone, self._wall.next
        table = zone.covering(second)
        index = bisect_right(table.starts, second) - 1
        since = second + table.offsets[index]
        wall = find(since)
        limit = second + _SEARCH_SECONDS
        while True:
            if wall is None:
                if index + 1 >= len(table.starts) or table.starts[index + 1] > second + _SHOWN_AGAIN_SECONDS:
                    return None
                wall = LAST_SECOND * 2  # nothing from here on, but earlier times may be shown again
            tick = wall - table.offsets[index]
            if tick >= table.until and table.until < LAST_SECOND:
                table = zone.covering(min(tick, limit))
            if index + 1 >= len(table.starts) or tick < table.starts[index + 1]:
                return tick if tick < min(limit, LAST_SECOND) else None
            index += 1
            shown = table.starts[index] + table.offsets[index]
            if shown < since or shown > wall:
                since, wall = shown, find(shown)
                second = table.starts[index]
            if table.starts[index] > limit:
                return None

    def _previous(self, second: int) -> int | None:
        find = self._wall.previous
        table = self._zone.covering(second)
        index = bisect_right(table.starts, second) - 1
        until = second + table.offsets[index]
        wall = find(until)
        limit = second - _SEARCH_SECONDS
        while True:
            start = table.starts[index]
            if wall is not None and wall - table.offsets[index] >= start:
                return wall - table.offsets[index]
            if index == 0 or start < limit:
                return None
            index -= 1
            shown = start - 1 + table.offsets[index]
            if shown > until or (wall is not None and shown < wall):
                until, wall = shown, find(shown)

    def _count(self, since: int, end: int) -> int:
        return sum(self._wall.count(start + offset, stop + offset) for start, stop, offset in self._pieces(since, end))

    def _bits(self, since: int, end: int) -> int:
        bits = 0
        for start, stop, offset in self._pieces(since, end):
            bits |= self._wall.bits(start + offset, stop + offset) << start - since
        return bits

    def _pieces(self, since: int, end: int) -> list[tuple[int, int, int]]:
        """Return the parts of the zone's stretches in `since <= second < end`: start, end, offset."""
        table = self._zone.covering(end)
        pieces: list[tuple[int, int, int]] = []
        index = bisect_right(table.starts, since) - 1
        while since < end:
            stop = min(end, table.starts[index + 1]) if index + 1 < len(table.starts) else end
            pieces.append((since, stop, table.offsets[index]))
            since, index = stop, index + 1
        return pieces


class FixedCron(Cron):
    """Each matching wall time has one tick: the first instant at which the clock shows it or a later time."""

    __slots__ = ()

    def _next(self, second: int) -> int | None:
        table = self._zone.covering(second)
        index = bisect_right(table.starts, second) - 1
        offset, top = table.offsets[index], table.tops[index]
        since = second + offset
        if since < top or second == table.starts[index]:
            since = top
        wall = self._wall.next(since)
        if wall is None:
            return None
        tick = wall - offset
        if index + 1 < len(table.starts) and tick < table.starts[index + 1] and tick >= second:
            return tick
        tick = first_reading(self._zone, wall)[0]
        return tick if tick < LAST_SECOND else None

    def _previous(self, second: int) -> int | None:
        table = self._zone.covering(second)
        index = bisect_right(table.starts, second) - 1
        wall = self._wall.previous(max(table.tops[index] - 1, second + table.offsets[index]))
        if wall is None:
            return None
        tick = first_reading(self._zone, wall)[0]
        return tick if tick >= FIRST_SECOND else None

    def _count(self, since: int, end: int) -> int:
        table = self._zone.covering(end + DAY_SECONDS)
        total = 0
        index = bisect_right(table.starts, since) - 1
        while index < len(table.starts) and table.starts[index] < end:
            start, offset = table.starts[index], table.offsets[index]
            stop = min(end, table.starts[index + 1]) if index + 1 < len(table.starts) else end
            first = max(table.tops[index], max(since, start) + offset)
            if start >= since and table.tops[index] <= start + offset:
                total += 1 if self._wall.count(table.tops[index], start + offset + 1) else 0
                first = start + offset + 1
            total += self._wall.count(first, stop + offset)
            index += 1
        return total

    def _bits(self, since: int, end: int) -> int:
        table = self._zone.covering(end + DAY_SECONDS)
        bits = 0
        index = bisect_right(table.starts, since) - 1
        while index < len(table.starts) and table.starts[index] < end:
            start, offset = table.starts[index], table.offsets[index]
            stop = min(end, table.starts[index + 1]) if index + 1 < len(table.starts) else end
            first = max(table.tops[index], max(since, start) + offset)
            if start >= since and self._wall.count(table.tops[index], start + offset + 1):
                bits |= 1 << start - since
            if first < stop + offset:
                bits |= self._wall.bits(first, stop + offset) << first - offset - since
            index += 1
        return bits
