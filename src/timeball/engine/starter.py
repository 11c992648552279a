"""Starting: at the due instant one batched commit moves claims to running; only what it returns is executed.

The commit is issued early by the time that such commits have taken, so that the work begins on the dot. Work never
begins before its instant: the runner holds it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator

from timeball.clock import ClusterClock, seconds_to_us
from timeball.engine.definitions import DefinitionCache
from timeball.engine.held import HeldClaims
from timeball.engine.lease import LeaseKeeper
from timeball.engine.member import Member
from timeball.engine.runner import Runner
from timeball.events.bus import Bus
from timeball.events.facts import RunSkipped
from timeball.model.cluster import Execute
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.claims import Claim

WAIT_TURN_US = 50_000
IDLE_SECONDS = 1.0
BATCH_MAX = 1000


class LeadTime:
    """How early to issue a start: learned from how long the last ones took, by batch and by row, microseconds."""

    def __init__(self, max_us: int) -> None:
        self._max_us = max_us
        self._batch_us = 3_000.0
        self._row_us = 30.0

    def of(self, count: int) -> int:
        """For a batch of so many."""
        return min(self._max_us, int(1.5 * (self._batch_us + self._row_us * count)))

    def learn(self, count: int, took_us: int) -> None:
        """From one commit."""
        if count >= 50:
            self._row_us += 0.3 * (max(0.0, took_us - self._batch_us) / count - self._row_us)
        elif count:
            self._batch_us += 0.2 * (took_us - self._batch_us)


class StartGate:
    """One start at a time in this process, so that after an unknown commit the ledger can be compared with memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.doubtful = False

    @contextlib.contextmanager
    def starting(self) -> Generator[None]:
        """Around a commit that starts runs and the taking over of what it returned."""
        with self._lock:
            try:
                yield
            except Exception:
                self.doubtful = True
                raise


class Starter:
    """Empties the hand at the right moments."""

    def __init__(
        self,
        store: Store,
        clock: ClusterClock,
        settings: Settings,
        member: Member,
        lease: LeaseKeeper,
        held: HeldClaims,
        runner: Runner,
        definitions: DefinitionCache,
        gate: StartGate,
        bus: Bus,
        on_room: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._member = member
        self._lease = lease
        self._held = held
        self._runner = runner
        self._definitions = definitions
        self._gate = gate
        self._bus = bus
        self._on_room = on_room
        self._lead_max_us = seconds_to_us(settings.start_lead_max_seconds)
        self.lead = LeadTime(self._lead_max_us)

    def step(self) -> float:
        """Start one batch of what is due. Returns seconds until the next is."""
        if self._gate.doubtful:
            self._recover()
        if self._held.next_at() is None or not self._member.joined:
            return IDLE_SECONDS
        now = self._clock.now()
        lead = self.lead.of(self._held.count_until(now + self._lead_max_us))
        claims = self._held.pop_until(now + lead, BATCH_MAX)
        if claims:
            self._start(claims, now)
        return self._pause()

    def _recover(self) -> None:
        """After a start whose commit is unknown: what the ledger says is running here, and is not, begins now."""
        with self._gate.starting():
            known_before = self._runner.known()
            owner = self._member.id
            mine = self._store.starts.mine(owner)
            forgotten = [s for s in mine if (s.run_id, s.attempt) not in known_before]
            known = self._definitions.load((s.job_id, s.job_version) for s in forgotten)
            self._runner.accept(forgotten, known, owner=owner)
            self._gate.doubtful = False

    def _pause(self) -> float:
        next_at = self._held.next_at()
        if next_at is None:
            return IDLE_SECONDS
        lead = self.lead.of(self._held.count_until(next_at))
        return min(IDLE_SECONDS, max(0.0, (next_at - lead - self._clock.now()) / 1e6))

    def _start(self, claims: list[Claim], now: int) -> None:
        live = [c for c in claims if c.deadline_at > now]  # the others may be anybody's by now
        if not live or not self._member.trusted:
            return
        term = self._lease.term()
        if self._settings.execute == Execute.LEADER and term is None:
            return
        known = self._definitions.load((c.job_id, c.job_version) for c in live)
        live = [c for c in live if (c.job_id, c.job_version) in known]
        sent = self._clock.monotonic()
        owner = self._member.id
        with self._gate.starting():
            result = self._store.starts.start(
                owner,
                live,
                {pair: entry.definition for pair, entry in known.items()},
                lead_us=self._lead_max_us,
                prefetch_us=seconds_to_us(self._settings.prefetch_seconds),
                term=term if self._settings.execute == Execute.LEADER else None,
            )
            self._runner.accept(result.started, known, owner=owner)
        self.lead.learn(len(live), self._clock.monotonic() - sent)
        for claim in live:
            if claim.run_id in result.waiting:
                self._held.put_back(claim, now + WAIT_TURN_US)
        names = {claim.run_id: known[claim.job_id, claim.job_version].name for claim in live}
        for run_id, reason in result.skipped.items():
            self._bus.publish(RunSkipped(run_id=run_id, job=names[run_id], reason=reason))
        self._on_room()
