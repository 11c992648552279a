"""The engine: all parts of one instance, their loops, and the order in which they start and end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from timeball.clock import ClusterClock, monotonic_us, seconds_to_us
from timeball.engine.adopter import Adopter
from timeball.engine.canceller import Canceller
from timeball.engine.claimer import Claimer
from timeball.engine.definitions import DefinitionCache
from timeball.engine.held import HeldClaims
from timeball.engine.isolation import Isolation
from timeball.engine.janitor import Janitor
from timeball.engine.lease import LeaseKeeper
from timeball.engine.loop import Loop, Step
from timeball.engine.makeup import Makeup
from timeball.engine.member import Member
from timeball.engine.planner import Planner
from timeball.engine.progress import ProgressWriter
from timeball.engine.reaper import Reaper
from timeball.engine.rebooter import Rebooter
from timeball.engine.runner import Runner
from timeball.engine.settler import Settler
from timeball.engine.spill import Spill, spill_folder
from timeball.engine.starter import Starter, StartGate
from timeball.errors import StoreError
from timeball.events.bus import Bus
from timeball.events.facts import DrainEnded
from timeball.executors.registry import Registry
from timeball.model.cluster import Execute
from timeball.model.job import Definition
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.identity import place_of
from timeball.store.inspection import refuse_unfit
from timeball.store.wake import work_channel

SETTLE_AT_END_SECONDS = 10.0
DRAIN_POLL_SECONDS = 0.05
DUTIES = ("plan", "reap", "janitor", "makeup")
"""What only the leader does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What the instance knows of itself. `problems` is empty when it is ready."""

    instance_id: str
    name: str
    leading: bool
    epoch: int | None
    running: int
    claimed: int
    unsettled: int
    problems: tuple[str, ...]


class Engine:
    """One instance of the cluster, as threads of this process. `start` once, `stop` once."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        registry: Registry,
        bus: Bus,
        *,
        version: str = "",
        clock: ClusterClock | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._bus = bus
        self._registry = registry
        self.clock = clock or ClusterClock()
        executes = settings.execute != Execute.NONE
        self.member = Member(
            store, self.clock, settings, registry.handlers if executes else tuple, bus, version=version
        )
        self.lease = LeaseKeeper(store, self.clock, settings, self.member, bus)
        self.definitions = DefinitionCache(store)
        self.spill = Spill(spill_folder(settings.spill_dir), place_of(store.database, settings.namespace))
        self.settler = Settler(store, self.clock, settings, self.member, bus, self._on_settled, self.spill)
        self.adopter = Adopter(store, settings, self.member, self.spill, self.settler.write)
        self.runner = Runner(
            settings.namespace, self.clock, registry, self.settler.put, self.settler.unsettled, self.member.believes
        )
        self.isolation = Isolation(self.clock, settings, self.member, self.runner)
        self.held = HeldClaims()
        gate = StartGate()
        differ = self.member.others_differ
        self.planner = Planner(store, self.clock, settings, self.lease, self.definitions, bus, self._handler_of, differ)
        self.claimer = Claimer(
            store,
            settings,
            self.member,
            self.lease,
            self.held,
            self.runner,
            self.definitions,
            gate,
            lambda: self._wake("start"),
            lambda: self.settler.full,
        )
        self.starter = Starter(
            store,
            self.clock,
            settings,
            self.member,
            self.lease,
            self.held,
            self.runner,
            self.definitions,
            gate,
            bus,
            lambda: None,
        )
        self.progress = ProgressWriter(store, self.clock, registry)
        rebooter = Rebooter(store, bus, self._handler_of, differ)
        self.reaper = Reaper(store, self.clock, settings, self.lease, bus, differ, rebooter)
        self.janitor = Janitor(store, self.clock, settings, self.lease)
        self.makeup = Makeup(store, settings, self.lease, self._handler_of)
        self.canceller = Canceller(store, self.runner)
        self.member.on_given_up = self._let_go
        self.runner.on_waiting = lambda: self._wake("run")
        self.settler.on_outcome = lambda: self._wake("settle")
        self._loops = self._make_loops(executes=executes)
        self.lease.failing_since = self._duty_failing_since
        self._listening = contextlib.ExitStack()
        self._stopping = threading.Lock()
        self._stopped = False

    def start(self) -> None:
        """Join the cluster and start the loops. Raises StoreError when the database cannot be reached now."""
        refuse_unfit(self._store.database)
        self.member.step()
        if self.member.refusal is not None:
            raise self.member.refusal
        self._listening.enter_context(self._store.database.listen(work_channel(self._settings.namespace), self.wake))
        for loop in self._loops.values():
            loop.start()

    def wake(self) -> None:
        """Something changed in the database: look now, not at the next poll."""
        for name in ("lease", "plan", "claim", "cancel"):
            self._wake(name)

    def stop(self, drain_seconds: float | None = None) -> list[int]:
        """Leave in order: claim no more, hand over, let running work end up to the drain time, settle, leave.

        Returns the runs that had not ended. Never raises for a database that is away; what it could not say there
        the others find out by the membership's end.
        """
        with self._stopping:
            if self._stopped:
                return []
            self._stopped = True
            return self._drain(self._settings.drain_seconds if drain_seconds is None else drain_seconds)

    def health(self) -> Health:
        """Whether this instance does its work: member by its own clock, every loop passing."""
        problems = [f"{loop.name}: failing" for loop in self._loops.values() if loop.failing]
        refusal = self.member.refusal
        if refusal is not None:
            problems.append(f"schema: {refusal}")
        elif not self.member.trusted:
            problems.append("membership has run out: the database has not been reached in time")
        if self.settler.spilled:
            problems.append(f"{self.settler.spilled} outcomes wait on disk: they could not be written yet")
        limit = seconds_to_us(self._settings.membership_seconds)
        now = monotonic_us()
        problems += [
            f"{loop.name}: no pass for {(now - loop.passed_at) // 1_000_000} s"
            for loop in self._loops.values()
            if loop.passed_at is not None and now - loop.passed_at > 4 * limit
        ]
        term = self.lease.term()
        return Health(
            instance_id=self.member.id,
            name=self.member.name,
            leading=term is not None,
            epoch=None if term is None else term.epoch,
            running=self.runner.load(),
            claimed=len(self.held),
            unsettled=len(self.settler),
            problems=tuple(problems),
        )

    def _make_loops(self, *, executes: bool) -> dict[str, Loop]:
        steps: dict[str, Step] = {}
        if executes:
            steps = {
                "lease": self.lease.step,
                "plan": self.planner.step,
                "claim": self.claimer.step,
                "start": self.starter.step,
                "run": self.runner.step,
                "settle": self.settler.step,
                "adopt": self.adopter.step,
                "progress": self.progress.step,
                "cancel": self.canceller.step,
                "reap": self.reaper.step,
                "janitor": self.janitor.step,
                "makeup": self.makeup.step,
            }
        loops = {
            name: Loop(name, step, self._bus, may_recover=lambda name=name: self._answered_since(name))
            for name, step in steps.items()
        }
        loops["heartbeat"] = Loop("heartbeat", self._beat, self._bus)
        loops["isolation"] = Loop("isolation", self.isolation.step, self._bus)
        return loops

    def _answered_since(self, name: str) -> bool:
        """Whether a pass proves that the trouble is over: many pass without asking the database anything."""
        return self.member.trusted and self._store.database.answered_at > self._loops[name].failed_at

    def _beat(self) -> float:
        """On waking from a long pause the work that must have ended ends before anything else, the heartbeat too."""
        self.isolation.step()
        return self.member.step()

    def _drain(self, drain_seconds: float) -> list[int]:
        self.member.draining = True
        self._end_loops("claim", "start", "plan", "reap", "janitor", "makeup", "lease")
        with contextlib.suppress(StoreError):
            self._store.claims.give_back(self.member.id, [c.run_id for c in self.held.clear()])
        with contextlib.suppress(StoreError):
            self.lease.resign("draining")
        self._wake("heartbeat")
        self._wait_until(lambda: self.runner.load() == 0, drain_seconds)
        left = self._close_work()
        self._wait_until(lambda: len(self.settler) == 0 or self.member.refusal is not None, SETTLE_AT_END_SECONDS)
        self._end_loops("run", "settle", "adopt", "progress", "cancel", "heartbeat", "isolation")
        with contextlib.suppress(StoreError):
            self.progress.step()
        self.settler.spill_all()
        self.spill.close()
        self._listening.close()
        with contextlib.suppress(StoreError):
            self.member.leave()
        self._bus.publish(DrainEnded(name=self.member.name, left=tuple(left), unsettled=self.settler.waiting))
        return left

    def _close_work(self) -> list[int]:
        """End what is left. Its runs stay unsettled: to the cluster they are lost, and each job's policy decides."""
        if self.runner.load() == 0:
            self.runner.close(0)
            return []
        self._wait_until(lambda: len(self.settler) == 0, 1.0)
        self.settler.closed = True
        return self.runner.close(self._settings.command_grace_seconds)

    def _wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = monotonic_us() + seconds_to_us(seconds)
        pause = threading.Event()
        while not condition() and monotonic_us() < deadline:
            pause.wait(DRAIN_POLL_SECONDS)

    def _end_loops(self, *names: str) -> None:
        loops = [self._loops[name] for name in names if name in self._loops]
        for loop in loops:
            loop.stop(0)
        for loop in loops:
            loop.stop()

    def _wake(self, name: str) -> None:
        loop = self._loops.get(name)
        if loop is not None:
            loop.wake()

    def _duty_failing_since(self) -> int | None:
        since = [self._loops[name].failing_since for name in DUTIES if name in self._loops]
        return min((at for at in since if at is not None), default=None)

    def _let_go(self) -> None:
        self.held.clear()
        self.isolation.step()

    def _on_settled(self) -> None:
        if self.claimer.starved:
            self._wake("claim")
        if len(self.held):
            self._wake("start")

    def _handler_of(self, definition: Definition) -> str:
        return self._registry.handler_of(definition.executor, definition.target)
