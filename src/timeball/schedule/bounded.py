"""A schedule between two instants. Owns nothing but the two ends."""

from __future__ import annotations

from timeball.schedule.contract import Schedule
from timeball.schedule.once import shown
from timeball.schedule.segments import zone_named
from timeball.schedule.words import in_language


class Bounded(Schedule):
    """The ticks of `inner` from `first` to `last` (microseconds, both included; None: no end on that side)."""

    __slots__ = ("first", "inner", "last")

    def __init__(self, inner: Schedule, *, first: int | None, last: int | None) -> None:
        super().__init__(text=inner.text, timezone=inner.timezone)
        self.inner = inner
        self.first = first
        self.last = last

    @property
    def follows_runs(self) -> int | None:
        return self.inner.follows_runs

    def fires_at_reboot(self, instant: int) -> bool:
        late_enough = self.first is None or instant >= self.first
        return late_enough and (self.last is None or instant <= self.last) and self.inner.fires_at_reboot(instant)

    def next_after(self, instant: int) -> int | None:
        tick = self.inner.next_after(instant if self.first is None else max(instant, self.first - 1))
        return None if tick is None or (self.last is not None and tick > self.last) else tick

    def previous_before(self, instant: int) -> int | None:
        tick = self.inner.previous_before(instant if self.last is None else min(instant, self.last + 1))
        return None if tick is None or (self.first is not None and tick < self.first) else tick

    def count_between(self, after: int, until: int) -> int:
        after = after if self.first is None else max(after, self.first - 1)
        until = until if self.last is None else min(until, self.last)
        return self.inner.count_between(after, until) if after < until else 0

    def most_a_day(self) -> int:
        return self.inner.most_a_day()

    def describe(self, language: str = "en") -> str:
        zone = zone_named(self.timezone)
        since, until = (None if end is None else shown(zone, end) for end in (self.first, self.last))
        return in_language(language).bounded(self.inner.describe(language), since, until)
