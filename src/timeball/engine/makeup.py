"""What becomes due by itself besides ticks: the next runs of backfills, and pauses that have run out. Leader only."""

from __future__ import annotations

from collections.abc import Callable

from timeball.engine.definitions import placement_of
from timeball.engine.lease import LeaseKeeper
from timeball.errors import InvalidInput, NotFound
from timeball.model.cluster import Term
from timeball.model.job import Definition, Job, JobState
from timeball.schedule import schedule_of
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.changes import Change
from timeball.store.jobs import NewTimes, Placement

BUSY_SECONDS = 0.25


class Makeup:
    """One look a poll, while this instance leads."""

    def __init__(
        self, store: Store, settings: Settings, lease: LeaseKeeper, handler_of: Callable[[Definition], str]
    ) -> None:
        self._store = store
        self._poll_seconds = settings.poll_seconds
        self._lease = lease
        self._handler_of = handler_of

    def step(self) -> float:
        """Let runs go and resume jobs. Returns seconds until the next look."""
        term = self._lease.term()
        if term is None:
            return self._poll_seconds
        for job in self._store.jobs.to_resume(term.namespace):
            self._resume(term, job)
        busy = self._store.backfills.pump(term)
        return min(BUSY_SECONDS, self._poll_seconds) if busy else self._poll_seconds

    def _resume(self, term: Term, job: Job) -> None:
        handler, requires = placement_of(job.definition, self._handler_of)
        placement = Placement(handler=handler, requires=requires)

        def decide(locked: Job, _declared: str | None) -> Change | None:
            if locked.state is not JobState.PAUSED or locked.version != job.version:
                return None
            return Change(
                kind="resumed",
                state=JobState.ACTIVE,
                definition=locked.definition,
                placement=placement,
                times=lambda boundary: _times(locked, boundary),
                unplanned=lambda _: None,
                cancel_pending=False,
            )

        try:
            self._store.changes.change(term.namespace, job.name, decide, actor="the end of its pause")
        except (InvalidInput, NotFound):
            return  # its definition cannot be read, or it was deleted meanwhile


def _times(job: Job, boundary: int) -> NewTimes:
    schedule = schedule_of(job.definition, name=job.name, anchor_at=job.anchor_at)
    anchor = boundary if schedule.follows_runs is not None else job.anchor_at
    schedule = schedule_of(job.definition, name=job.name, anchor_at=anchor)
    return NewTimes(cursor_at=boundary, next_due_at=schedule.next_after(boundary), anchor_at=anchor)
