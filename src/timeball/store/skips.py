"""Verbs about one coming tick: take it out, put it back. The skipped tick is a row of the ledger from then on.

A row that a person skipped has no instance; one that the overlap policy skipped has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from timeball.errors import Conflict
from timeball.model.job import Job
from timeball.store.database import Database, Row, Transaction, sql
from timeball.store.jobs import COLUMNS, Placement, no_such_job, read_job
from timeball.store.schema import REASON_CHARS_MAX
from timeball.store.versions import tell_job

BY_HAND = "state = 'skipped' AND instance_id IS NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class TickChange:
    """The answer: the job, the tick's run (None: no row any more, it will be planned), whether anything changed."""

    job: Job
    run_id: int | None
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """How a tick is planned: from when it may start and until when, and where."""

    ready_at: int
    start_by: int
    placement: Placement


class Skips:
    """Each locks the job's row first, as every change to a job does, so that no planner comes in between."""

    def __init__(self, database: Database) -> None:
        self._db = database
        d = database.dialect
        self._job = sql(
            f"SELECT {COLUMNS} FROM timeball_job WHERE namespace = :namespace AND live_name = :name {d.lock}"
        )
        self._run = sql(
            f"SELECT id, state, instance_id FROM timeball_run WHERE job_id = :job_id AND due_at = :due_at AND salt = 0 "
            f"{d.lock}"
        )
        self._insert = sql(
            "INSERT INTO timeball_run (job_id, job_version, kind, due_at, state, reason, handler, ready_at, start_by, "
            "ended_at) VALUES (:job_id, :version, 'scheduled', :due_at, 'skipped', :reason, '', :due_at, :due_at, :at) "
            "RETURNING id"
        )
        self._skip = sql(
            "UPDATE timeball_run SET state = 'skipped', reason = :reason, instance_id = NULL, claimed_at = NULL, "
            "claimable_at = NULL, ended_at = :at WHERE id = :id AND state IN ('planned', 'claimed')"
        )
        self._plan = sql(
            f"UPDATE timeball_run SET state = 'planned', reason = NULL, ended_at = NULL, job_version = :version, "
            f"handler = :handler, requires = :requires, priority = :priority, exclusive = :exclusive, "
            f"ready_at = :ready_at, claimable_at = :ready_at, start_by = :start_by WHERE id = :id AND {BY_HAND}"
        )
        self._delete = sql(f"DELETE FROM timeball_run WHERE id = :id AND {BY_HAND}")
        self._coming = sql(
            f"SELECT due_at, reason FROM timeball_run WHERE job_id = :job_id AND due_at > :after AND salt = 0 "
            f"AND {BY_HAND} ORDER BY due_at"
        )

    def skip(
        self, namespace: str, name: str, choose: Callable[[Job, int, Collection[int]], int], *, actor: str
    ) -> tuple[TickChange, int]:
        """Take a coming tick out: when this answers, its run will not start. Returns the change and the instant.

        `choose`: the tick, of the locked job, the database's now, and the ticks that are out already. Raises NotFound,
        Conflict (it has started, or has a fate already).
        """

        def work(tx: Transaction) -> tuple[TickChange, int]:
            job, at = self._locked(tx, namespace, name)
            due_at = choose(job, at, {row[0] for row in tx.all(self._coming, job_id=job.id, after=at)})
            row = tx.one(self._run, job_id=job.id, due_at=due_at)
            reason = f"skipped by {actor}"[:REASON_CHARS_MAX]
            if row is None:
                made = tx.one(
                    self._insert, job_id=job.id, version=job.version, due_at=due_at, reason=reason, at=tx.now()
                )
                assert made is not None
                return self._told(tx, job, made[0], due_at, "tick_skipped", actor), due_at
            if _by_hand(row):
                return TickChange(job=job, run_id=row[0], changed=False), due_at
            if not tx.count(self._skip, id=row[0], reason=reason, at=tx.now()):
                raise Conflict(
                    f"run {row[0]} of that tick is {row[1]} already", hint="a run that has begun can only be cancelled"
                )
            return self._told(tx, job, row[0], due_at, "tick_skipped", actor), due_at

        return self._db.transact(work)

    def unskip(
        self, namespace: str, name: str, due_at: int, tick_of: Callable[[Job], Tick | None], *, actor: str
    ) -> TickChange:
        """Put a skipped tick back. `tick_of`: how the locked job plans it, or None when it has no such tick any more.

        Raises NotFound, Conflict (nobody skipped it, or its instant has passed).
        """

        def work(tx: Transaction) -> TickChange:
            job, at = self._locked(tx, namespace, name)
            row = tx.one(self._run, job_id=job.id, due_at=due_at)
            if row is None or not _by_hand(row):
                raise Conflict(
                    f"nobody has skipped that tick of job {name!r}", hint="timeball jobs next shows the coming ticks"
                )
            if due_at <= at:
                raise Conflict("its instant has passed", hint="timeball jobs trigger runs the job now")
            tick = tick_of(job)
            if tick is None or due_at > job.cursor_at:  # never, or planned again when its time comes
                tx.count(self._delete, id=row[0])
                return self._told(tx, job, None, due_at, "tick_unskipped", actor)
            tx.count(
                self._plan,
                id=row[0],
                version=job.version,
                handler=tick.placement.handler,
                requires=tick.placement.requires,
                priority=job.definition.priority,
                exclusive=int(job.definition.exclusive),
                ready_at=tick.ready_at,
                start_by=tick.start_by,
            )
            return self._told(tx, job, row[0], due_at, "tick_unskipped", actor)

        return self._db.transact(work)

    def coming(self, job_id: int, *, after: int) -> dict[int, str]:
        """The skipped ticks of a job after an instant, with the reason."""
        return dict(self._db.read(lambda tx: [tuple(r) for r in tx.all(self._coming, job_id=job_id, after=after)]))

    def _locked(self, tx: Transaction, namespace: str, name: str) -> tuple[Job, int]:
        row = tx.one(self._job, namespace=namespace, name=name)
        if row is None:
            raise no_such_job(namespace, name)
        return read_job(row), tx.now()

    def _told(self, tx: Transaction, job: Job, run_id: int | None, due_at: int, kind: str, actor: str) -> TickChange:
        data: dict[str, Any] = {"name": job.name, "due_at": due_at, "run": run_id}
        tell_job(tx, namespace=job.namespace, job_id=job.id, kind=f"job.{kind}", actor=actor, at=tx.now(), data=data)
        return TickChange(job=job, run_id=run_id, changed=True)


def _by_hand(row: Row) -> bool:
    return row[1] == "skipped" and row[2] is None
