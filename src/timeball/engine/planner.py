"""Planning: ticks of the near future become runs. Only the leader does it; nobody else computes an instant."""

from __future__ import annotations

import logging
from collections.abc import Callable

from timeball.clock import ClusterClock, seconds_to_us
from timeball.engine.definitions import DefinitionCache, placement_of
from timeball.engine.follower import plan_following
from timeball.engine.lease import LeaseKeeper
from timeball.engine.replanner import Replanner
from timeball.engine.rewinder import Rewinder
from timeball.errors import InvalidInput, StoreError, UnknownField
from timeball.events.bus import Bus
from timeball.events.facts import JobBroken, TicksMissed
from timeball.model.cluster import Term
from timeball.model.job import Definition
from timeball.policy.jitter import ready_at
from timeball.policy.misfire import catch_up_by, keep_count, start_by
from timeball.schedule import Schedule, tzdata_version
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.plans import DueJob, JobPlan, LastRun, PlannedTick
from timeball.store.schema import NO_LIMIT

_log = logging.getLogger("timeball.engine")
PLAN_AHEAD = 1 / 3
"""How much beyond the horizon one pass plans, as a part of it: so that a frequent job is not touched every pass."""


class Planner:
    """Turns due jobs into plans and has the store write them."""

    def __init__(
        self,
        store: Store,
        clock: ClusterClock,
        settings: Settings,
        lease: LeaseKeeper,
        definitions: DefinitionCache,
        bus: Bus,
        handler_of: Callable[[Definition], str],
        others_differ: Callable[[], bool],
    ) -> None:
        """`others_differ`: whether another member runs another version of the program."""
        self._store = store
        self._clock = clock
        self._settings = settings
        self._lease = lease
        self._others_differ = others_differ
        self._definitions = definitions
        self._bus = bus
        self._handler_of = handler_of
        self._replanner = Replanner(store, clock, bus, handler_of)
        self._rewinder = Rewinder(store, clock, settings, bus, handler_of)
        self._replanned_epoch: int | None = None
        self._rewound: tuple[int, int] | None = None
        self._horizon_us = seconds_to_us(settings.horizon_seconds)

    def step(self) -> float:
        """Plan one batch of jobs, if we lead. Returns seconds until the next pass; 0 when there is more.

        Raises UnknownField after all others are planned: another instance can read that job and should lead.
        """
        term = self._lease.term()
        if term is None:
            return self._settings.plan_interval_seconds
        if self._replanned_epoch != term.epoch:
            self._replanner.run(term)
            self._replanned_epoch = term.epoch
        seen = (term.epoch, self._clock.steps_back)
        if self._rewound != seen:
            self._rewinder.run(term)
            self._rewound = seen
        now = self._clock.now()
        due = self._store.plans.due(term.namespace, until=now + self._horizon_us, limit=self._settings.plan_batch_max)
        # Asks too much rather than too little: most jobs follow no run, and their texts are not parsed for that.
        following = [job.id for job in due if "@after" in job.definition.casefold()]
        last = self._store.plans.last_runs(following)
        unknown: list[UnknownField] = []
        plans = [plan for job in due if (plan := self._plan(term, job, now, last.get(job.id), unknown)) is not None]
        if plans:
            self._store.plans.write(term, plans, tzdata=tzdata_version())
            self._tell(due, plans)
        if unknown:
            raise unknown[0]
        more = len(due) == self._settings.plan_batch_max or any(_behind(p, now + self._horizon_us) for p in plans)
        return 0 if more else self._settings.plan_interval_seconds

    def _plan(
        self, term: Term, job: DueJob, now: int, last: LastRun | None, unknown: list[UnknownField]
    ) -> JobPlan | None:
        try:
            definition = self._definitions.of_text(job.id, job.version, job.name, job.definition)
            schedule = self._definitions.schedule(job.id, job.version, definition, job.name, job.anchor_at)
            until = now + int(self._horizon_us * (1 + PLAN_AHEAD))
            handler, requires = placement_of(definition, self._handler_of)
            ticks, cursor, next_due_at = self._ticks(schedule, definition, job, last, now=now, until=until)
        except InvalidInput as error:
            if isinstance(error, UnknownField) and self._others_differ():
                unknown.append(error.about(f"job {job.name!r}, of another version of Timeball"))
                return None
            return self._set_aside(term, job, str(error))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - one job's trouble must not stop the plans of all others
            _log.exception("job %s cannot be planned", job.name)
            return self._set_aside(term, job, f"it cannot be planned: {type(error).__name__}: {error}")
        return JobPlan(
            job_id=job.id,
            version=job.version,
            cursor_before=job.cursor_at,
            cursor_after=cursor,
            next_due_at=next_due_at,
            handler=handler,
            requires=requires,
            priority=definition.priority,
            exclusive=definition.exclusive,
            ticks=ticks,
        )

    def _ticks(
        self,
        schedule: Schedule,
        definition: Definition,
        job: DueJob,
        last: LastRun | None,
        *,
        now: int,
        until: int,
    ) -> tuple[list[PlannedTick], int, int | None]:
        if schedule.follows_runs is not None:
            return plan_following(schedule, definition, job, last, now=now, until=until, horizon_us=self._horizon_us)
        ticks, cursor = plan_ticks(
            schedule, definition, job, now=now, until=until, ticks_max=self._settings.planned_per_job_max
        )
        return ticks, cursor, schedule.next_after(cursor)

    def _set_aside(self, term: Term, job: DueJob, problem: str) -> None:
        self._store.plans.mark_broken(term, job, problem)
        self._bus.publish(JobBroken(job=job.name, problem=problem))

    def _tell(self, due: list[DueJob], plans: list[JobPlan]) -> None:
        names = {job.id: job.name for job in due}
        for plan in plans:
            missed = sum(tick.ticks for tick in plan.ticks if tick.missed)
            if missed:
                self._bus.publish(TicksMissed(job=names[plan.job_id], count=missed, reason="misfire"))


