"""The only place that puts parts together: settings to store, registry, services and engine."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass

from timeball.engine.engine import Engine
from timeball.events.bus import Bus
from timeball.executors.command.executor import CommandExecutor
from timeball.executors.function.executor import FunctionExecutor
from timeball.executors.registry import FunctionTable, Registry
from timeball.service.calendars import CalendarService
from timeball.service.jobs import JobService
from timeball.service.ticks import TickService
from timeball.settings import Settings
from timeball.store import Store, open_store
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
    return Registry(
        [
            FunctionExecutor(
                functions or FunctionTable(),
                output_bytes_max=settings.output_bytes_max,
                threads_max=settings.threads_max,
            ),
            CommandExecutor(
                allow=settings.command_allow,
                output_bytes_max=settings.output_bytes_max,
                grace_seconds=settings.command_grace_seconds,
            ),
        ]
    )


def current_actor(face: str) -> str:
    """Who asks, for the trail: `cli:anna`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{face}:{user}"
