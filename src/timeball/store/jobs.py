"""Verbs about jobs: create, trigger, read. Changes are in `changes`."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timeball.errors import Conflict, Duplicate, InvalidInput, NotFound
from timeball.model.job import Definition, Job, JobState, Pause
from timeball.store.database import Database, Row, Transaction, sql
from timeball.store.holds import CalendarHolds, LimitHolds
from timeball.store.schema import NO_LIMIT
from timeball.store.versions import Versions, tell_job

COLUMNS = "id, namespace, name, state, version, definition, cursor_at, next_due_at, anchor_at, created_at, updated_at, problem, pause"
SALT_BITS = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What the ledger needs to know of a definition: derived from it, written to each of its runs."""

    handler: str
    requires: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTimes:
    """Where a job's planning stands after a change. Instants in microseconds."""

    cursor_at: int
    next_due_at: int | None
    anchor_at: int


class Jobs:
    """Definitions and their history."""

    def __init__(self, database: Database, versions: Versions, holds: CalendarHolds, limits: LimitHolds) -> None:
        self._db = database
        self._versions = versions
        self._holds = holds
        self._limits = limits
        d = database.dialect
        by_name = "FROM timeball_job WHERE namespace = :namespace AND live_name = :name"
        self._get = sql(f"SELECT {COLUMNS} {by_name}")
        self._lock_shared = sql(f"SELECT {COLUMNS} {by_name} {d.lock_shared}")
        self._list = sql(
            f"SELECT {COLUMNS} FROM timeball_job WHERE namespace = :namespace AND live_name IS NOT NULL "
            f"AND (:state = '' OR state = :state) ORDER BY name"
        )
        self._insert = sql(
            "INSERT INTO timeball_job (namespace, name, live_name, state, version, definition, cursor_at, next_due_at, "
            "anchor_at, declared, tzdata, created_at, updated_at) VALUES (:namespace, :name, :name, :state, 1, "
            ":definition, :cursor_at, :next_due_at, :anchor_at, :declared, :tzdata, :at, :at) RETURNING id"
        )
        self._gate = sql("INSERT INTO timeball_gate (job_id) VALUES (:job_id)")
        self._trigger = sql(
            "INSERT INTO timeball_run (job_id, job_version, kind, due_at, salt, state, priority, exclusive, handler, "
            "requires, ready_at, claimable_at, start_by, args, idempotency_key) VALUES (:job_id, :version, 'manual', :at, "
            ":salt, 'planned', :priority, :exclusive, :handler, :requires, :at, :at, :start_by, :args, :key) RETURNING id"
        )
        self._by_key = sql("SELECT id FROM timeball_run WHERE job_id = :job_id AND idempotency_key = :key")
        pairs = d.rows("v", "pairs", job_id="BIGINT", version="INTEGER")
        self._definitions = sql(
            f"SELECT jv.job_id, jv.version, j.name, jv.definition FROM {pairs} "
            f"JOIN timeball_job_version jv ON jv.job_id = v.job_id AND jv.version = v.version "
            f"JOIN timeball_job j ON j.id = jv.job_id"
        )
        self._changed_tzdata = sql(
            f"SELECT {COLUMNS} FROM timeball_job WHERE namespace = :namespace AND state = 'active' "
            f"AND id > :after AND tzdata <> :tzdata ORDER BY id LIMIT :limit"
        )
        self._resumed = sql(
            f"SELECT {COLUMNS} FROM timeball_job WHERE namespace = :namespace AND state = 'paused' "
            f"AND resume_at <= {d.now} ORDER BY id LIMIT :limit"
        )
        self._beyond = sql(
            f"SELECT {COLUMNS} FROM timeball_job WHERE namespace = :namespace AND state = 'active' "
            f"AND id > :after AND cursor_at > :instant ORDER BY id LIMIT :limit"
        )

    def create(
        self,
        namespace: str,
        name: str,
        definition: Definition,
        *,
        active: bool,
        times: Callable[[int], NewTimes],
        actor: str,
        tzdata: str,
        declared: str | None = None,
    ) -> Job:
        """A new job. `times` is asked with the database's time of the creation.

        Raises Conflict (the name is taken), CalendarChanged (the copy of its calendar is old).
        """

        def work(tx: Transaction) -> Job:
            self._holds.hold(tx, namespace, definition.calendar)
            self._limits.hold(tx, namespace, definition.limits)
            at = tx.now()
            when = times(at)
            state = JobState.ACTIVE if active else JobState.STOPPED
            row = tx.one(
                self._insert,
                namespace=namespace,
                name=name,
                state=state.value,
                definition=definition.to_json(),
                cursor_at=when.cursor_at,
                next_due_at=when.next_due_at if active else None,
                anchor_at=when.anchor_at,
                declared=declared,
                tzdata=tzdata,
                at=at,
            )
            assert row is not None
            tx.count(self._gate, job_id=row[0])
            self._versions.add(
                tx,
                job_id=row[0],
                version=1,
                state=state,
                definition=definition.to_json(),
                from_at=at,
                anchor_at=when.anchor_at,
                at=at,
                actor=actor,
                change="created",
            )
            data = {"name": name, "state": state.value}
            tell_job(tx, namespace=namespace, job_id=row[0], kind="job.created", actor=actor, at=at, data=data)
            return self._read(tx, namespace, name)

        try:
            return self._db.transact(work)
        except Duplicate as error:
            raise Conflict(
                f"a job named {name!r} exists already",
                hint="choose another name, or edit that job",
                field="name",
            ) from error

    def trigger(
        self,
        namespace: str,
        name: str,
        *,
        place: Callable[[Definition], Placement],
        args: Mapping[str, Any] | None,
        idempotency_key: str | None,
        actor: str,
    ) -> int:
        """A manual run, due now; its id. The same key again gives the same run. The schedule is not touched."""

        def work(tx: Transaction) -> int:
            row = tx.one(self._lock_shared, namespace=namespace, name=name)
            if row is None:
                raise no_such_job(namespace, name)
            job = read_job(row)
            if job.state is JobState.BROKEN:
                raise InvalidInput(f"job {name!r} is broken: {job.problem}", hint="edit its definition first")
            known = tx.one(self._by_key, job_id=job.id, key=idempotency_key) if idempotency_key else None
            if known is not None:
                return known[0]
            at, placement = tx.now(), place(job.definition)
            made = tx.one(
                self._trigger,
                job_id=job.id,
                version=job.version,
                at=at,
                salt=1 + secrets.randbits(SALT_BITS),
                priority=job.definition.priority,
                exclusive=int(job.definition.exclusive),
                handler=placement.handler,
                requires=placement.requires,
                start_by=NO_LIMIT,
                args=None if args is None else json.dumps(dict(args)),
                key=idempotency_key,
            )
            assert made is not None
            data = {"name": name, "run": made[0]}
            tell_job(tx, namespace=namespace, job_id=job.id, kind="job.triggered", actor=actor, at=at, data=data)
            return made[0]

        try:
            return self._db.transact(work)
        except Duplicate:  # the same key came in at the same moment
            return self._db.transact(work)

    def get(self, namespace: str, name: str) -> Job:
        """One job. Raises NotFound."""
        return self._db.read(lambda tx: self._read(tx, namespace, name))

    def all(self, namespace: str, *, state: str = "") -> list[Job]:
        """Every job that is not deleted, by name; all states or one."""
        return [read_job(row) for row in self._db.read(lambda tx: tx.all(self._list, namespace=namespace, state=state))]

    def definitions(self, pairs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[str, str]]:
        """Names and definitions (JSON) by job id and version, for those that exist."""
        rows = self._db.read(lambda tx: tx.all(self._definitions, **tx.rows("pairs", sorted(pairs), 2)))
        return {(r[0], r[1]): (r[2], r[3]) for r in rows}

    def planned_with_other_tzdata(
        self, namespace: str, tzdata: str, *, after_id: int = 0, limit: int = 500
    ) -> list[Job]:
        """Active jobs whose coming ticks were computed with another version of the time zone database, by id."""
        binds = {"namespace": namespace, "tzdata": tzdata, "after": after_id, "limit": limit}
        rows = self._db.read(lambda tx: tx.all(self._changed_tzdata, **binds))
        return [read_job(row) for row in rows]

    def to_resume(self, namespace: str, *, limit: int = 100) -> list[Job]:
        """Paused jobs whose pause has run out."""
        return [
            read_job(row) for row in self._db.read(lambda tx: tx.all(self._resumed, namespace=namespace, limit=limit))
        ]

    def planned_beyond(self, namespace: str, instant: int, *, after_id: int = 0, limit: int = 500) -> list[Job]:
        """Active jobs whose ticks are rows up to later than an instant, by id. Walks all jobs: for rare occasions."""
        binds = {"namespace": namespace, "instant": instant, "after": after_id, "limit": limit}
        rows = self._db.read(lambda tx: tx.all(self._beyond, **binds))
        return [read_job(row) for row in rows]

    def _read(self, tx: Transaction, namespace: str, name: str) -> Job:
        row = tx.one(self._get, namespace=namespace, name=name)
        if row is None:
            raise no_such_job(namespace, name)
        return read_job(row)


def no_such_job(namespace: str, name: str) -> NotFound:
    """The error for a name that no job has."""
    where = "" if namespace == "default" else f" in namespace {namespace!r}"
    return NotFound(f"there is no job named {name!r}{where}", hint="timeball jobs list", field="name")


def read_job(row: Row) -> Job:
    """A job from its row. A definition that cannot be read makes the job broken, not the reader."""
    state, problem = JobState(row[3]), row[11]
    try:
        definition = Definition.from_json(row[5])
    except InvalidInput as error:
        state, problem = JobState.BROKEN, problem or str(error)
        definition = Definition(schedule="none", executor="", target={}, description=row[5][:500])
    return Job(
        id=row[0],
        namespace=row[1],
        name=row[2],
        state=state,
        version=row[4],
        definition=definition,
        cursor_at=row[6],
        next_due_at=row[7],
        anchor_at=row[8],
        created_at=row[9],
        updated_at=row[10],
        problem=problem,
        pause=None if row[12] is None else Pause.from_json(row[12]),
    )
