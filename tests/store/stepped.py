"""Whole instances that a test steps by hand, on a database whose clock it moves.

Instances are engines that are never started: no threads but those of the work itself, so the order is the test's.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import event
from sqlalchemy.engine import make_url

from tests.conftest import HostClock
from timeball.app.wiring import make_registry
from timeball.clock import monotonic_us, parse_instant
from timeball.engine.engine import Engine
from timeball.errors import ClaimLost
from timeball.events.bus import Bus
from timeball.executors.registry import FunctionTable
from timeball.model.job import Definition
from timeball.service.jobs import JobService
from timeball.settings import Settings
from timeball.store import Store, open_store
from timeball.store.database import sql
from timeball.store.migrate import upgrade_schema
from timeball.store.revision import current_revision
from timeball.store.runs import RunFilter, StoredRun

POSTGRES_CLOCK = """
CREATE TABLE test_clock (moved_us BIGINT NOT NULL);
INSERT INTO test_clock VALUES (0);
CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    'SELECT pg_catalog.clock_timestamp() + (SELECT moved_us FROM public.test_clock) * interval ''1 microsecond''';
"""


DEADLINE_SECONDS = 10.0 if "TIMEBALL_TEST_GUARDS" in os.environ else 60.0
"""A busy machine needs patience; without its guard, what a test waits for never comes."""


def eventually(condition: Callable[[], bool], seconds: float = DEADLINE_SECONDS) -> None:
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
        self._query_only = "OFF"
        self._admin: psycopg.Connection | None = None
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
        self.functions.register("note", self._note)
        self.functions.register("long", self._long)
        self.store = self.open()
        if current_revision(self.store.database) is None:
            upgrade_schema(self.store.database, "default")
        self.jobs = self.service()

    def service(self, **settings: Any) -> JobService:
        """The use-cases of jobs, by other settings."""
        registry = make_registry(Settings(database_url=self.url, **settings), self.functions)
        return JobService(self.store, registry, namespace="default", actor="test")

    def _note(self, run: Any) -> None:
        self.calls.append((run.job, run.due_at_us))

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
        self._part()

    def _part(self) -> None:
        """Close all connections; the next use opens new ones."""
        for store in self.stores:
            store.close()
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def open(self) -> Store:
        store = open_store(self.url, host_clock=self._host_clock)
        for engine in (store.database._work, store.database._coordination):
            event.listen(engine, "checkout", self._limit)
        self.stores.append(store)
        return store

    def administer(self, *statements: str) -> None:
        if self._postgres:
            if self._admin is None:
                self._admin = psycopg.connect(self.url, autocommit=True)
            for statement in statements:
                self._admin.execute(statement)  # pyright: ignore
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
        for name in ("member", "lease", "planner", "reaper", "makeup", "claimer", "starter", "runner", "canceller"):
            for engine in engines:
                with contextlib.suppress(ClaimLost):
                    getattr(engine, name).step()

        def at_rest() -> bool:
            for engine in engines:  # on a slow host a clock may be known so badly that an instant is still to come
                engine.runner.step()
            return not any(engine.runner.load() for engine in engines) or any(self.living.values())

        eventually(at_rest)
        for engine in engines:
            engine.settler.step()

    def hand_over(self, old: Engine, new: Engine) -> None:
        """Another instance leads; the old leader has not noticed."""
        term = old.lease.term()
        assert term is not None
        assert self.store.leases.release(term, actor="test")
        new.lease.step()
        assert new.lease.term() is not None

    @contextlib.contextmanager
    def refusing(self) -> Generator[None]:
        """The database drops its connections and takes no new ones."""
        self._part()
        if not self._postgres:
            file = Path(str(self._name))
            aside = file.rename(file.with_suffix(".aside"))
            file.mkdir()
            yield
            file.rmdir()
            aside.rename(file)
            return
        with psycopg.connect(make_url(self.url).set(database="postgres").render_as_string(), autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS false")  # pyright: ignore
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (self._name,))
            yield
            admin.execute(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS true")  # pyright: ignore

    @contextlib.contextmanager
    def read_only(self) -> Generator[None]:
        """Every session that is opened from now on reads only; it is for the pool to part with those afterwards."""
        self._query_only = "ON"
        if self._postgres:
            self.administer(f"ALTER DATABASE {self._name} SET default_transaction_read_only = on")
            self._part()
        yield
        self._query_only = "OFF"
        if self._postgres:
            with psycopg.connect(self.url, autocommit=True, options="-c default_transaction_read_only=off") as admin:
                admin.execute(f"ALTER DATABASE {self._name} RESET default_transaction_read_only")  # pyright: ignore

    def _limit(self, connection: Any, *_: object) -> None:
        if not self._postgres:
            connection.execute(f"PRAGMA query_only = {self._query_only}")

    def runs(self, job: str) -> list[StoredRun]:
        return self.store.runs.list("default", RunFilter(job=job, limit=1000))
