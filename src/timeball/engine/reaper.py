"""Reaping: the leader gives dead instances up, and their runs and misfired ticks get their fate."""

from __future__ import annotations

from collections.abc import Callable

from timeball.clock import ClusterClock
from timeball.engine.lease import LeaseKeeper
from timeball.engine.rebooter import Rebooter
from timeball.errors import InvalidInput, UnknownField
from timeball.events.bus import Bus
from timeball.events.facts import InstancesExpired, RunsLost, TicksMissed
from timeball.model.cluster import Term
from timeball.model.job import Definition, Misfire, Overlap
from timeball.policy.lost import LostVerdict, decide_lost
from timeball.policy.misfire import catch_up_by, keep_count, split_kept, start_by
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.reaps import LostRun, MisfireVerdict, Orphan, OverdueJob
from timeball.store.schema import NO_LIMIT

ORPHANS_MAX = 200


class Reaper:
    """One pass: members, their runs, starts of the cluster, misfires; each a transaction with the term's proof."""

    def __init__(
        self,
        store: Store,
        clock: ClusterClock,
        settings: Settings,
        lease: LeaseKeeper,
        bus: Bus,
        others_differ: Callable[[], bool],
        rebooter: Rebooter,
    ) -> None:
        """`others_differ`: whether another member runs another version of the program."""
        self._store = store
        self._clock = clock
        self._settings = settings
        self._lease = lease
        self._bus = bus
        self._others_differ = others_differ
        self._rebooter = rebooter
        self._unknown: UnknownField | None = None

    def step(self) -> float:
        """One pass, if we lead. Returns seconds until the next; 0 when there is more.

        Raises UnknownField after all others have their fate: another instance can read that job and should lead.
        """
        term = self._lease.term()
        if term is None or not self._lease.reaching():
            return self._settings.reap_interval_seconds
        self._unknown = None
        names = self._store.reaps.expire_members(term)
        if names:
            self._bus.publish(InstancesExpired(names=tuple(names)))
        more = self._lose(term)
        if not more:
            self._rebooter.run(term)
        now = self._clock.now()
        self._store.reaps.resolve_misfires(term, lambda job: self._misfire(job, now))
        if self._unknown is not None:
            raise self._unknown
        return 0 if more else self._settings.reap_interval_seconds

    def _lose(self, term: Term) -> bool:
        orphans = self._store.reaps.orphans(term, limit=ORPHANS_MAX)
        if not orphans:
            return False
        losses: list[LostRun] = []
        for orphan in orphans:
            if self._left_to_others(orphan.definition):
                continue
            verdict = _verdict(orphan)
            losses.append(LostRun(orphan=orphan, rerun=verdict.rerun, reason=verdict.reason[:200]))
        if losses and self._store.reaps.lose(term, losses):
            run_ids = tuple(loss.orphan.run_id for loss in losses)
            self._bus.publish(RunsLost(run_ids=run_ids, rerun=sum(loss.rerun for loss in losses)))
        return len(losses) == ORPHANS_MAX

    def _left_to_others(self, definition: str) -> bool:
        """Whether this version of the program cannot judge a job that another member may know."""
        try:
            Definition.from_json(definition)
        except UnknownField as error:
            if self._others_differ():
                self._unknown = error.about("a job of another version of Timeball")
                return True
        except InvalidInput:
            pass
        return False

    def _misfire(self, job: OverdueJob, now: int) -> MisfireVerdict:
        if self._left_to_others(job.definition):
            return MisfireVerdict(missed=(), kept=(), reason="")
        verdict = decide_misfires(job, now)
        missed = len(verdict.missed) + len(verdict.superseded)
        if missed:
            self._bus.publish(TicksMissed(job=str(job.job_id), count=missed, reason=verdict.reason))
        return verdict


def decide_misfires(job: OverdueJob, now: int) -> MisfireVerdict:
    """What becomes of a job's planned ticks that nobody started in time. Pure."""
    try:
        definition = Definition.from_json(job.definition)
    except InvalidInput as error:
        missed = [run_id for run_id, _, limit in job.rows if limit < now]
        return MisfireVerdict(missed=missed, kept=(), reason=f"misfire: the definition is broken: {error}"[:200])
    misfired = [(due, run_id) for run_id, due, limit in job.rows if limit < now]
    last = misfired[-1][0] if misfired else 0
    later = any(due > last for _, due, _ in job.rows)
    keep = keep_count(definition, len(misfired), later_overdue=later)
    missed, kept = split_kept([due for due, _ in misfired], keep)
    late = [due for due in kept if catch_up_by(definition, due, NO_LIMIT) < now]
    given_up = {*missed, *late}
    return MisfireVerdict(
        missed=[run_id for due, run_id in misfired if due in given_up],
        kept=[(run_id, catch_up_by(definition, due, NO_LIMIT)) for due, run_id in misfired if due not in given_up],
        reason=f"misfire: nobody could start it in time; policy {definition.misfire}",
        superseded=_superseded(definition, job, last),
    )


def _superseded(definition: Definition, job: OverdueJob, last: int) -> list[int]:
    """Runs that were kept by `run_once` when they misfired, and wait still now that a later tick has misfired too."""
    if definition.misfire != Misfire.RUN_ONCE or definition.overlap == Overlap.QUEUE:
        return []
    return [run_id for run_id, due, limit in job.rows if due < last and limit > start_by(definition, due)]


def _verdict(orphan: Orphan) -> LostVerdict:
    try:
        definition = Definition.from_json(orphan.definition)
    except InvalidInput as error:
        return LostVerdict(rerun=False, reason=f"instance {orphan.instance} disappeared; definition broken: {error}")
    return decide_lost(definition, lost_count=orphan.lost_count, instance=orphan.instance)
