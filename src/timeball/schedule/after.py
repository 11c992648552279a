"""Intervals from the end of the last run (`@after`). Owns the first tick; the others follow from the ledger."""

from __future__ import annotations

from timeball.schedule.contract import Schedule
from timeball.schedule.words import in_language


class After(Schedule):
    """`delay` in microseconds. Its only tick by itself is `anchor + delay`: the first one."""

    __slots__ = ("anchor", "delay")

    def __init__(self, *, text: str, timezone: str, delay: int, anchor: int) -> None:
        super().__init__(text=text, timezone=timezone)
        self.delay = delay
        self.anchor = anchor

    @property
    def follows_runs(self) -> int:
        return self.delay

    def next_after(self, instant: int) -> int | None:
        first = self.anchor + self.delay
        return first if instant < first else None

    def previous_before(self, instant: int) -> int | None:
        first = self.anchor + self.delay
        return first if instant > first else None

    def count_between(self, after: int, until: int) -> int:
        return 1 if after < self.anchor + self.delay <= until else 0

    def most_a_day(self) -> int:
        return 1

    def describe(self, language: str = "en") -> str:
        return in_language(language).after(self.delay)
