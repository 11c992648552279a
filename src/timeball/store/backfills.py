"""Verbs of backfills: runs for the ticks of a past range, a few at a time.

All runs of a backfill are made at once, in the transaction that decides which; they wait unclaimable (`claimable_at`
is null), and the leader lets the next ones go as others end. A run knows its backfill by its salt, which also keeps it
apart from the tick's own run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timeball.errors import InvalidInput
from timeball.model.cluster import Term
from timeball.model.job import Job, JobState
from timeball.store.database import Database, Transaction, sql
from timeball.store.jobs import COLUMNS, Placement, no_such_job, read_job
from timeball.store.leases import Leases
from timeball.store.schema import NO_LIMIT
from timeball.store.versions import tell_job
from timeball.store.wake import work_channel


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTicks:
    """What is to be made up for. `ticks`: instants in microseconds, ascending."""

    ticks: Sequence[int]
    placement: Placement
    at_once: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """A backfill that was made; `ticks` may be none, and then there is no `id`."""

    id: int | None
    job: str
    ticks: Sequence[int]
    at_once: int


class BackfillRows:
    """Making the runs, inside the transaction of whoever decides."""

    def __init__(self, database: Database) -> None:
        d = database.dialect
        self._insert = sql(
            "INSERT INTO timeball_backfill (namespace, job_id, since, until, ticks, at_once, state, actor, made_at) "
            "VALUES (:namespace, :job_id, :since, :until, :ticks, :at_once, 'open', :actor, :at) RETURNING id"
        )
        rows = d.rows("v", "ticks", due_at="BIGINT")
        self._runs = sql(
            f"INSERT INTO timeball_run (job_id, job_version, kind, due_at, salt, state, priority, exclusive, handler, "
            f"requires, ready_at, claimable_at, start_by) SELECT CAST(:job_id AS BIGINT), "
            f"CAST(:version AS INTEGER), 'backfill', v.due_at, CAST(:salt AS BIGINT), 'planned', "
            f"CAST(:priority AS INTEGER), CAST(:exclusive AS INTEGER), CAST(:handler AS TEXT), "
            f"CAST(:requires AS TEXT), CAST(:at AS BIGINT), NULL, CAST(:never AS BIGINT) "
            f"FROM {rows} WHERE true"
        )
        self._release = sql(
            "UPDATE timeball_run SET claimable_at = :at, ready_at = :at WHERE id IN (SELECT r.id FROM timeball_run r "
            "WHERE r.job_id = :job_id AND r.state = 'planned' AND r.salt = :salt AND r.claimable_at IS NULL "
            "ORDER BY r.due_at LIMIT :count) AND state = 'planned' AND claimable_at IS NULL"
        )

    def add(self, tx: Transaction, job: Job, version: int, past: PastTicks, *, actor: str, at: int) -> int | None:
        """The runs of a backfill of a job whose row is locked, the first of them due now; its id."""
        if not past.ticks:
            return None
        made = tx.one(
            self._insert,
            namespace=job.namespace,
            job_id=job.id,
            since=past.ticks[0],
            until=past.ticks[-1],
            ticks=len(past.ticks),
            at_once=past.at_once,
            actor=actor,
            at=at,
        )
        assert made is not None
        salt = -made[0]
        tx.count(
            self._runs,
            job_id=job.id,
            version=version,
            salt=salt,
            priority=job.definition.priority,
            exclusive=int(job.definition.exclusive),
            handler=past.placement.handler,
            requires=past.placement.requires,
            at=at,
            never=NO_LIMIT,
            **tx.rows("ticks", [(tick,) for tick in past.ticks], 1),
        )
        self.release(tx, job.id, salt, past.at_once, at)
        data = {"name": job.name, "backfill": made[0], "ticks": len(past.ticks)}
        tell_job(tx, namespace=job.namespace, job_id=job.id, kind="job.backfilled", actor=actor, at=at, data=data)
        return made[0]

    def release(self, tx: Transaction, job_id: int, salt: int, count: int, at: int) -> int:
        """Let the next runs of a backfill be claimed; how many."""
        return tx.count(self._release, job_id=job_id, salt=salt, count=count, at=at)


class Backfills:
    """Backfills that a person asks for, and letting their runs go."""

    def __init__(self, database: Database, leases: Leases, rows: BackfillRows) -> None:
        self._db = database
        self._leases = leases
        self._rows = rows
        d = database.dialect
        self._lock = sql(
            f"SELECT {COLUMNS} FROM timeball_job WHERE namespace = :namespace AND live_name = :name {d.lock}"
        )
        self._made_up = sql(
            "SELECT DISTINCT due_at FROM timeball_run WHERE job_id = :job_id AND due_at >= :since AND due_at <= :until "
            "AND kind IN ('scheduled', 'backfill') AND state IN ('planned', 'claimed', 'running', 'succeeded')"
        )
        self._open = sql(
            "SELECT id, job_id, at_once FROM timeball_backfill WHERE namespace = :namespace AND state = 'open'"
        )
        self._live = sql(
            "SELECT count(*), COALESCE(SUM(CASE WHEN state = 'planned' AND claimable_at IS NULL THEN 1 ELSE 0 END), 0) "
            "FROM timeball_run WHERE job_id = :job_id AND salt = :salt AND state IN ('planned', 'claimed', 'running')"
        )
        self._done = sql("UPDATE timeball_backfill SET state = 'done' WHERE id = :id AND state = 'open'")

    def create(
        self,
        namespace: str,
        name: str,
        plan: Callable[[Job, frozenset[int], int], PastTicks],
        *,
        since: int,
        until: int,
        actor: str,
    ) -> Backfill:
        """Make the runs that `plan` says. It sees the job locked, the ticks of the range that have run or will, and now.

        Two people who ask for the same range make its runs once. Raises NotFound, InvalidInput.
        """

        def work(tx: Transaction) -> Backfill:
            row = tx.one(self._lock, namespace=namespace, name=name)
            if row is None:
                raise no_such_job(namespace, name)
            job = read_job(row)
            if job.state is JobState.BROKEN:
                raise InvalidInput(f"job {name!r} is broken: {job.problem}", hint="edit its definition first")
            made_up = frozenset(r[0] for r in tx.all(self._made_up, job_id=job.id, since=since, until=until))
            at = tx.now()
            past = plan(job, made_up, at)
            backfill_id = self._rows.add(tx, job, job.version, past, actor=actor, at=at)
            return Backfill(id=backfill_id, job=name, ticks=past.ticks, at_once=past.at_once)

        return self._db.transact(work)

    def pump(self, term: Term) -> bool:
        """Let the next runs of every open backfill go, as others have ended; whether any is open still."""
        found = self._db.read(lambda tx: tx.all(self._open, namespace=term.namespace))
        if not found:
            return False

        def work(tx: Transaction) -> bool:
            self._leases.prove(tx, term)
            released = 0
            for backfill_id, job_id, at_once in found:
                live, waiting = tx.all(self._live, job_id=job_id, salt=-backfill_id)[0]
                room = at_once - (live - waiting)
                if live == 0:
                    tx.count(self._done, id=backfill_id)
                elif waiting and room > 0:
                    released += self._rows.release(tx, job_id, -backfill_id, room, tx.now())
            if released:
                tx.notify(work_channel(term.namespace))
            return True

        return self._db.transact(work)
