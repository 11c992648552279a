"""Settling: outcomes are kept until the ledger has them, and written in batches."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from timeball.clock import ClusterClock
from timeball.engine.member import Member
from timeball.engine.spill import Spill
from timeball.errors import Busy, SchemaMismatch, Unavailable
from timeball.events.bus import Bus
from timeball.events.facts import RunEnded, RunSuperseded
from timeball.model.job import Definition
from timeball.model.run import Outcome, Work
from timeball.model.states import State
from timeball.policy.isolation import again_at
from timeball.policy.lost import lost_again_at
from timeball.policy.retry import no_more_words, retry_at
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.schema import REASON_CHARS_MAX
from timeball.store.settles import Ending

IDLE_SECONDS = 1.0
TEXT_CHARS_MAX = 8000
_log = logging.getLogger("timeball.engine")

Item = tuple[Work, Definition, Outcome]


class Settler:
    """A queue of outcomes and the step that writes its head. What cannot be written yet stays."""

    def __init__(
        self,
        store: Store,
        clock: ClusterClock,
        settings: Settings,
        member: Member,
        bus: Bus,
        on_settled: Callable[[], None],
        spill: Spill,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._member = member
        self._bus = bus
        self._on_settled = on_settled
        self._spill = spill
        self._spilled = 0
        self._lock = threading.Lock()
        self._queue: deque[Item] = deque()
        self._keys: set[tuple[int, int]] = set()
        self.on_outcome: Callable[[], None] = lambda: None
        self.closed = False

    def __len__(self) -> int:
        """How many outcomes are not in the ledger yet."""
        return len(self._queue) + self._spilled

    @property
    def waiting(self) -> int:
        """How many of them are in memory only."""
        return len(self._queue)

    @property
    def spilled(self) -> int:
        """How many of them are on disk."""
        return self._spilled

    def put(self, work: Work, definition: Definition, outcome: Outcome) -> None:
        """Take an outcome; returns at once."""
        with self._lock:
            if self.closed:
                return
            self._queue.append((work, definition, outcome))
            self._keys.add((outcome.run_id, outcome.attempt))
        self.on_outcome()

    def unsettled(self) -> frozenset[tuple[int, int]]:
        """Run and attempt of what is not in the ledger yet."""
        with self._lock:
            return frozenset(self._keys)

    @property
    def full(self) -> bool:
        """Whether so much waits that nothing new should begin."""
        return len(self) >= self._settings.settle_queue_max

    def step(self) -> float:
        """Write one batch. Returns seconds until the next; 0 when there is more. A batch that fails stays first."""
        with self._lock:
            batch = [self._queue[i] for i in range(min(len(self._queue), self._settings.settle_batch_max))]
        if self._member.refusal is not None:  # they wait, as they do for a database that is away
            if len(self._queue) > self._settings.spill_queue_max:
                self.spill_all()
            return IDLE_SECONDS
        if not batch:
            self._settle_spilled()
            return IDLE_SECONDS
        endings = self._endings(batch)
        try:
            accepted = self.write(endings, self._member.id)
        except Unavailable:
            if len(self._queue) > self._settings.spill_queue_max:
                self.spill_all()
            raise
        with self._lock:
            for item in batch:
                work = item[0]
                if self._queue and self._queue[0] is item:  # else it was put on disk while the database took its time
                    self._queue.popleft()
                self._keys.discard((work.run_id, work.attempt))
        self._on_settled()
        self._tell(batch, endings, accepted)
        return 0 if self._queue else IDLE_SECONDS

    def spill_all(self) -> None:
        """Put what waits in memory on disk. Where that cannot be done it stays in memory, and that is told."""
        with self._lock:
            items = list(self._queue)
        if not items:
            return
        try:
            path = self._spill.append(self._member.id, self._endings(items))
        except OSError as error:
            _log.error("%d outcomes cannot be put on disk and wait in memory: %s", len(items), error)
            return
        with self._lock:
            for _ in items:  # new ones come in behind them
                self._queue.popleft()
            self._spilled += len(items)
        _log.warning("the database is away: %d outcomes wait in %s", len(items), path)

    def _settle_spilled(self) -> None:
        file = self._spill.own
        if file is None:
            return
        endings, most = file.read(), self._settings.settle_batch_max
        for begin in range(0, len(endings), most):
            self.write(endings[begin : begin + most], file.instance_id)
        with self._lock:
            self._keys -= {(ending.run_id, ending.attempt) for ending in endings}
            self._spilled = 0
        self._spill.done()
        _log.info("wrote %d outcomes that waited on disk", len(endings))
        self._on_settled()

    def write(self, endings: Sequence[Ending], instance_id: str) -> frozenset[int]:
        """The batch; where the database refuses it, each for itself, so that one bad outcome holds up no other."""
        try:
            return self._settle(endings, instance_id)
        except (Busy, Unavailable, SchemaMismatch):
            raise
        except Exception as error:  # noqa: BLE001 - whatever refuses it, the others must be written
            if len(endings) > 1:
                return frozenset().union(*(self.write([ending], instance_id) for ending in endings))
            _log.exception("run %d: its outcome cannot be stored as it is", endings[0].run_id)
            words = f"its outcome could not be stored: {type(error).__name__}"
            bare = endings[0]._replace(error=words, reason=None, result=None, outputs=())
            return self._settle([bare], instance_id)

    def _settle(self, endings: Sequence[Ending], instance_id: str) -> frozenset[int]:
        return self._store.settles.settle(endings, namespace=self._settings.namespace, instance_id=instance_id)

    def _endings(self, batch: Sequence[Item]) -> list[Ending]:
        at = self._clock.at
        return [
            Ending(
                run_id=outcome.run_id,
                job_id=work.job_id,
                attempt=outcome.attempt,
                fence=outcome.fence,
                state=outcome.state.value,
                begun_at=at(outcome.begun_at),
                ended_at=at(outcome.ended_at),
                reason=_storable(outcome.reason, REASON_CHARS_MAX),
                error=_storable(_error(definition, outcome)),
                result=_storable(outcome.result),
                retry_at=_next_at(definition, outcome, at(outcome.ended_at)),
                outputs=outcome.outputs,
            )
            for work, definition, outcome in batch
        ]

    def _tell(self, batch: Sequence[Item], endings: Sequence[Ending], accepted: frozenset[int]) -> None:
        for (work, _, outcome), ending in zip(batch, endings, strict=True):
            if ending.run_id not in accepted:
                self._bus.publish(RunSuperseded(run_id=work.run_id, job=work.job, attempt=work.attempt))
                continue
            self._bus.publish(
                RunEnded(
                    run_id=work.run_id,
                    job=work.job,
                    attempt=work.attempt,
                    state=ending.state,
                    reason=ending.reason,
                    error=ending.error,
                    duration_us=outcome.ended_at - outcome.begun_at,
                    retried=ending.retry_at is not None,
                )
            )


def _next_at(definition: Definition, outcome: Outcome, ended_at: int) -> int | None:
    if outcome.state is State.CANCELLED:
        return again_at(definition, reason=outcome.reason, attempt=outcome.attempt, ended_at=ended_at)
    if outcome.state is State.LOST:
        return lost_again_at(definition, attempt=outcome.attempt, ended_at=ended_at)
    return retry_at(definition, outcome, ended_at=ended_at)


def _error(definition: Definition, outcome: Outcome) -> str | None:
    return None if outcome.error is None else outcome.error + no_more_words(definition, outcome)


def _storable(text: str | None, chars_max: int = TEXT_CHARS_MAX) -> str | None:
    """Text that every database takes: no NUL, no half of a surrogate pair (file names have them), bounded."""
    if text is None:
        return None
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")[:chars_max]
