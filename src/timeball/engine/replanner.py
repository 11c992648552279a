"""Planning anew when the time zone database has changed: coming ticks move, nothing in the past fires (design §6).

The leader's version counts, since only the leader writes instants; the others take them from the rows.
"""

from __future__ import annotations

from collections.abc import Callable

from timeball.clock import ClusterClock
from timeball.engine.definitions import placement_of
from timeball.errors import InvalidInput, NotFound
from timeball.events.bus import Bus
from timeball.events.facts import JobReplanned
from timeball.model.cluster import Term
from timeball.model.job import Definition, Job
from timeball.schedule import Schedule, schedule_of, tzdata_version
from timeball.store import Store
from timeball.store.changes import Change
from timeball.store.jobs import NewTimes, Placement
from timeball.store.schema import NO_LIMIT

JOBS_PER_READ = 500
TOLD_MAX = 10


class Replanner:
    """Compares what is planned with what this host's rules say, once a term."""

    def __init__(
        self, store: Store, clock: ClusterClock, bus: Bus, handler_of: Callable[[Definition], str], tzdata: str = ""
    ) -> None:
        self._store = store
        self._clock = clock
        self._bus = bus
        self._handler_of = handler_of
        self._tzdata = tzdata or tzdata_version()

    def run(self, term: Term) -> int:
        """Go through all jobs that were planned with another version; how many jobs had ticks moved. Safe to repeat."""
        after_id, moved = 0, 0
        while jobs := self._store.jobs.planned_with_other_tzdata(
            term.namespace, self._tzdata, after_id=after_id, limit=JOBS_PER_READ
        ):
            after_id = jobs[-1].id
            now = self._clock.now()
            coming = self._store.plans.coming([job.id for job in jobs], after=now)
            checked: list[int] = []
            for job in jobs:
                try:
                    planned = [due for due in coming[job.id] if due <= job.cursor_at]  # not what is skipped far ahead
                    moved += self._check(term, job, now, planned)
                except InvalidInput:
                    continue  # the planner sets it aside and says why
                except NotFound:
                    continue  # deleted meanwhile
                checked.append(job.id)
            self._store.plans.adopt_tzdata(term, checked, tzdata=self._tzdata)
        return moved

    def _check(self, term: Term, job: Job, now: int, planned: list[int]) -> int:
        schedule = schedule_of(job.definition, name=job.name, anchor_at=job.anchor_at)
        if schedule.follows_runs is not None:
            return 0  # no zone plays a part
        if job.next_due_at is not None and job.next_due_at <= now:
            return 0  # overdue: the planner goes on from the cursor, and the misfire policy decides
        right = schedule.between(now, job.cursor_at, len(planned) + TOLD_MAX)
        if right == planned and schedule.next_after(job.cursor_at) == job.next_due_at:
            return 0
        handler, requires = placement_of(job.definition, self._handler_of)
        placement = Placement(handler=handler, requires=requires)

        def decide(locked: Job, _declared: str | None) -> Change | None:
            if locked.version != job.version:
                return None  # whoever changed it has planned it anew
            return Change(
                kind="replanned",
                state=locked.state,
                definition=locked.definition,
                placement=placement,
                times=lambda boundary: _times(schedule, boundary, locked.anchor_at),
                unplanned=lambda _: None,
                cancel_pending=False,
            )

        if not self._store.changes.change(term.namespace, job.name, decide, actor=f"tzdata {self._tzdata}").changed:
            return 0
        before = (*planned, *([] if job.next_due_at is None else [job.next_due_at]))
        self._bus.publish(
            JobReplanned(
                job=job.name,
                tzdata=self._tzdata,
                before=before[:TOLD_MAX],
                after=tuple(schedule.between(now, NO_LIMIT, min(len(before), TOLD_MAX))),
            )
        )
        return 1


def _times(schedule: Schedule, boundary: int, anchor_at: int) -> NewTimes:
    return NewTimes(cursor_at=boundary, next_due_at=schedule.next_after(boundary), anchor_at=anchor_at)
