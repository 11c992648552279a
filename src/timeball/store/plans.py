"""Verbs of the planner: which jobs need ticks, and writing runs and cursors in one fenced transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timeball.model.cluster import Term
from timeball.store.database import Database, Row, Transaction, sql
from timeball.store.leases import Leases
from timeball.store.wake import work_channel


@dataclass(frozen=True, slots=True, kw_only=True)
class DueJob:
    """A job whose next tick lies within the horizon. `definition` is the stored JSON."""

    id: int
    name: str
    version: int
    definition: str
    cursor_at: int
    next_due_at: int
    anchor_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The latest scheduled run of a job. `ended_at`: when it got its fate, None while it has none."""

    due_at: int
    ended_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTick:
    """One run to insert; `start_by` as in the schema. `ready_at`: when it may start, None for `due_at`. `missed`: a stretch that is only recorded, with its count."""

    due_at: int
    start_by: int
    ready_at: int | None = None
    missed: bool = False
    last_due_at: int | None = None
    ticks: int = 1
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What the planner decided for one job; written only if nobody changed the job meanwhile."""

    job_id: int
    version: int
    cursor_before: int
    cursor_after: int
    next_due_at: int | None
    handler: str
    requires: str
    priority: int
    exclusive: bool
    ticks: Sequence[PlannedTick]


class Plans:
    """Ticks become runs here and nowhere else."""

    def __init__(self, database: Database, leases: Leases) -> None:
        self._db = database
        self._leases = leases
        d = database.dialect
        self._due = sql(
            "SELECT id, name, version, definition, cursor_at, next_due_at, anchor_at FROM timeball_job "
            "WHERE namespace = :namespace AND state = 'active' AND next_due_at <= :until "
            "ORDER BY next_due_at LIMIT :limit"
        )
        cursors = d.rows(
            "v",
            "cursors",
            id="BIGINT",
            version="INTEGER",
            before="BIGINT",
            after="BIGINT",
            next_due_at="BIGINT",
            tzdata="TEXT",
        )
        # All who lock several jobs lock them in the order of their ids.
        self._lock = sql(f"SELECT id FROM timeball_job WHERE id {d.any_of('ids', 'BIGINT')} ORDER BY id {d.lock}")
        self._move = sql(
            f"UPDATE timeball_job SET cursor_at = v.after, next_due_at = v.next_due_at, tzdata = v.tzdata FROM {cursors} "
            f"WHERE timeball_job.id = v.id AND timeball_job.id {d.any_of('ids', 'BIGINT')} "
            f"AND timeball_job.version = v.version AND timeball_job.cursor_at = v.before "
            f"AND timeball_job.state = 'active' RETURNING timeball_job.id"
        )
        ticks = d.rows(
            "v",
            "ticks",
            job_id="BIGINT",
            job_version="INTEGER",
            due_at="BIGINT",
            last_due_at="BIGINT",
            ticks="INTEGER",
            state="TEXT",
            reason="TEXT",
            priority="INTEGER",
            exclusive="INTEGER",
            handler="TEXT",
            requires="TEXT",
            ready_at="BIGINT",
            claimable_at="BIGINT",
            start_by="BIGINT",
            ended_at="BIGINT",
        )
        self._insert = sql(
            f"INSERT INTO timeball_run (job_id, job_version, kind, due_at, last_due_at, ticks, state, reason, priority, "
            f"exclusive, handler, requires, ready_at, claimable_at, start_by, ended_at) "
            f"SELECT job_id, job_version, 'scheduled', due_at, last_due_at, ticks, state, reason, priority, exclusive, "
            f"handler, requires, ready_at, claimable_at, start_by, ended_at FROM {ticks} WHERE true "
            f"ON CONFLICT (job_id, due_at, salt) DO NOTHING"
        )
        self._coming = sql(
            f"SELECT job_id, due_at FROM timeball_run WHERE job_id {d.any_of('jobs', 'BIGINT')} "
            f"AND (state IN ('planned', 'claimed') OR (state = 'skipped' AND instance_id IS NULL)) "
            f"AND kind = 'scheduled' AND attempt = 1 AND due_at > :after "
            f"ORDER BY job_id, due_at"
        )
        self._last = sql(
            f"SELECT r.job_id, r.due_at, CASE WHEN r.state IN ('planned', 'claimed', 'running') THEN NULL "
            f"ELSE COALESCE(r.ended_at, r.due_at) END FROM timeball_run r WHERE r.job_id {d.any_of('jobs', 'BIGINT')} "
            f"AND r.salt = 0 AND r.due_at = (SELECT max(l.due_at) FROM timeball_run l WHERE l.job_id = r.job_id "
            f"AND l.salt = 0)"
        )
        self._adopt = sql(f"UPDATE timeball_job SET tzdata = :tzdata WHERE id {d.any_of('ids', 'BIGINT')}")
        self._break = sql(
            f"UPDATE timeball_job SET state = 'broken', problem = :problem, next_due_at = NULL, updated_at = {d.now} "
            f"WHERE id = :id AND version = :version"
        )

    def due(self, namespace: str, *, until: int, limit: int) -> list[DueJob]:
        """Active jobs whose next tick is at or before an instant, the nearest first."""
        rows = self._db.read(lambda tx: tx.all(self._due, namespace=namespace, until=until, limit=limit))
        return [
            DueJob(
                id=r[0],
                name=r[1],
                version=r[2],
                definition=r[3],
                cursor_at=r[4],
                next_due_at=r[5],
                anchor_at=r[6],
            )
            for r in rows
        ]

    def write(self, term: Term, plans: Sequence[JobPlan], *, tzdata: str) -> int:
        """Insert the runs and move the cursors, in one transaction that the lease's epoch fences.

        A job that changed since it was read is left alone (it will be read again); a tick that is a run already
        is a normal answer. Returns how many runs came in. Raises ClaimLost when the term has ended.
        """
        ordered = sorted(plans, key=lambda plan: plan.job_id)

        def work(tx: Transaction) -> int:
            self._leases.prove(tx, term)
            tx.all(self._lock, ids=tx.list([p.job_id for p in ordered]))
            return self.insert(tx, term, ordered, tzdata=tzdata)

        return self._db.transact(work)

    def insert(self, tx: Transaction, term: Term, plans: Sequence[JobPlan], *, tzdata: str) -> int:
        """Part of a leader's transaction that has proved its term and locked the jobs: the runs and the cursors."""
        if not plans:
            return 0
        moves = [(p.job_id, p.version, p.cursor_before, p.cursor_after, p.next_due_at, tzdata) for p in plans]
        ids = tx.list([p.job_id for p in plans])
        moved = {row[0] for row in tx.all(self._move, ids=ids, **tx.rows("cursors", moves, 6))}
        now = tx.now()
        rows = [_run_row(p, tick, now) for p in plans if p.job_id in moved for tick in p.ticks]
        if not rows:
            return 0
        inserted = tx.count(self._insert, **tx.rows("ticks", rows, 15))
        if any(row[5] == "planned" and row[2] <= now for row in rows):
            tx.notify(work_channel(term.namespace))
        return inserted

    def last_runs(self, job_ids: Sequence[int]) -> dict[int, LastRun]:
        """The latest scheduled run of each of these jobs that has one."""
        if not job_ids:
            return {}
        rows = self._db.read(lambda tx: tx.all(self._last, jobs=tx.list(sorted(job_ids))))
        return {row[0]: LastRun(due_at=row[1], ended_at=row[2]) for row in rows}

    def coming(self, job_ids: Sequence[int], *, after: int) -> dict[int, list[int]]:
        """Ticks after an instant that are runs and have not started, skipped ones too, by job, in order."""
        dues: dict[int, list[int]] = {job_id: [] for job_id in job_ids}
        for job_id, due_at in self._db.read(lambda tx: tx.all(self._coming, jobs=tx.list(job_ids), after=after)):
            dues[job_id].append(due_at)
        return dues

    def adopt_tzdata(self, term: Term, job_ids: Sequence[int], *, tzdata: str) -> None:
        """Note that the coming ticks of these jobs are right by this version of the time zone database."""

        def work(tx: Transaction) -> None:
            self._leases.prove(tx, term)
            ids = tx.list(sorted(job_ids))
            tx.all(self._lock, ids=ids)
            tx.count(self._adopt, ids=ids, tzdata=tzdata)

        self._db.transact(work)

    def mark_broken(self, term: Term, job: DueJob, problem: str) -> None:
        """Set a job aside whose stored definition cannot be read, so that the others go on."""

        def work(tx: Transaction) -> None:
            self._leases.prove(tx, term)
            self.set_aside(tx, job, problem)

        self._db.transact(work)

    def set_aside(self, tx: Transaction, job: DueJob, problem: str) -> None:
        """The same as part of a leader's transaction."""
        tx.count(self._break, id=job.id, version=job.version, problem=problem[:2000])


def _run_row(plan: JobPlan, tick: PlannedTick, now: int) -> Row:
    state = "missed" if tick.missed else "planned"
    ready_at = tick.due_at if tick.ready_at is None else tick.ready_at
    return (
        plan.job_id,
        plan.version,
        tick.due_at,
        tick.last_due_at,
        tick.ticks,
        state,
        tick.reason,
        plan.priority,
        int(plan.exclusive),
        plan.handler,
        plan.requires,
        ready_at,
        None if tick.missed else ready_at,
        tick.start_by,
        now if tick.missed else None,
    )
