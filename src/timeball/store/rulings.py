"""What a person decides about one run: cancel it, run it again, say how it ended. Each locks the job, then the run.

So whatever the cluster does with the run at the same moment came before, and is seen, or comes after, and finds it
changed: a person's rerun and the reaper's make one new attempt between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from timeball.errors import Conflict, InvalidInput
from timeball.model.job import Job, JobState
from timeball.model.states import LIVE, PENDING, RERUNNABLE, State
from timeball.store.database import Database, Transaction, sql
from timeball.store.events import add_event
from timeball.store.jobs import COLUMNS, Placement, read_job
from timeball.store.runs import no_such_run
from timeball.store.schema import NO_LIMIT, REASON_CHARS_MAX
from timeball.store.settles import keep_record
from timeball.store.wake import work_channel


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """How a job's run is planned once more. `follows_runs`: its ticks follow from the ends of runs (`@after`)."""

    placement: Placement
    follows_runs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """The answer: the run as it is now. `changed`: by this call. `owner`: who has it, while it is running.

    `owner_gone`: the owner's membership has run out, so it hears no wish; the leader will give the run up.
    """

    run_id: int
    job: str
    state: State
    attempt: int
    changed: bool
    owner: str | None = None
    owner_gone: bool = False


class _Run(NamedTuple):
    """A locked run."""

    id: int
    state: State
    kind: str
    attempt: int
    fence: int | None
    due_at: int
    ticks: int
    cancel_reason: str | None
    instance_id: str | None


