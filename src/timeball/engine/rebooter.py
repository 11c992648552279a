"""Starts of the cluster: the leader says whether a join was one, and plans one run of each `@reboot` job."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from timeball.engine.definitions import placement_of
from timeball.errors import InvalidInput, UnknownField
from timeball.events.bus import Bus
from timeball.events.facts import ClusterStarted, JobBroken
from timeball.model.cluster import Term
from timeball.model.job import Definition
from timeball.policy.jitter import ready_at
from timeball.policy.misfire import start_by
from timeball.schedule import schedule_of, tzdata_version
from timeball.store import Store
from timeball.store.plans import DueJob, JobPlan, PlannedTick
from timeball.store.reboots import BrokenJob


class Rebooter:
    """One question to the store a pass; nearly always there is nothing to answer."""

    def __init__(
        self, store: Store, bus: Bus, handler_of: Callable[[Definition], str], others_differ: Callable[[], bool]
    ) -> None:
        self._store = store
        self._bus = bus
        self._handler_of = handler_of
        self._others_differ = others_differ

    def run(self, term: Term) -> None:
        """Answer what can be answered. Raises UnknownField when another instance can read a job and should lead."""
        if not self._store.reboots.asked(term.namespace):
            return
        broken: list[BrokenJob] = []
        others_differ = self._others_differ()

        def decide(jobs: Sequence[DueJob], at: int) -> tuple[list[JobPlan], list[BrokenJob]]:
            broken.clear()  # it may be asked again
            plans = [self._plan(job, at, broken, others_differ=others_differ) for job in jobs]
            return [plan for plan in plans if plan is not None], broken

        at = self._store.reboots.judge(term, decide, tzdata=tzdata_version())
        if at is not None:
            self._bus.publish(ClusterStarted(at_us=at))
            for case in broken:
                self._bus.publish(JobBroken(job=case.job.name, problem=case.problem))

    def _plan(self, job: DueJob, at: int, broken: list[BrokenJob], *, others_differ: bool) -> JobPlan | None:
        try:
            return plan_reboot(job, at, self._handler_of)
        except InvalidInput as error:
            if isinstance(error, UnknownField) and others_differ:
                raise error.about(f"job {job.name!r}, of another version of Timeball") from None
            broken.append(BrokenJob(job=job, problem=str(error)))
            return None


def plan_reboot(job: DueJob, at: int, handler_of: Callable[[Definition], str]) -> JobPlan | None:
    """One run of a job at a start of the cluster, or None when its schedule has no tick then. Raises InvalidInput."""
    definition = Definition.from_json(job.definition)
    if not schedule_of(definition, name=job.name, anchor_at=job.anchor_at).fires_at_reboot(at):
        return None
    handler, requires = placement_of(definition, handler_of)
    tick = PlannedTick(due_at=at, start_by=start_by(definition, at), ready_at=ready_at(definition, job.id, at))
    return JobPlan(
        job_id=job.id,
        version=job.version,
        cursor_before=job.cursor_at,
        cursor_after=at,
        next_due_at=None,
        handler=handler,
        requires=requires,
        priority=definition.priority,
        exclusive=definition.exclusive,
        ticks=[tick],
    )
