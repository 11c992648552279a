"""Faults of other schedulers as steps of whole instances on a real database (rows of `tests/cases/behaviour.jsonl`).

Instances are engines that are never started: the test calls their steps, and moves the database's clock.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.engine import make_url

from tests.conftest import HostClock
from timeball.app.wiring import make_registry
from timeball.clock import monotonic_us, parse_instant
from timeball.engine.engine import Engine
from timeball.engine.loop import BACKOFF_MAX_SECONDS, Loop
from timeball.errors import ClaimLost, StoreError, Unavailable
from timeball.events.bus import Bus
from timeball.events.facts import LoopFailing, LoopRecovered
from timeball.executors.registry import FunctionTable
from timeball.model.job import Definition
from timeball.service.audit import audit
from timeball.service.jobs import JobService
from timeball.settings import Settings
from timeball.store import Store, open_store
from timeball.store.database import sql
from timeball.store.migrate import upgrade_schema
from timeball.store.runs import RunFilter, StoredRun

SECOND = 1_000_000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
WEDNESDAY = "2030-06-05T12:00:30Z"
POSTGRES_CLOCK = """
CREATE TABLE test_clock (moved_us BIGINT NOT NULL);
INSERT INTO test_clock VALUES (0);
CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    'SELECT pg_catalog.clock_timestamp() + (SELECT moved_us FROM public.test_clock) * interval ''1 microsecond''';
"""
REFUSE_RUNS = {
    "sqlite": "CREATE TRIGGER refuse BEFORE INSERT ON timeball_run WHEN NEW.job_id = {job_id} "
    "BEGIN SELECT RAISE(ABORT, 'refused'); END",
    "postgresql": "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN RAISE EXCEPTION ''refused''; END'; CREATE TRIGGER refuse BEFORE INSERT ON timeball_run FOR EACH ROW "
    "WHEN (NEW.job_id = {job_id}) EXECUTE FUNCTION refuse()",
}
ALLOW_RUNS = {"sqlite": "DROP TRIGGER refuse", "postgresql": "DROP TRIGGER refuse ON timeball_run"}


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline, never = monotonic_us() + int(seconds * 1e6), threading.Event()
    while not condition():
        assert monotonic_us() < deadline, "it did not come true in time"
        never.wait(0.002)


class Bench:
    """One database, the instances on it, and what their functions were called for."""

    def __init__(self, url: str, host_clock: HostClock) -> None:
        self.url = url
        self._host_clock = host_clock
        self._postgres = url.startswith("postgresql")
        self._name = make_url(url).database
        self._moved_us = 0
        if self._postgres:  # a function of that name before the catalog's own: a clock that the test can move
            self.administer(POSTGRES_CLOCK, f"ALTER DATABASE {self._name} SET search_path = public, pg_catalog")
        self._engines: list[Engine] = []
        self.stores: list[Store] = []
        self.functions = FunctionTable()
        self.calls: list[tuple[str, int]] = []
        self.living: Counter[int] = Counter()
        self.two_lived: list[int] = []
        self.release = threading.Event()
        self.begun = threading.Semaphore(0)
        self.functions.register("note", lambda run: self.calls.append((run.job, run.due_at_us)))
        self.functions.register("long", self._long)
        self.store = self.open()
        upgrade_schema(self.store.database, "default")
        registry = make_registry(Settings(database_url=url), self.functions)
        self.jobs = JobService(self.store, registry, namespace="default", actor="test")

    def _long(self, run: Any) -> str:
        self.calls.append((run.job, run.due_at_us))
        self.living[run.id] += 1
        if self.living[run.id] > 1:
            self.two_lived.append(run.id)
        self.begun.release()
        while not self.release.wait(0.01) and not run.cancelled:
            pass
        self.living[run.id] -= 1
        return "cancelled" if run.cancelled else "whole"

    def close(self) -> None:
        self.release.set()
        for engine in self._engines:
            engine.runner.close(0)
        for store in self.stores:
            store.close()

    def open(self) -> Store:
        store = open_store(self.url, host_clock=self._host_clock)
        self.stores.append(store)
        return store

    def administer(self, *statements: str) -> None:
        if self._postgres:
            with psycopg.connect(self.url, autocommit=True) as admin:
                for statement in statements:
                    admin.execute(statement)  # pyright: ignore[reportArgumentType]
            return
        with self.store.database.transaction() as tx:
            for statement in statements:
                tx.count(sql(statement))

    def instance(self, name: str = "", **settings: Any) -> Engine:
        """A new instance with a store of its own; joined, not started."""
        chosen = Settings(database_url=self.url, name=name, **settings)
        engine = Engine(self.open(), chosen, make_registry(chosen, self.functions), Bus())
        self._engines.append(engine)
        engine.member.step()
        return engine

    def define(self, schedule: str, function: str = "note", **policies: Any) -> Definition:
        return Definition(schedule=schedule, executor="function", target={"name": function}, **policies)

    def now(self) -> int:
        return self.store.members.clock()

    def move_clock(self, by_us: int) -> None:
        if not self._postgres:
            self._host_clock.move(by_us)
            return
        self.administer(f"UPDATE test_clock SET moved_us = moved_us + {by_us}")

    def set_clock(self, instant: int | str) -> None:
        self.move_clock((parse_instant(instant) if isinstance(instant, str) else instant) - self.now())

    def round(self, *engines: Engine) -> None:
        """One pass of every loop of every instance; what begins and is short also ends."""
        for name in ("member", "lease", "planner", "reaper", "claimer", "starter", "runner", "canceller"):
            for engine in engines:
                with contextlib.suppress(ClaimLost):
                    getattr(engine, name).step()
        eventually(lambda: not any(engine.runner.load() for engine in engines) or any(self.living.values()))
        for engine in engines:
            engine.settler.step()

    def hand_over(self, old: Engine, new: Engine) -> None:
        """Another instance leads; the old leader has not noticed."""
        term = old.lease.term()
        assert term is not None
        assert self.store.leases.release(term, actor="test")
        new.lease.step()
        assert new.lease.term() is not None

    def runs(self, job: str) -> list[StoredRun]:
        return self.store.runs.list("default", RunFilter(job=job, limit=1000))


@pytest.fixture
def bench(database_url: str, host_clock: HostClock) -> Iterator[Bench]:
    made = Bench(database_url, host_clock)
    yield made
    made.close()


def test_lease_002_instances_of_one_host_and_name_are_different_holders_and_run_a_tick_once(bench: Bench) -> None:
    bench.set_clock("2030-06-05T06:59:50Z")
    first = [bench.instance() for _ in range(3)]
    assert len({engine.member.name for engine in first}) == 1
    bench.jobs.create("morning", bench.define("0 7 * * 1-5"))
    bench.round(*first)
    assert [engine.lease.term() is not None for engine in first] == [True, False, False]
    bench.set_clock("2030-06-05T06:59:58.500Z")
    bench.round(*first)  # one of them has the tick in hand, and all are killed
    again = [bench.instance() for _ in range(3)]
    assert len({engine.member.id for engine in first + again}) == 6
    for wait_us in (1 * SECOND, 4 * SECOND, 10 * SECOND, 10 * SECOND):
        bench.move_clock(wait_us)
        bench.round(*again)
    assert [run.state for run in bench.runs("morning")] == ["succeeded"]
    assert bench.calls == [("morning", parse_instant("2030-06-05T07:00:00Z"))]
    assert sum(engine.lease.term() is not None for engine in again) == 1
    assert bench.store.leases.read("default").epoch == 2


def test_dup_012_a_tick_fires_once_though_the_clock_passes_it_twice_and_the_leader_changes(bench: Bench) -> None:
    midnight = parse_instant("2030-06-05T00:00:00Z")
    bench.set_clock(midnight - 30 * SECOND)
    leader, other = bench.instance("a"), bench.instance("b")
    ticks = {f"job-{n:02}": midnight + n // 3 * 6 * MINUTE for n in range(60)}
    for name, tick in ticks.items():
        minutes = (tick - midnight) // MINUTE
        bench.jobs.create(name, bench.define(f"{minutes % 60} {minutes // 60} * * *"))
    bench.round(leader, other)
    for tick in sorted(set(ticks.values())):
        bench.set_clock(tick - 1 * SECOND)
        bench.round(leader, other)
        bench.set_clock(tick + SECOND // 2)
        bench.round(leader, other)
        cursors = {job.name: job.cursor_at for job in bench.jobs.list()}
        bench.hand_over(leader, other)
        bench.move_clock(-1 * SECOND)
        bench.round(leader, other)
        assert all(job.cursor_at >= cursors[job.name] for job in bench.jobs.list())
        leader, other = other, leader
    assert Counter(bench.calls) == Counter(ticks.items())
    bench.move_clock(MINUTE)
    report = audit(bench.store, "default")
    assert (report.ticks, report.duplicates, report.missed, report.violations) == (60, 0, 0, [])
    assert bench.store.leases.read("default").epoch == 21
