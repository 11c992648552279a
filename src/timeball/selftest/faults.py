"""Which faults there are, and a plan of them from a seed: the same seed gives the same plan."""

from __future__ import annotations

import random
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from timeball.errors import InvalidInput

KILL, PAUSE, PARTITION, SLOW, ROLLING, RESTART = "kill", "pause", "partition", "slow-db", "rolling", "db-restart"
KINDS = (KILL, PAUSE, PARTITION, SLOW, ROLLING, RESTART)
ON_SQLITE = frozenset({KILL, PAUSE, ROLLING})
PARTITIONS = ("cut", "refuse", "black-hole", "requests-lost", "answers-lost")
"""Every connection broken once; no connection to be had; nothing passes; only answers pass; only requests pass."""
FIRST_AFTER_SECONDS, NONE_BEFORE_END_SECONDS = 3.0, 5.0
GAP_SECONDS, GAP_SECONDS_MAX = 4.0, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `aim` picks the victim (0 to below 1), unless `at_leader`; `how`: which partition;
    `resets`: held connections are broken at its end instead of going on; `delay_seconds`: each way, per packet."""

    at_seconds: float
    kind: str
    length_seconds: float
    aim: float
    at_leader: bool
    how: str
    resets: bool
    delay_seconds: float


def read_kinds(text: str, *, sqlite: bool, restart: str | None) -> tuple[str, ...]:
    """The kinds in a list with commas. Raises InvalidInput for what is unknown or cannot be done here."""
    kinds = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for kind in kinds:
        if kind not in KINDS:
            raise InvalidInput(f"there is no fault {kind!r}", hint=f"known: {', '.join(KINDS)}", field="faults")
        if sqlite and kind not in ON_SQLITE:
            hint = f"on SQLite: {', '.join(k for k in KINDS if k in ON_SQLITE)}"
            raise InvalidInput(f"fault {kind!r} needs a database server", hint=hint, field="faults")
    if RESTART in kinds and restart is None:
        hint = "--restart-db 'systemctl restart postgresql', for example"
        raise InvalidInput(f"fault {RESTART!r} needs to know how to restart your server", hint=hint, field="faults")
    if restart is not None and RESTART not in kinds:
        raise InvalidInput(f"--restart-db is given, and {RESTART!r} is not among --faults", field="restart-db")
    return kinds


def read_restart(text: str) -> tuple[str, ...]:
    """The command that restarts the server, as words. Raises InvalidInput for what cannot be run."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidInput(f"--restart-db {text!r} cannot be read: {error}", field="restart-db") from error
    if not words or shutil.which(words[0]) is None:
        hint = "a program and its arguments; no shell is used"
        raise InvalidInput(f"--restart-db {text!r} names no program that is here", hint=hint, field="restart-db")
    return words


def plan_faults(seed: int, kinds: Sequence[str], *, length_seconds: float, lease_seconds: float) -> list[Fault]:
    """Faults over a length of time: every wanted kind soon, then all of them again and again in random order."""
    rng = random.Random(seed)  # noqa: S311 - a test that can be repeated
    deck = _endless(rng, kinds)
    plan: list[Fault] = []
    at = FIRST_AFTER_SECONDS
    while kinds and at < length_seconds - NONE_BEFORE_END_SECONDS:
        plan.append(_fault(rng, at, next(deck), len(plan) < len(kinds), lease_seconds))
        at += min(GAP_SECONDS_MAX, 0.5 + rng.expovariate(1 / GAP_SECONDS))
    return plan


def _endless(rng: random.Random, kinds: Sequence[str]) -> Iterator[str]:
    while True:
        deck = list(kinds)
        rng.shuffle(deck)
        yield from deck


def _fault(rng: random.Random, at: float, kind: str, first: bool, lease: float) -> Fault:
    long = rng.uniform(1.3, 2.5) * lease
    short = rng.uniform(0.1, 0.5) * lease
    lengths = {
        KILL: rng.uniform(0.5, 1.5 * lease),
        PAUSE: long if first or rng.random() < 0.5 else short,
        PARTITION: long if first or rng.random() < 0.6 else short,
        SLOW: rng.uniform(1.0, 2.0) * lease,
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
    )
