"""Membership: this instance's identity and its heartbeat. Owns who we are and until when we may believe it."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Sequence

from timeball.clock import ClusterClock, seconds_to_us
from timeball.errors import Duplicate, SchemaMismatch
from timeball.events.bus import Bus
from timeball.events.facts import ClockStepped, InstanceGivenUp, InstanceJoined, SchemaAccepted, SchemaRefused
from timeball.model.cluster import Execute, Instance, InstanceState
from timeball.settings import Settings
from timeball.store import Store

CLOCK_STEP_TOLD_US = 2_000_000


class Member:
    """One process start (or one return after having been given up) under a fresh random id.

    `trusted` is judged by the monotonic time before the last heartbeat that succeeded was sent: while it holds,
    nobody can have declared this instance dead.
    """

    def __init__(
        self,
        store: Store,
        clock: ClusterClock,
        settings: Settings,
        handlers: Callable[[], Sequence[str]],
        bus: Bus,
        *,
        version: str = "",
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._handlers = handlers
        self._bus = bus
        self._version = version
        self._lifetime_us = seconds_to_us(settings.membership_seconds)
        self._margin_us = seconds_to_us(settings.membership_margin_seconds)
        self._trusted_until = 0
        self._lock = threading.Lock()
        self._instance = self._fresh()
        self._told: str | None = None
        self._has_joined = False
        self.joined = False
        self.draining = False
        self.on_given_up: Callable[[], None] = lambda: None

    @property
    def id(self) -> str:
        """This instance's id; changes only when the cluster has given us up."""
        return self._instance.id

    @property
    def name(self) -> str:
        """The name for people; not unique, never used to decide."""
        return self._instance.name

    def others_differ(self) -> bool:
        """Whether another member runs another version of the program, as in a rolling upgrade; asks the database."""
        return self._store.members.others_run(self._settings.namespace, self._version)

    @property
    def trusted(self) -> bool:
        """Whether we may still believe that we are a member, of a cluster whose schema we can work on."""
        return self.joined and self._clock.monotonic() < self._trusted_until and self.refusal is None

    @property
    def refusal(self) -> SchemaMismatch | None:
        """Why the schema is one that this instance cannot work on, as the last heartbeat found; None: it can."""
        return self._store.database.refusal

    @property
    def trusted_until(self) -> int:
        """The monotonic instant up to which we may believe it; 0 when we are none."""
        return self._trusted_until

    def believes(self, instance_id: str) -> bool:
        """Whether we are a member, and under this id: what was started under an older one may be another's by now."""
        return self.trusted and self._instance.id == instance_id

    def step(self) -> float:
        """Sample the clock, then join or send a heartbeat. Returns seconds until the next.

        A schema that this version cannot work on is no failure of the step: it is told, and looked at again. No
        heartbeat is written then, so that the membership ends as it does for an instance that is cut off.
        """
        with self._lock:
            self._sample_clock()
            try:
                member = self._attend()
            except SchemaMismatch as error:
                self._tell_refused(error)
                return self._settings.heartbeat_seconds
            self._tell_accepted()
            if not member:
                self._give_up()
                return 0
        return self._settings.heartbeat_seconds

    def leave(self) -> None:
        """Leave in order."""
        with self._lock:
            if self.joined:
                self._store.members.leave(self._instance)
            self.joined = False
            self._trusted_until = 0

    def _attend(self) -> bool:
        if self.joined:
            return self._beat()
        self._join()
        return True

    def _tell_refused(self, error: SchemaMismatch) -> None:
        if self._told != error.message:
            self._told = error.message
            self._bus.publish(SchemaRefused(name=self.name, reason=str(error)))

    def _tell_accepted(self) -> None:
        if self._told is not None:
            self._told = None
            self._bus.publish(SchemaAccepted(name=self.name))

    def _sample_clock(self) -> None:
        moved = self._clock.adopt(self._store.members.sample(self._clock.monotonic))
        if abs(moved) >= CLOCK_STEP_TOLD_US:
            self._bus.publish(ClockStepped(by_us=moved))

    def _join(self) -> None:
        sent = self._clock.monotonic()
        try:
            self._store.members.join(self._instance, lifetime_us=self._lifetime_us, first=not self._has_joined)
        except Duplicate:  # an earlier join whose answer was lost, and that membership has ended unnoticed
            self._instance = self._fresh()
            self._store.members.join(self._instance, lifetime_us=self._lifetime_us, first=False)
        self.joined = self._has_joined = True
        self._trusted_until = sent + self._lifetime_us - self._margin_us
        self._bus.publish(InstanceJoined(instance_id=self.id, name=self.name))

    def _beat(self) -> bool:
        sent = self._clock.monotonic()
        alive = self._store.members.heartbeat(
            self.id, lifetime_us=self._lifetime_us, handlers=self._handlers(), draining=self.draining
        )
        if alive:
            self._trusted_until = sent + self._lifetime_us - self._margin_us
        return alive

    def _give_up(self) -> None:
        self._trusted_until = 0
        self._bus.publish(InstanceGivenUp(instance_id=self.id, name=self.name))
        self.joined = False
        self._instance = self._fresh()
        self.on_given_up()

    def _fresh(self) -> Instance:
        host = socket.gethostname()
        return Instance(
            id=uuid.uuid4().hex,
            namespace=self._settings.namespace,
            name=self._settings.name or f"{host}-{os.getpid()}",
            host=host,
            pid=os.getpid(),
            version=self._version,
            state=InstanceState.ACTIVE,
            execute=Execute(self._settings.execute).value,
            labels=self._settings.labels,
            handlers=tuple(self._handlers()),
            started_at=0,
            heartbeat_at=0,
            expires_at=0,
        )
