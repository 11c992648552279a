"""Several schedules as one (`|`). Owns how ticks merge: an instant of several parts is one tick."""

from __future__ import annotations

from timeball.schedule.contract import Schedule
from timeball.schedule.words import in_language

_WINDOW_SECONDS = 86_400


class Union(Schedule):
    """A tick of any part is a tick."""

    __slots__ = ("parts",)

    def __init__(self, *, text: str, parts: tuple[Schedule, ...]) -> None:
        super().__init__(text=text, timezone=parts[0].timezone)
        self.parts = parts

    def next_after(self, instant: int) -> int | None:
        ticks = [tick for part in self.parts if (tick := part.next_after(instant)) is not None]
        return min(ticks, default=None)

    def previous_before(self, instant: int) -> int | None:
        ticks = [tick for part in self.parts if (tick := part.previous_before(instant)) is not None]
        return max(ticks, default=None)

    def count_between(self, after: int, until: int) -> int:
        """Count with one bit per second, a day at a time; jump over days without ticks."""
        total = 0
        tick = self.next_after(after)
        while tick is not None and tick <= until:
            start = tick // 1_000_000
            seconds = min(_WINDOW_SECONDS, until // 1_000_000 - start)
            if not seconds:  # the last second may be counted in part only
                return total + len(self.between(tick - 1, until))
            total += self._count_window(start, tick % 1_000_000, seconds)
            tick = self.next_after((start + seconds) * 1_000_000 - 1)
        return total

    def _count_window(self, start: int, part: int, seconds: int) -> int:
        """Count the ticks of a window whose first tick lies `part` microseconds into second `start`."""
        merged: dict[int, int] = {}
        for schedule in self.parts:
            for at, bits in schedule.marks(start, seconds).items():
                merged[at] = merged.get(at, 0) | (bits if at >= part else bits & ~1)
        return sum(bits.bit_count() for bits in merged.values())

    def most_a_day(self) -> int:
        return sum(part.most_a_day() for part in self.parts)

    def describe(self, language: str = "en") -> str:
        words = in_language(language)
        texts = [part.describe(language) for part in self.parts]
        if len({part.timezone for part in self.parts}) > 1:
            texts = [words.in_zone(text, part.timezone) for text, part in zip(texts, self.parts, strict=True)]
        return words.union(texts)
