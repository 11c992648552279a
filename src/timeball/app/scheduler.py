"""`Scheduler`: Timeball inside a Python program. Owns nothing but the wiring and its start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from timeball.app.schema import ensure_schema
from timeball.app.wiring import Parts, connect, current_actor
from timeball.engine.engine import Engine, Health
from timeball.errors import InvalidInput
from timeball.executors.function.worker import in_worker
from timeball.executors.registry import FunctionTable
from timeball.model.calendar import calendar_name
from timeball.model.fields import check_name
from timeball.model.job import Definition
from timeball.model.limit import LimitRule
from timeball.observe.logs import log_facts
from timeball.schedule import schedule_of
from timeball.service.backfills import BackfillService
from timeball.service.calendars import CalendarService
from timeball.service.jobs import JobService
from timeball.service.limits import LimitService
from timeball.service.runs import RunService
from timeball.settings import Settings, load_settings

F = TypeVar("F", bound=Callable[..., Any])


class Scheduler:
    """Jobs of a program, on a shared database, in as many processes as you like.

    `database_url`: `sqlite:///file.db` or `postgresql://host/name`; by default from `timeball.toml` or
    `TIMEBALL_DATABASE_URL`. `settings`: any other setting by name. Nothing is opened before the first use.
    """

    def __init__(self, database_url: str | None = None, **settings: Any) -> None:
        self._flags: dict[str, Any] = {**settings, "database_url": database_url}
        self._config: Path | None = None
        self._functions = FunctionTable(installed=True)
        self._declared: dict[str, Definition] = {}
        self._limits: dict[str, LimitRule] = {}
        self._parts: Parts | None = None
        self._engine: Engine | None = None
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._forked)

    def job(
        self,
        name: str | None = None,
        schedule: str = "none",
        *,
        args: Mapping[str, Any] | None = None,
        isolation: str = "",
        **policies: Any,
    ) -> Callable[[F], F]:
        """Declare a job that runs the decorated function; `policies` are the fields of a job's definition.

        The job is created when this scheduler first starts, and edited when the code says something new. A function
        may be sync (runs in a thread) or async (runs on the jobs' own loop); a first parameter named `run` gets the
        run's context. `isolation="process"`: it runs in a process of its own, which time-out and cancel really end.
        Raises InvalidInput at once for a field that is wrong, ScheduleError for a wrong schedule.
        """

        def declare(function: F) -> F:
            job_name = check_name(name or function.__name__)
            if job_name in self._declared:
                raise InvalidInput(f"job {job_name!r} is declared twice", field="name")
            values = {"schedule": schedule, "executor": "function", "target": {"name": job_name}}
            try:
                definition = Definition.from_dict({**values, "args": dict(args or {}), **policies})
                schedule_of(_readable(definition), name=job_name, anchor_at=0)
            except InvalidInput as error:
                error.about(f"job {job_name!r}")
                raise
            self.function(job_name, isolation=isolation)(function)
            self._declared[job_name] = definition
            return function

        return declare

    def function(self, name: str | None = None, *, isolation: str = "") -> Callable[[F], F]:
        """Offer a function to jobs that are made elsewhere (`timeball jobs add --function NAME`)."""

        def offer(function: F) -> F:
            self._functions.register(name or function.__name__, function, isolation=isolation)
            return function

        return offer

    def limit(
        self,
        name: str,
        *,
        running_max: int | None = None,
        started_max: int | None = None,
        window_seconds: float | None = None,
    ) -> None:
        """Declare a limit that jobs may name (`limits=["name"]`): it is made at the start if there is none yet.

        A limit that exists stays as people have set it. Raises InvalidInput.
        """
        rule = LimitRule(running_max=running_max, started_max=started_max, window_seconds=window_seconds)
        self._limits[check_name(name)] = rule

    @property
    def functions(self) -> FunctionTable:
        """The functions that this program offers."""
        return self._functions

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._connected().settings

    @property
    def jobs(self) -> JobService:
        """The job use-cases: create, edit, start, stop, trigger, delete, list."""
        return self._connected().jobs()

    @property
    def runs(self) -> RunService:
        """The use-cases about runs: cancel, run again, settle by hand."""
        return self._connected().runs()

    @property
    def backfills(self) -> BackfillService:
        """The use-cases about the past: backfill a range; pause and resume a job."""
        return self._connected().backfills()

    @property
    def limits(self) -> LimitService:
        """The use-cases about named limits: set, delete, list."""
        return self._connected().limits()

    @property
    def calendars(self) -> CalendarService:
        """The use-cases about named calendars: create, edit, delete, list."""
        return self._connected().calendars()

    @property
    def health(self) -> Health | None:
        """What this instance knows of itself; None while it does not run."""
        return None if self._engine is None else self._engine.health()

    def configure(self, flags: Mapping[str, Any], config: Path | None = None) -> None:
        """Override settings before the first use; None means: not given. Raises InvalidInput after it."""
        with self._lock:
            if self._parts is not None:
                raise InvalidInput("the scheduler is in use; configure it before")
            self._flags |= {name: value for name, value in flags.items() if value is not None}
            self._config = config or self._config

    def declare(self) -> None:
        """Write the jobs that the code declares; what has not changed stays as it is."""
        parts = self._connected()
        limits = parts.limits(current_actor("code"))
        for name, rule in sorted(self._limits.items()):
            limits.ensure(name, rule)
        service = parts.jobs(current_actor("code"))
        for name, definition in sorted(self._declared.items()):
            service.declare(name, definition)

    def start(self) -> None:
        """Take part, in threads of this process. Raises StoreError when the database cannot be used."""
        if in_worker():
            raise InvalidInput(
                "this is a worker process, which imports the program's modules to find its functions",
                hint='start the scheduler under `if __name__ == "__main__":`, or in the application\'s lifespan',
            )
        with self._lock:
            if self._engine is not None:
                return
            parts = self._connected()
            ensure_schema(parts.store, parts.settings, upgrade=True)
            self.declare()
            engine = parts.engine()
            engine.start()
            self._engine = engine

    def stop(self, drain_seconds: float | None = None) -> list[int]:
        """Leave in order; the runs that had not ended by then. Does nothing when it was not started."""
        with self._lock:
            engine, self._engine = self._engine, None
            left = engine.stop(drain_seconds) if engine is not None else []
            if self._parts is not None:
                self._parts.store.close()
                self._parts = None
            return left

    @contextlib.contextmanager
    def running(self) -> Generator[Scheduler]:
        """Take part while the block runs."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncGenerator[None]:
        """The same for an ASGI application: `FastAPI(lifespan=scheduler.lifespan)`, in any number of workers."""
        await asyncio.to_thread(self.start)
        try:
            yield
        finally:
            await asyncio.shield(asyncio.to_thread(self.stop))

    def _connected(self) -> Parts:
        with self._lock:
            if self._parts is None:
                self._parts = connect(load_settings(self._flags, config=self._config), self._functions)
                self._parts.bus.subscribe(log_facts)
            return self._parts

    def _forked(self) -> None:
        """In a forked child: threads are gone and connections are the parent's. Start anew when asked."""
        self._lock = threading.RLock()
        self._engine = None
        if self._parts is not None:
            self._parts.store.database.reset_after_fork()
            self._parts = None


def _readable(definition: Definition) -> Definition:
    """What of a definition can be read without a database: a calendar that is a name only cannot."""
    missing = calendar_name(definition.calendar) and "exclude" not in definition.calendar
    return dataclasses.replace(definition, calendar={}) if missing else definition