class Rulings:
    """One run, one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database
        d = database.dialect
        columns = "id, state, kind, attempt, fence, due_at, ticks, cancel_reason, instance_id"
        self._job_of = sql(
            "SELECT j.id FROM timeball_run r JOIN timeball_job j ON j.id = r.job_id "
            "WHERE r.id = :id AND j.namespace = :namespace"
        )
        self._lock_job = sql(f"SELECT {COLUMNS} FROM timeball_job WHERE id = :id {d.lock_shared}")
        self._lock_run = sql(f"SELECT {columns} FROM timeball_run WHERE id = :id {d.lock}")
        self._owner = sql("SELECT name, expires_at, state FROM timeball_instance WHERE id = :id")
        self._follower = sql(
            "SELECT 1 FROM timeball_run WHERE job_id = :job_id AND salt = 0 AND due_at > :due_at LIMIT 1"
        )
        self._ask = sql(
            "UPDATE timeball_run SET cancel_reason = :reason WHERE id = :id AND state = 'running' "
            "AND cancel_reason IS NULL"
        )
        self._cancel = sql(
            "UPDATE timeball_run SET state = 'cancelled', reason = :reason, claimable_at = NULL, ended_at = :at "
            "WHERE id = :id AND state IN ('planned', 'claimed')"
        )
        self._keep_record = sql(keep_record("WHERE id = :id"))
        self._again = sql(
            "UPDATE timeball_run SET state = 'planned', attempt = attempt + 1, job_version = :version, "
            "ready_at = :at, claimable_at = :at, start_by = :never, handler = :handler, requires = :requires, "
            "priority = :priority, exclusive = :exclusive, instance_id = NULL, fence = NULL, claimed_at = NULL, "
            "started_at = NULL, begun_at = NULL, ended_at = NULL, reason = NULL, error = NULL, result = NULL, "
            "cancel_reason = NULL, late = 0 WHERE id = :id AND attempt = :attempt AND state = :state"
        )
        self._settle = sql(
            "UPDATE timeball_run SET state = :state, reason = :reason WHERE id = :id AND attempt = :attempt "
            "AND state = 'lost'"
        )

    def cancel(self, namespace: str, run_id: int, *, actor: str) -> RunChange:
        """End a run: one that waits is cancelled by this, one that is running when its owner has heard of it.

        Raises NotFound, Conflict (a coming tick, which is skipped instead).
        """

        def work(tx: Transaction) -> RunChange:
            job, run = self._locked(tx, namespace, run_id)
            at = tx.now()
            if run.state in PENDING:
                if run.kind == "scheduled" and run.attempt == 1 and run.due_at > at:
                    raise Conflict(
                        f"run {run_id} of {job.name!r} is a coming tick", hint=f"timeball jobs skip {job.name}"
                    )
                reason = f"cancelled by {actor}"[:REASON_CHARS_MAX]
                changed = tx.count(self._cancel, id=run.id, reason=reason, at=at) == 1
                self._tell(tx, job, run, "run.cancelled", actor, at)
                return _answer(job, run, changed=changed, state=State.CANCELLED)
            if run.state is not State.RUNNING:
                return _answer(job, run, changed=False)
            reason = f"cancelled by {actor}"[:REASON_CHARS_MAX]
            changed = tx.count(self._ask, id=run.id, reason=reason) == 1
            if changed:
                self._tell(tx, job, run, "run.cancel_asked", actor, at)
            return self._with_owner(tx, _answer(job, run, changed=changed), run, at)

        return self._db.transact(work)

    def rerun(
        self,
        namespace: str,
        run_id: int,
        *,
        plan: Callable[[Job], Again],
        actor: str,
        attempt: int | None = None,
    ) -> RunChange:
        """Plan one more attempt of a run that has ended badly, by the job's definition as it is now.

        `attempt`: the one that the person saw end; when another has followed it already, nothing changes. `plan` may
        refuse a job that cannot run. Raises NotFound, Conflict (it has not ended, or ended well; the job is gone).
        """

        def work(tx: Transaction) -> RunChange:
            job, run = self._locked(tx, namespace, run_id)
            if attempt is not None and attempt > run.attempt:
                raise Conflict(f"run {run_id} has no attempt {attempt}: it is at attempt {run.attempt}")
            followed = attempt is not None and attempt < run.attempt
            if followed or (run.state in PENDING and run.attempt > 1):
                return _answer(job, run, changed=False)
            self._must_have_ended(tx, job, run)
            again = self._planned(tx, job, run, plan)
            at, placement = tx.now(), again.placement
            tx.count(self._keep_record, id=run.id)
            changed = tx.count(
                self._again,
                id=run.id,
                attempt=run.attempt,
                state=run.state.value,
                version=job.version,
                at=at,
                never=NO_LIMIT,
                handler=placement.handler,
                requires=placement.requires,
                priority=job.definition.priority,
                exclusive=int(job.definition.exclusive),
            )
            assert changed == 1, "the run's row was locked and yet changed"
            self._tell(tx, job, run, "run.rerun", actor, at)
            return _answer(job, run, changed=True, state=State.PLANNED, attempt=run.attempt + 1)

        return self._db.transact(work)

    def settle(self, namespace: str, run_id: int, state: State, note: str, *, actor: str) -> RunChange:
        """Say how a lost run really ended: succeeded, failed or cancelled. What its owner says later is refused.

        Raises NotFound, Conflict (it is not lost).
        """

        def work(tx: Transaction) -> RunChange:
            job, run = self._locked(tx, namespace, run_id)
            if run.state is state:
                return _answer(job, run, changed=False)
            if run.state is not State.LOST:
                raise Conflict(
                    f"run {run_id} is {run.state}, not lost: it says itself how it ends",
                    hint=f"timeball runs show {run_id}",
                )
            reason = f"{state} by the word of {actor}{': ' * bool(note)}{note}"[:REASON_CHARS_MAX]
            tx.count(self._settle, id=run.id, attempt=run.attempt, state=state.value, reason=reason)
            self._tell(tx, job, run, "run.settled", actor, tx.now(), state=state.value, note=note)
            return _answer(job, run, changed=True, state=state)

        return self._db.transact(work)

    def _locked(self, tx: Transaction, namespace: str, run_id: int) -> tuple[Job, _Run]:
        known = tx.one(self._job_of, id=run_id, namespace=namespace)
        job_row = None if known is None else tx.one(self._lock_job, id=known[0])
        row = None if job_row is None else tx.one(self._lock_run, id=run_id)
        if job_row is None or row is None:
            raise no_such_run(run_id)
        return read_job(job_row), _Run._make([row[0], State(row[1]), *row[2:]])

    def _must_have_ended(self, tx: Transaction, job: Job, run: _Run) -> None:
        name = f"run {run.id} of {job.name!r}"
        if run.state in LIVE:
            owner = self._with_owner(tx, _answer(job, run, changed=False), run, tx.now())
            gone = f", which is gone; within seconds the job's on_lost ({job.definition.on_lost}) decides"
            where = f" on {owner.owner}{gone if owner.owner_gone else ''}" if owner.owner else ""
            raise Conflict(f"{name} has not ended: it is {run.state}{where}", hint=f"timeball runs show {run.id}")
        begun = run.fence is not None or run.attempt > 1
        if run.state not in RERUNNABLE or not begun or run.ticks > 1:
            raise Conflict(
                f"{name} is {run.state}: there is nothing to run again",
                hint=f"timeball jobs trigger {job.name} makes a new run",
            )

    def _planned(self, tx: Transaction, job: Job, run: _Run, plan: Callable[[Job], Again]) -> Again:
        if job.state is JobState.DELETED:
            raise Conflict(f"job {job.name!r} is deleted: its runs do not run again")
        if job.state is JobState.BROKEN:
            raise InvalidInput(f"job {job.name!r} is broken: {job.problem}", hint="edit its definition first")
        if job.state in (JobState.STOPPED, JobState.PAUSED) and run.kind == "scheduled":
            raise Conflict(
                f"job {job.name!r} is {job.state}, so none of its ticks runs",
                hint=f"timeball jobs start {job.name}, or jobs trigger for a run by hand",
            )
        again = plan(job)
        followed = run.kind == "scheduled" and again.follows_runs
        if followed and tx.one(self._follower, job_id=job.id, due_at=run.due_at):
            raise Conflict(
                f"run {run.id} of {job.name!r} has been followed by another: @after runs one after the other",
                hint=f"timeball jobs trigger {job.name} makes a new run",
            )
        return again

    def _with_owner(self, tx: Transaction, answer: RunChange, run: _Run, at: int) -> RunChange:
        row = tx.one(self._owner, id=run.instance_id or "")
        if row is None:
            return answer
        gone = row[1] < at or row[2] not in {"active", "draining"}
        return RunChange(
            run_id=answer.run_id,
            job=answer.job,
            state=answer.state,
            attempt=answer.attempt,
            changed=answer.changed,
            owner=row[0],
            owner_gone=gone,
        )

    def _tell(self, tx: Transaction, job: Job, run: _Run, kind: str, actor: str, at: int, **more: Any) -> None:
        data = {"name": job.name, "attempt": run.attempt, "was": run.state.value, **more}
        add_event(tx, at=at, namespace=job.namespace, kind=kind, actor=actor, job_id=job.id, run_id=run.id, data=data)
        tx.notify(work_channel(job.namespace))


def _answer(job: Job, run: _Run, *, changed: bool, state: State | None = None, attempt: int | None = None) -> RunChange:
    return RunChange(
        run_id=run.id, job=job.name, state=state or run.state, attempt=attempt or run.attempt, changed=changed
    )
