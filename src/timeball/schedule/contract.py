"""The contract of a schedule. Owns what every kind of schedule can answer; knows nothing of their grammar.

Instants are integers: microseconds since the epoch, UTC. No schedule reads a clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

MICROSECONDS = 1_000_000


class Schedule(ABC):
    """When a job is due. `text`: as it was written; `timezone`: the IANA zone that its wall times are in."""

    __slots__ = ("text", "timezone")

    def __init__(self, *, text: str, timezone: str) -> None:
        self.text = text
        self.timezone = timezone

    @property
    def follows_runs(self) -> int | None:
        """Microseconds from the end of one run to the next tick (`@after`); None where ticks come by themselves."""
        return None

    def fires_at_reboot(self, instant: int) -> bool:
        """Say whether a start of the cluster at that instant is a tick (`@reboot`)."""
        del instant
        return False

    @abstractmethod
    def next_after(self, instant: int) -> int | None:
        """Return the first tick strictly after `instant` (microseconds), or None when there is none any more."""

    @abstractmethod
    def previous_before(self, instant: int) -> int | None:
        """Return the last tick strictly before `instant` (microseconds), or None when there was none."""

    @abstractmethod
    def count_between(self, after: int, until: int) -> int:
        """Return how many ticks lie in `after < tick <= until`, without visiting them one by one."""

    @abstractmethod
    def describe(self, language: str = "en") -> str:
        """Return the schedule in plain words; `language`: a code that `words.languages()` lists, else English."""

    @abstractmethod
    def most_a_day(self) -> int:
        """Return how many ticks a local day of 24 hours has at most."""

    def between(self, after: int, until: int, limit: int | None = None) -> list[int]:
        """Return the ticks in `after < tick <= until`, ascending, at most `limit` of them."""
        ticks: list[int] = []
        tick = self.next_after(after)
        while tick is not None and tick <= until and (limit is None or len(ticks) < limit):
            ticks.append(tick)
            tick = self.next_after(tick)
        return ticks

    def marks(self, start: int, seconds: int) -> dict[int, int]:
        """Return the ticks of a stretch as bits, for unions that count without listing.

        `start`: whole seconds since the epoch. The keys are the microseconds within a second; bit n of a value says
        that there is a tick at that part of second `start + n`.
        """
        found: dict[int, int] = {}
        first = start * MICROSECONDS
        for tick in self.between(first - 1, first + seconds * MICROSECONDS - 1):
            second, part = divmod(tick - first, MICROSECONDS)
            found[part] = found.get(part, 0) | 1 << second
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.text!r} {self.timezone}>"
