"""The verb of every change to a job: stop, start, edit, delete.

One transaction: it locks the job's row, then all of its live runs, so that a start either committed before (and is
listed as still running) or finds its run gone. What it answers is true when it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timeball.errors import Conflict
from timeball.model.job import Definition, Job, JobState, Pause
from timeball.store.backfills import BackfillRows, PastTicks
from timeball.store.database import Database, Row, Transaction, sql
from timeball.store.holds import CalendarHolds, LimitHolds
from timeball.store.jobs import COLUMNS, NewTimes, Placement, no_such_job, read_job
from timeball.store.rewinds import Rewind, Rewinds
from timeball.store.versions import Versions, tell_job

EARLY_MAX_US = 10_000_000
"""Starts and skips are committed a moment before their tick; nothing is decided earlier than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplannedTicks:
    """Ticks between the cursor and the change that no leader has planned yet: they are missed, and said so."""

    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a use-case wants of a job, decided with its row locked.

    `boundary` below is the instant up to which the old version's ticks count; `times` is asked with it, and so are
    `pause` (what is noted of one) and `made_up` (which ticks of the time before become runs).
    """

    kind: str
    state: JobState
    definition: Definition
    placement: Placement | None
    times: Callable[[int], NewTimes]
    unplanned: Callable[[int], UnplannedTicks | None]
    cancel_pending: bool
    declared: str | None = None
    cancel_running: bool = False
    rewind: Rewind | None = None
    pause: Callable[[int], Pause] | None = None
    made_up: Callable[[int], PastTicks] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StillRunning:
    """A run that had started before the change committed."""

    run_id: int
    instance: str
    started_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """The job as it now is, and what the change found. `at`: the database's time of the answer."""

    job: Job
    changed: bool
    removed_runs: int
    still_running: Sequence[StillRunning]
    at: int


_MISSED = sql(
    "INSERT INTO timeball_run (job_id, job_version, kind, due_at, last_due_at, ticks, state, reason, handler, "
    "ready_at, start_by, ended_at) VALUES (:job_id, :version, 'scheduled', :first, :last, :ticks, 'missed', "
    ":reason, '', :first, :first, :at) ON CONFLICT (job_id, due_at, salt) DO NOTHING"
)


