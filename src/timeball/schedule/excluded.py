"""A schedule without the ticks that lie where a calendar is closed. Owns how closed wall times become instants.

Within one of the zone's stretches of constant offset, wall = second + offset; so whatever is closed on the wall is
closed for each instant at which the clock shows it, be it shown once, twice or never.
"""

from __future__ import annotations

from bisect import bisect_right

from timeball.schedule.closures import Closures
from timeball.schedule.contract import MICROSECONDS, Schedule
from timeball.schedule.segments import DAY_SECONDS, FIRST_SECOND, LAST_SECOND, Zone
from timeball.schedule.words import in_language

JUMPS_MAX = 10_000
CYCLE_SECONDS = 146_097 * DAY_SECONDS
"""400 years: after them the calendar, and so cron's ticks and what is closed each week or year, come again."""


class Openings:
    """A calendar on the clock of a zone."""

    __slots__ = ("closures", "zone")

    def __init__(self, closures: Closures, zone: Zone) -> None:
        self.closures = closures
        self.zone = zone

    def at(self, instant: int) -> tuple[bool, int, int]:
        """Return whether an instant (microseconds) is closed, and a stretch around it where that holds."""
        second = min(max(instant // MICROSECONDS, FIRST_SECOND), LAST_SECOND - 1)
        table = self.zone.covering(second + 1)
        index = bisect_right(table.starts, second) - 1
        offset = table.offsets[index]
        stretch = self.closures.at(second + offset)
        start, end = max(stretch.start - offset, table.starts[index]), stretch.end - offset
        if index + 1 < len(table.starts):
            end = min(end, table.starts[index + 1])
        elif table.until < LAST_SECOND:
            end = min(end, table.until)
        return stretch.closed, start * MICROSECONDS, end * MICROSECONDS


class Excluded(Schedule):
    """The ticks of `inner` that are not closed.

    No search jumps over more than `JUMPS_MAX` closed stretches, or goes on when all that it can meet comes again.
    """

    __slots__ = ("inner", "name", "openings")

    def __init__(self, inner: Schedule, openings: Openings, *, name: str = "") -> None:
        super().__init__(text=inner.text, timezone=inner.timezone)
        self.inner = inner
        self.openings = openings
        self.name = name

    def next_after(self, instant: int) -> int | None:
        dated = self.openings.closures.dated
        last = max(instant, instant if dated is None else dated[1] * MICROSECONDS) + CYCLE_SECONDS * MICROSECONDS
        for _ in range(JUMPS_MAX):
            tick = self.inner.next_after(instant)
            if tick is None or tick > last:
                return None
            closed, _, end = self.openings.at(tick)
            if not closed:
                return tick
            instant = end - 1
        return None

    def previous_before(self, instant: int) -> int | None:
        dated = self.openings.closures.dated
        first = min(instant, instant if dated is None else dated[0] * MICROSECONDS) - CYCLE_SECONDS * MICROSECONDS
        for _ in range(JUMPS_MAX):
            tick = self.inner.previous_before(instant)
            if tick is None or tick < first:
                return None
            closed, start, _ = self.openings.at(tick)
            if not closed:
                return tick
            instant = start
        return None

    def count_between(self, after: int, until: int) -> int:
        total = 0
        tick = self.inner.next_after(after)
        while tick is not None and tick <= until:
            closed, _, end = self.openings.at(tick)
            last = min(end - 1, until)
            if not closed:
                total += self.inner.count_between(tick - 1, last)
            tick = self.inner.next_after(last)
        return total

    def most_a_day(self) -> int:
        return self.inner.most_a_day()

    def describe(self, language: str = "en") -> str:
        return in_language(language).closed(self.inner.describe(language), self.name, "skip")