def plan_ticks(
    schedule: Schedule, definition: Definition, job: DueJob, *, now: int, until: int, ticks_max: int
) -> tuple[list[PlannedTick], int]:
    """The ticks of one job from its cursor up to `until`, and where the cursor then stands. Pure.

    What misfired is decided by policy: the missed become one stretch with a count, what is kept may start late.
    At most `ticks_max` coming ticks; the cursor then stands at the last of them, and planning goes on from there.
    """
    misfired_until = now - (start_by(definition, 0) + 1)
    planned: list[PlannedTick] = []
    cursor = job.cursor_at
    if job.next_due_at <= misfired_until:
        planned = _misfired(schedule, definition, job, now=now, until=misfired_until)
        cursor = misfired_until
    coming = schedule.between(cursor, until, ticks_max)
    planned += [
        PlannedTick(due_at=due, start_by=start_by(definition, due), ready_at=ready_at(definition, job.id, due))
        for due in coming
    ]
    return planned, coming[-1] if len(coming) == ticks_max else max(until, job.cursor_at)


def _misfired(schedule: Schedule, definition: Definition, job: DueJob, *, now: int, until: int) -> list[PlannedTick]:
    count = schedule.count_between(job.cursor_at, until)
    following = schedule.next_after(until)
    keep = keep_count(definition, count, later_overdue=following is not None and following <= now)
    kept: list[int] = []
    edge = until + 1
    while len(kept) < keep and (previous := schedule.previous_before(edge)) is not None:
        kept.append(previous)
        edge = previous
    in_time = [due for due in reversed(kept) if catch_up_by(definition, due, NO_LIMIT) >= now]
    edge = in_time[0] if in_time else until + 1
    planned = [
        PlannedTick(
            due_at=due, start_by=catch_up_by(definition, due, NO_LIMIT), ready_at=ready_at(definition, job.id, due)
        )
        for due in in_time
    ]
    missed = count - len(in_time)
    if missed:
        last = schedule.previous_before(edge)
        assert last is not None, "ticks were counted that cannot be found"
        planned.insert(0, _stretch(definition, job.next_due_at, last, missed))
    return planned


def _stretch(definition: Definition, first: int, last: int, count: int) -> PlannedTick:
    return PlannedTick(
        due_at=first,
        start_by=first,
        missed=True,
        last_due_at=last if count > 1 else None,
        ticks=count,
        reason=f"misfire: nobody planned it in time; policy {definition.misfire}",
    )


def _behind(plan: JobPlan, horizon: int) -> bool:
    return plan.next_due_at is not None and plan.next_due_at <= horizon
