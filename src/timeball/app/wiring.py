"""The only place that puts parts together: settings to store, registry, services and engine."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass

from timeball.app.worker import worker_command
from timeball.engine.engine import Engine
from timeball.events.bus import Bus
from timeball.executors.celery.executor import CeleryExecutor
from timeball.executors.command.executor import CommandExecutor
from timeball.executors.function.executor import FunctionExecutor, ProcessLimits
from timeball.executors.http.executor import HttpExecutor, HttpLimits
from timeball.executors.registry import FunctionTable, Registry
from timeball.executors.secrets import Secrets
from timeball.service.backfills import BackfillService
from timeball.service.calendars import CalendarService
from timeball.service.jobs import JobService
from timeball.service.limits import LimitService
from timeball.service.runs import RunService
from timeball.service.ticks import TickService
from timeball.settings import Settings
from timeball.store import Store, open_store
from timeball.store.fences import fence_check
from timeball.store.identity import place_of_url
from timeball.version import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a process needs to work with one database."""

    settings: Settings
    store: Store
    registry: Registry
    bus: Bus

    def jobs(self, actor: str | None = None) -> JobService:
        """The job use-cases, in the name of whoever asks."""
        return JobService(
            self.store,
            self.registry,
            namespace=self.settings.namespace,
            actor=actor or current_actor("python"),
        )

    def calendars(self, actor: str | None = None) -> CalendarService:
        """The use-cases about named calendars."""
        who = actor or current_actor("python")
        return CalendarService(self.store, self.jobs(who), namespace=self.settings.namespace, actor=who)

    def runs(self, actor: str | None = None) -> RunService:
        """The use-cases about runs."""
        who = actor or current_actor("python")
        return RunService(self.store, self.jobs(who), namespace=self.settings.namespace, actor=who)

    def backfills(self, actor: str | None = None) -> BackfillService:
        """The use-cases about the past: backfill, pause, resume."""
        who = actor or current_actor("python")
        return BackfillService(self.store, self.jobs(who), namespace=self.settings.namespace, actor=who)

    def limits(self, actor: str | None = None) -> LimitService:
        """The use-cases about named limits."""
        return LimitService(self.store, namespace=self.settings.namespace, actor=actor or current_actor("python"))

    def ticks(self, actor: str | None = None) -> TickService:
        """The use-cases about single coming ticks."""
        return TickService(
            self.store,
            self.registry,
            namespace=self.settings.namespace,
            actor=actor or current_actor("python"),
        )

    def engine(self) -> Engine:
        """An instance of the cluster, not started. One for these parts: its end closes the registry."""
        return Engine(self.store, self.settings, self.registry, self.bus, version=VERSION)


def connect(settings: Settings, functions: FunctionTable | None = None) -> Parts:
    """Put the parts together. Reads no database yet."""
    store = open_store(settings.database_url, coordination_timeout_seconds=settings.coordination_timeout_seconds)
    return Parts(settings=settings, store=store, registry=make_registry(settings, functions), bus=Bus())


def make_registry(settings: Settings, functions: FunctionTable | None = None) -> Registry:
    """Every way to run work, one line each."""
    check_fence = fence_check(settings.database_url)
    return Registry(
        [
            FunctionExecutor(
                functions or FunctionTable(installed=True),
                output_bytes_max=settings.output_bytes_max,
                threads_max=settings.threads_max,
                check_fence=check_fence,
                processes=ProcessLimits(
                    command=worker_command(check_fence.kind),
                    processes_max=settings.processes_max,
                    runs_max=settings.process_runs_max,
                    memory_bytes_max=settings.process_memory_bytes_max,
                    grace_seconds=settings.command_grace_seconds,
                ),
            ),
            CommandExecutor(
                allow=settings.command_allow,
                output_bytes_max=settings.output_bytes_max,
                grace_seconds=settings.command_grace_seconds,
                shell=settings.command_shell_allow,
            ),
            HttpExecutor(
                HttpLimits(
                    allow=settings.http_allow_networks,
                    proxy=settings.http_proxy,
                    ca_file=settings.http_ca_file,
                    connections_max=settings.http_connections_max,
                    response_bytes_max=settings.http_response_bytes_max,
                    output_bytes_max=settings.output_bytes_max,
                )
            ),
            CeleryExecutor(
                settings.celery_broker_url,
                settings.celery_result_backend,
                place=place_of_url(settings.database_url, settings.namespace),
                output_bytes_max=settings.output_bytes_max,
                grace_seconds=settings.celery_grace_seconds,
                send_seconds=settings.celery_send_seconds,
                result_seconds=settings.celery_result_seconds,
            ),
        ],
        Secrets(settings.secrets_dir),
    )


def current_actor(face: str) -> str:
    """Who asks, for the trail: `cli:anna`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{face}:{user}"
