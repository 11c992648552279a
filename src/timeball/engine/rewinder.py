"""After the database's clock went back: cursors that lie in its future come back to now, so that no stall follows.

While it was wrong, ticks of hours ahead may have become runs, and others were noted as missed. What ran stays recorded
and is not repeated; what was only missed or planned is taken back and comes again at its time.
"""

from __future__ import annotations

from collections.abc import Callable

from timeball.clock import ClusterClock, seconds_to_us
from timeball.engine.definitions import placement_of
from timeball.errors import InvalidInput, NotFound
from timeball.events.bus import Bus
from timeball.events.facts import JobRewound
from timeball.model.cluster import Term
from timeball.model.job import Definition, Job
from timeball.schedule import schedule_of
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.changes import Change
from timeball.store.jobs import NewTimes, Placement
from timeball.store.rewinds import Rewind

JOBS_PER_READ = 500


class Rewinder:
    """Looks at all jobs: once a term, and whenever the clock is seen to go back."""

    def __init__(
        self,
        store: Store,
        clock: ClusterClock,
        settings: Settings,
        bus: Bus,
        handler_of: Callable[[Definition], str],
    ) -> None:
        self._store = store
        self._clock = clock
        self._bus = bus
        self._handler_of = handler_of
        self._reach_us = 2 * seconds_to_us(settings.horizon_seconds)
        """No leader with these settings plans further ahead; one with others would only be planned after again."""

    def run(self, term: Term) -> int:
        """Bring every cursor back that is further ahead than planning reaches; how many. Safe to repeat."""
        after_id, rewound = 0, 0
        while jobs := self._store.jobs.planned_beyond(
            term.namespace, self._clock.now() + self._reach_us, after_id=after_id, limit=JOBS_PER_READ
        ):
            after_id = jobs[-1].id
            for job in jobs:
                try:
                    rewound += self._rewind(term, job)
                except (InvalidInput, NotFound):
                    continue  # the planner sets it aside and says why; or it was deleted meanwhile
        return rewound

    def _rewind(self, term: Term, job: Job) -> bool:
        handler, requires = placement_of(job.definition, self._handler_of)
        placement = Placement(handler=handler, requires=requires)

        def decide(locked: Job, _declared: str | None) -> Change | None:
            if locked.version != job.version or locked.cursor_at != job.cursor_at:
                return None
            schedule = schedule_of(locked.definition, name=locked.name, anchor_at=locked.anchor_at)
            return Change(
                kind="rewound",
                state=locked.state,
                definition=locked.definition,
                placement=placement,
                times=lambda boundary: _times(locked, boundary),
                unplanned=lambda _: None,
                cancel_pending=False,
                rewind=Rewind(count=schedule.count_between, last=lambda at: schedule.previous_before(at + 1)),
            )

        result = self._store.changes.change(term.namespace, job.name, decide, actor="clock")
        if result.changed:
            self._bus.publish(JobRewound(job=job.name, by_us=job.cursor_at - result.at))
        return result.changed


def _times(job: Job, boundary: int) -> NewTimes:
    anchor = min(job.anchor_at, boundary)  # an interval that was begun in the future begins now
    schedule = schedule_of(job.definition, name=job.name, anchor_at=anchor)
    return NewTimes(cursor_at=boundary, next_due_at=schedule.next_after(boundary), anchor_at=anchor)
