"""Kills aimed at a role: whoever holds the claim of the next tick, or whoever holds none. Counts; judges nothing."""

from __future__ import annotations

import functools
import itertools
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.instances import Instances, eventually
from timeball.clock import monotonic_us
from timeball.service.audit import Report, audit
from timeball.store import Store, open_store
from timeball.store.database import sql

NAMES = ("a", "b", "c")
CLAIMS = sql(
    "SELECT r.id, i.name FROM timeball_run r JOIN timeball_instance i ON i.id = r.instance_id "
    "WHERE r.state = 'claimed' AND r.kind = 'scheduled' ORDER BY r.due_at"
)
BEGINS = sql(
    "SELECT started_at FROM timeball_run WHERE kind = 'scheduled' AND started_at IS NOT NULL ORDER BY started_at"
)
RUNNING = sql(
    "SELECT i.name, r.attempt, r.started_at FROM timeball_run r JOIN timeball_instance i ON i.id = r.instance_id "
    "WHERE r.state = 'running'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kills:
    """What a series of kills did. `gaps_us`: between one start and the next, the longest first, microseconds."""

    kills: int
    report: Report
    gaps_us: list[int]


def kill_again_and_again(url: str, folder: Path, *, kills: int, owner: bool) -> Kills:
    """Three instances, one job of each second; kill the owner of the next claim, or one that holds none."""
    with Instances(url, folder) as cluster:
        cluster.ask("db", "upgrade")
        command = ("--overlap", "allow", "--command", "--", "/bin/true")
        cluster.ask("jobs", "add", "tick", "--schedule", "* * * * * *", *command)
        store = open_store(url)
        for name in NAMES:
            cluster.start(name)
        eventually(lambda: len(store.members.live("default")) == len(NAMES))
        done = 0
        for _ in range(kills):
            begun = len(_begins(store)) + 3
            eventually(functools.partial(_has_begun, store, begun))  # each kill meets a cluster that works
            name = _aim(store, owner=owner)
            known = _ids(store, name)
            cluster.kill(name)
            done += 1
            cluster.start(name)
            eventually(functools.partial(_has_come_back, store, name, known), 60)
        cluster.ask("jobs", "stop", "tick")
        eventually(lambda: not store.database.read(lambda tx: tx.all(CLAIMS)))
        cluster.end_all()
        report = audit(store, "default")
        begins = _begins(store)
        store.close()
    gaps = sorted((later - earlier for earlier, later in itertools.pairwise(begins)), reverse=True)
    return Kills(kills=done, report=report, gaps_us=gaps)


def _begins(store: Store) -> list[int]:
    return [row[0] for row in store.database.read(lambda tx: tx.all(BEGINS))]


def _has_begun(store: Store, count: int) -> bool:
    return len(_begins(store)) >= count


def _has_come_back(store: Store, name: str, known: set[str]) -> bool:
    return bool(_ids(store, name) - known)


def _ids(store: Store, name: str) -> set[str]:
    return {instance.id for instance in store.members.live("default") if instance.name == name}


def _aim(store: Store, *, owner: bool) -> str:
    """Wait until somebody fits, and name them."""
    deadline, never = monotonic_us() + 30_000_000, threading.Event()
    while monotonic_us() < deadline:
        claims = [row[1] for row in store.database.read(lambda tx: tx.all(CLAIMS))]
        if owner and claims:
            return claims[0]
        idle = sorted(set(NAMES) - set(claims))
        if not owner and claims and idle:
            return idle[0]
        never.wait(0.01)
    raise AssertionError("nobody could be aimed at")


def reruns(url: str, folder: Path, *, kills: int) -> list[int]:
    """Kill whoever runs a long job that is to be run again; how long until it began again each time, microseconds."""
    waits: list[int] = []
    with Instances(url, folder) as cluster:
        cluster.ask("db", "upgrade")
        command = ("--command", "--", "/bin/sleep", "600")
        cluster.ask(
            "jobs", "add", "long", "--schedule", "none", "--on-lost", "rerun", "--set", "lost_max=1000", *command
        )
        store = open_store(url)
        for name in NAMES:
            cluster.start(name)
        eventually(lambda: len(store.members.live("default")) == len(NAMES))
        cluster.ask("jobs", "trigger", "long")
        for attempt in range(1, kills + 1):
            eventually(functools.partial(_running, store, attempt), 60)
            owner = _running(store, attempt)
            assert owner is not None
            killed_at = store.members.clock()
            cluster.kill(owner[0])
            eventually(functools.partial(_running, store, attempt + 1), 60)
            again = _running(store, attempt + 1)
            assert again is not None
            waits.append(again[1] - killed_at)
            cluster.start(owner[0])
        cluster.ask("jobs", "stop", "long", "--cancel-running")
        eventually(lambda: not store.database.read(lambda tx: tx.all(RUNNING)))
        cluster.end_all()
        store.close()
    return waits


def _running(store: Store, attempt: int) -> tuple[str, int] | None:
    rows = store.database.read(lambda tx: tx.all(RUNNING))
    return next(((row[0], row[2]) for row in rows if row[1] == attempt), None)
