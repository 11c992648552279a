"""Which faults there are, and a plan of them from a seed: the same seed gives the same plan."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from timeball.errors import InvalidInput

KILL, PAUSE, PARTITION, SLOW, ROLLING, SKEW = "kill", "pause", "partition", "slow-db", "rolling", "skew"
RESTART, DISK_FULL, FAILOVER = "db-restart", "disk-full", "db-failover"
KINDS = (KILL, PAUSE, PARTITION, SLOW, ROLLING, SKEW, RESTART, DISK_FULL, FAILOVER)
ON_SQLITE = frozenset({KILL, PAUSE, ROLLING})
OF_THE_FIRST_SERVER = frozenset({RESTART, DISK_FULL})
"""Done by commands about the server that is there at the begin: none of them comes after a failover."""
PARTITIONS = ("cut", "refuse", "black-hole", "requests-lost", "answers-lost")
"""Every connection broken once; no connection to be had; nothing passes; only answers pass; only requests pass."""
FIRST_AFTER_SECONDS, NONE_BEFORE_END_SECONDS = 3.0, 5.0
GAP_SECONDS, GAP_SECONDS_MAX = 4.0, 10.0
STEP_SECONDS_MIN, STEP_SECONDS_MAX, DAY_SECONDS = 60.0, 3600.0, 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `aim` picks the victim (0 to below 1), unless `at_leader`; `how`: which partition;
    `resets`: held connections are broken at its end instead of going on; `delay_seconds`: each way, per packet;
    `step_seconds`, `drift`: how a wall clock goes wrong, at once or by so many seconds a second (0: at once)."""

    at_seconds: float
    kind: str
    length_seconds: float
    aim: float
    at_leader: bool
    how: str
    resets: bool
    delay_seconds: float
    step_seconds: float
    drift: float


def read_kinds(text: str, *, sqlite: bool) -> tuple[str, ...]:
    """The kinds in a list with commas. Raises InvalidInput for what is unknown or cannot be done here."""
    kinds = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for kind in kinds:
        if kind not in KINDS:
            raise InvalidInput(f"there is no fault {kind!r}", hint=f"known: {', '.join(KINDS)}", field="faults")
        if sqlite and kind not in ON_SQLITE:
            hint = f"on SQLite: {', '.join(k for k in KINDS if k in ON_SQLITE)}"
            raise InvalidInput(f"fault {kind!r} needs a database server", hint=hint, field="faults")
    return kinds


def plan_faults(seed: int, kinds: Sequence[str], *, length_seconds: float, lease_seconds: float) -> list[Fault]:
    """Faults over a length of time: every wanted kind soon, then all of them again and again in random order.

    A failover comes once, in the middle half, and after each other fault of the first server came once.
    """
    rng = random.Random(seed)  # noqa: S311 - a test that can be repeated
    others = [kind for kind in kinds if kind != FAILOVER]
    deck = _endless(rng, others, before=OF_THE_FIRST_SERVER if FAILOVER in kinds else frozenset())
    plan: list[Fault] = []
    at = FIRST_AFTER_SECONDS
    while others and at < length_seconds - NONE_BEFORE_END_SECONDS:
        plan.append(_fault(rng, at, next(deck), len(plan) < len(others), lease_seconds))
        at += min(GAP_SECONDS_MAX, 0.5 + rng.expovariate(1 / GAP_SECONDS))
    return _with_failover(rng, plan, length_seconds, lease_seconds) if FAILOVER in kinds else plan


def _endless(rng: random.Random, kinds: Sequence[str], before: frozenset[str]) -> Iterator[str]:
    """All in random order, again and again; `before`: what comes first in the first round."""
    deck = list(kinds)
    rng.shuffle(deck)
    yield from sorted(deck, key=lambda kind: kind not in before)
    while True:
        rng.shuffle(deck)
        yield from deck


def _with_failover(rng: random.Random, plan: Sequence[Fault], length: float, lease: float) -> list[Fault]:
    earlier: dict[str, float] = {}
    for fault in plan:
        if fault.kind in OF_THE_FIRST_SERVER:
            earlier.setdefault(fault.kind, fault.at_seconds + fault.length_seconds)
    at = max([rng.uniform(0.25, 0.75) * length, *(ended + GAP_SECONDS for ended in earlier.values())])
    kept = [fault for fault in plan if fault.kind not in OF_THE_FIRST_SERVER or fault.at_seconds < at]
    return sorted([*kept, _fault(rng, at, FAILOVER, True, lease)], key=lambda fault: fault.at_seconds)


def _fault(rng: random.Random, at: float, kind: str, first: bool, lease: float) -> Fault:
    long = rng.uniform(1.3, 2.5) * lease
    short = rng.uniform(0.1, 0.5) * lease
    lengths = {
        KILL: rng.uniform(0.5, 1.5 * lease),
        PAUSE: long if first or rng.random() < 0.5 else short,
        PARTITION: long if first or rng.random() < 0.6 else short,
        SLOW: rng.uniform(1.0, 2.0) * lease,
        SKEW: rng.uniform(1.0, 4.0) * lease,
        DISK_FULL: rng.uniform(1.0, 2.5) * lease,
    }
    return Fault(
        at_seconds=at,
        kind=kind,
        length_seconds=lengths.get(kind, 0.0),
        aim=rng.random(),
        at_leader=rng.random() < 0.5,
        how=rng.choice(PARTITIONS[1:] if first else PARTITIONS),
        resets=rng.random() < 0.5,
        delay_seconds=rng.choice((0.005, 0.03, 0.1, 0.3)),
        step_seconds=_step(rng),
        drift=0.0 if first or rng.random() < 0.6 else rng.choice((-0.5, -0.05, 0.05, 1.0)),
    )


def _step(rng: random.Random) -> float:
    """Up to an hour either way; a day now and then."""
    size = DAY_SECONDS if rng.random() < 0.15 else rng.uniform(STEP_SECONDS_MIN, STEP_SECONDS_MAX)
    return rng.choice((-1, 1)) * size