class Changes:
    """Changes to a job, decided with its row locked."""

    def __init__(
        self, database: Database, versions: Versions, holds: CalendarHolds, limits: LimitHolds, backfills: BackfillRows
    ) -> None:
        self._db = database
        self._versions = versions
        self._holds = holds
        self._limits = limits
        self._backfills = backfills
        self._rewinds = Rewinds()
        d = database.dialect
        by_name = "FROM timeball_job WHERE namespace = :namespace AND live_name = :name"
        self._get = sql(f"SELECT {COLUMNS} {by_name}")
        self._declared = sql(f"SELECT declared {by_name}")
        self._lock = sql(f"SELECT {COLUMNS} {by_name} {d.lock}")
        self._update = sql(
            "UPDATE timeball_job SET state = :state, version = version + 1, definition = :definition, "
            "cursor_at = :cursor_at, next_due_at = :next_due_at, anchor_at = :anchor_at, live_name = :live_name, "
            "declared = COALESCE(:declared, declared), problem = NULL, pause = :pause, resume_at = :resume_at, "
            "updated_at = :at "
            "WHERE id = :id AND version = :version"
        )
        # Waits for starts in flight, and then sees what they made of their runs.
        self._live_runs = sql(
            f"SELECT id, state, kind, due_at, attempt, started_at, instance_id FROM timeball_run WHERE job_id = :job_id "
            f"AND state IN ('planned', 'claimed', 'running') ORDER BY id {d.lock}"
        )
        self._decided_early = sql(
            "SELECT due_at FROM timeball_run WHERE job_id = :job_id AND due_at > :at AND due_at <= :at + :early "
            "AND kind = 'scheduled' "
            "AND state NOT IN ('planned', 'claimed') AND instance_id IS NOT NULL ORDER BY due_at DESC LIMIT 1"
        )
        ids = d.any_of("ids", "BIGINT")
        self._remove = sql(f"DELETE FROM timeball_run WHERE id {ids}")
        self._cancel = sql(
            f"UPDATE timeball_run SET state = 'cancelled', reason = :reason, claimable_at = NULL, ended_at = :at "
            f"WHERE id {ids} AND state IN ('planned', 'claimed')"
        )
        self._repoint = sql(
            f"UPDATE timeball_run SET job_version = :version, state = 'planned', "
            f"claimable_at = CASE WHEN claimable_at IS NULL THEN NULL ELSE ready_at END, "
            f"instance_id = NULL, claimed_at = NULL, handler = :handler, requires = :requires, priority = :priority, "
            f"exclusive = :exclusive WHERE id {ids}"
        )
        self._ask_cancel = sql(
            f"UPDATE timeball_run SET cancel_reason = :reason WHERE id {ids} AND state = 'running' "
            f"AND cancel_reason IS NULL"
        )
        self._names = sql(f"SELECT id, name FROM timeball_instance WHERE id {d.any_of('instances', 'TEXT')}")

    def change(
        self,
        namespace: str,
        name: str,
        decide: Callable[[Job, str | None], Change | None],
        *,
        actor: str,
        expected_version: int | None = None,
    ) -> ChangeResult:
        """Change a job as `decide` says, seeing it locked; None from `decide`: nothing to change.

        `decide` gets the job and its last declaration by code. Raises NotFound, Conflict (the version moved on),
        CalendarChanged (a new definition's copy of its calendar is old).
        """

        def work(tx: Transaction) -> ChangeResult:
            row = tx.one(self._lock, namespace=namespace, name=name)
            if row is None:
                raise no_such_job(namespace, name)
            job = read_job(row)
            if expected_version is not None and job.version != expected_version:
                raise Conflict(
                    f"job {name!r} is at version {job.version}, not {expected_version}: somebody changed it",
                    hint="read it again and repeat the change",
                )
            declared = tx.one(self._declared, namespace=namespace, name=name)
            change = decide(job, declared[0] if declared else None)
            live = tx.all(self._live_runs, job_id=job.id)
            running = self._running(tx, [r for r in live if r[1] == "running"])
            if change is None:
                return ChangeResult(job=job, changed=False, removed_runs=0, still_running=running, at=tx.now())
            # What is kept is kept as it stands: its text may say more than this version of the program can read.
            text = row[5] if change.definition is job.definition else change.definition.to_json()
            return self._apply(tx, job, change, text, live, running, actor)

        return self._db.transact(work)

    def _apply(
        self,
        tx: Transaction,
        job: Job,
        change: Change,
        text: str,
        live: Sequence[Row],
        running: Sequence[StillRunning],
        actor: str,
    ) -> ChangeResult:
        if change.definition != job.definition:
            self._holds.hold(tx, job.namespace, change.definition.calendar)
            self._limits.hold(tx, job.namespace, change.definition.limits)
        at = tx.now()
        # Ticks that got their fate a moment early belong to the old version, though they are due after now.
        early = tx.one(self._decided_early, job_id=job.id, at=at, early=EARLY_MAX_US)
        boundary = at if early is None else early[0]
        if change.rewind is not None:
            self._rewinds.take_back(tx, job.id, change.rewind, at)
        unplanned = change.unplanned(boundary) if job.state is JobState.ACTIVE else None
        times = change.times(boundary)
        self._write(tx, job, change, text, times, boundary, at, actor)
        removed = self._settle_pending(tx, job, change, [r for r in live if r[1] != "running"], boundary, at)
        if unplanned is not None:
            tx.count(
                _MISSED,
                job_id=job.id,
                version=job.version,
                first=unplanned.first,
                last=unplanned.last,
                ticks=unplanned.count,
                reason=f"{change.kind} before it was planned",
                at=at,
            )
        if change.cancel_running and running:
            ids = tx.list([r.run_id for r in running])
            tx.count(self._ask_cancel, ids=ids, reason=f"job {change.kind} by {actor}"[:200])
        if change.made_up is not None:
            self._backfills.add(tx, job, job.version + 1, change.made_up(boundary), actor=actor, at=at)
        data = {"name": job.name, "version": job.version + 1, "state": change.state.value, "removed": removed}
        tell_job(tx, namespace=job.namespace, job_id=job.id, kind=f"job.{change.kind}", actor=actor, at=at, data=data)
        deleted = change.state is JobState.DELETED
        row = None if deleted else tx.one(self._get, namespace=job.namespace, name=job.name)
        after = job if row is None else read_job(row)
        return ChangeResult(job=after, changed=True, removed_runs=removed, still_running=running, at=at)

    def _write(
        self,
        tx: Transaction,
        job: Job,
        change: Change,
        text: str,
        times: NewTimes,
        boundary: int,
        at: int,
        actor: str,
    ) -> None:
        pause = None if change.pause is None else change.pause(boundary)
        changed = tx.count(
            self._update,
            id=job.id,
            version=job.version,
            state=change.state.value,
            definition=text,
            cursor_at=times.cursor_at,
            next_due_at=times.next_due_at if change.state is JobState.ACTIVE else None,
            anchor_at=times.anchor_at,
            live_name=None if change.state is JobState.DELETED else job.name,
            declared=change.declared,
            pause=None if pause is None else pause.to_json(),
            resume_at=None if pause is None else pause.resume_at,
            at=at,
        )
        assert changed == 1, "the job's row was locked and yet changed"
        self._versions.add(
            tx,
            job_id=job.id,
            version=job.version + 1,
            state=change.state,
            definition=text,
            from_at=boundary,
            anchor_at=times.anchor_at,
            at=at,
            actor=actor,
            change=change.kind,
        )

    def _settle_pending(
        self, tx: Transaction, job: Job, change: Change, pending: Sequence[Row], boundary: int, at: int
    ) -> int:
        """Runs that have not started: coming ticks are removed (they will be planned anew, or not at all); what is
        due already is cancelled by a stop or a delete, and follows the new definition after an edit."""
        coming = [r[0] for r in pending if r[2] == "scheduled" and r[4] == 1 and r[3] > boundary]
        rest = [r[0] for r in pending if r[0] not in set(coming)]
        if coming:
            tx.count(self._remove, ids=tx.list(coming))
        if rest and (change.cancel_pending or change.placement is None):
            tx.count(self._cancel, ids=tx.list(rest), reason=f"job {change.kind}", at=at)
            return len(coming) + len(rest)
        if rest and change.placement is not None:
            tx.count(
                self._repoint,
                ids=tx.list(rest),
                version=job.version + 1,
                handler=change.placement.handler,
                requires=change.placement.requires,
                priority=change.definition.priority,
                exclusive=int(change.definition.exclusive),
            )
        return len(coming)

    def _running(self, tx: Transaction, rows: Sequence[Row]) -> list[StillRunning]:
        if not rows:
            return []
        instances = tx.list(sorted({r[6] for r in rows if r[6]}))
        names = {r[0]: r[1] for r in tx.all(self._names, instances=instances)}
        return [StillRunning(run_id=r[0], instance=names.get(r[6], r[6] or ""), started_at=r[5]) for r in rows]
