"""Who may start when jobs share limits: permits are given in order, and only whole. Pure: values in, verdicts out.

The window slides: within any `window_us` no more than `started_max` starts, not in each minute by the wall. Past starts
are kept in slots of a hundredth of the window, each counted as if all had come at its end: so a permit comes back at
most a hundredth late, and never early.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

SLOTS = 100
TURN_US = 1_000_000
"""Who waits longer than this for its turn gives the claim back, so that it holds up no other work."""
PARKED_MAX_US = 30 * TURN_US
ASKED_AGAIN_MIN = 50
"""So many of those that gave their claim back ask again in each second, or ten times the bound if that is more."""


@dataclass(slots=True, kw_only=True)
class Permits:
    """What one limit has left. Instants and spans in microseconds.

    `running`: how many run now. `recent`: ends of slots and how many starts each had, the oldest first. `tail_at`:
    when the last one of those that gave their claims back asks again. They come one after the other, so that a long
    line costs no more than a short one. `changed`: there is something to keep (`running` is counted anew each time).
    """

    name: str
    running: int
    running_max: int | None = None
    started_max: int | None = None
    window_us: int = 0
    recent: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    tail_at: int = 0
    changed: bool = False

    def forget(self, now: int) -> None:
        """Drop what the window has left behind; and what lies ahead of a clock that went back."""
        self.recent = [
            (at, n) for at, n in self.recent if now - self.window_us < at <= now + self.window_us // SLOTS + 1
        ]

    def free(self) -> int | None:
        """How many more may start now; None: no bound."""
        bounds: list[int] = []
        if self.running_max is not None:
            bounds.append(self.running_max - self.running)
        if self.started_max is not None:
            bounds.append(self.started_max - sum(n for _, n in self.recent))
        return max(0, min(bounds)) if bounds else None

    def free_at(self, now: int) -> int:
        """When it is worth asking again, if there is none left now: the end of a run cannot be foreseen."""
        by_running = self.running_max is not None and self.running >= self.running_max
        if by_running or self.started_max is None or not self.recent:
            return now
        return self.recent[0][0] + self.window_us

    def park(self, now: int) -> int:
        """The instant at which one more that gives its claim back asks again."""
        first = max(self.free_at(now), now + TURN_US)
        step = TURN_US // max(ASKED_AGAIN_MIN, 10 * self.bound)
        self.changed = True
        self.tail_at = max(first, min(self.tail_at + step, first + PARKED_MAX_US))
        return self.tail_at

    @property
    def bound(self) -> int:
        """How many may keep their claims while they wait."""
        return self.running_max or self.started_max or 0

    def charge(self, count: int, now: int) -> None:
        """Note that so many started."""
        self.running += count
        if self.started_max is None or count == 0:
            return
        self.changed = True
        slot = max(1, self.window_us // SLOTS)
        end = (now // slot + 1) * slot
        if self.recent and self.recent[-1][0] == end:
            self.recent[-1] = (end, self.recent[-1][1] + count)
        else:
            self.recent.append((end, count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanting:
    """A run that could start but for its limits, in the order in which permits are given: priority, then `ready_at`."""

    run_id: int
    limits: Sequence[str]
    priority: int
    ready_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """`started`: may start. `turn`: keep the claim and ask again soon. `parked`: give it back, claimable then."""

    started: frozenset[int]
    turn: frozenset[int]
    parked: Mapping[int, int]


def share(wanting: Iterable[Wanting], permits: Mapping[str, Permits], now: int) -> Shares:
    """Give permits out. A run that names a limit that is not there waits: fail closed.

    As many as a limit lets run at once may keep their claims, to begin as soon as others end.
    """
    started: set[int] = set()
    turn: set[int] = set()
    parked: dict[int, int] = {}
    free = {name: p.free() for name, p in permits.items()}
    waiting = dict.fromkeys(permits, 0)
    for run in sorted(wanting, key=lambda w: (-w.priority, w.ready_at, w.run_id)):
        lacking = [name for name in run.limits if name not in permits or free[name] == 0]
        if not lacking:
            started.add(run.run_id)
            for name in run.limits:
                left = free[name]
                free[name] = None if left is None else left - 1
            continue
        again_at = max(_again_at(permits.get(name), now) for name in lacking)
        if again_at <= now + TURN_US and all(_has_turn(permits.get(name), waiting) for name in lacking):
            turn.add(run.run_id)
        else:
            parked[run.run_id] = max(_park(permits.get(name), now) for name in lacking)
        for name in lacking:
            waiting[name] = waiting.get(name, 0) + 1
    return Shares(started=frozenset(started), turn=frozenset(turn), parked=parked)


def _again_at(permits: Permits | None, now: int) -> int:
    return now + 2 * TURN_US if permits is None else permits.free_at(now)


def _has_turn(permits: Permits | None, waiting: Mapping[str, int]) -> bool:
    if permits is None:
        return False
    return waiting[permits.name] < permits.bound


def _park(permits: Permits | None, now: int) -> int:
    return now + PARKED_MAX_US if permits is None else permits.park(now)
