"""Verbs that read runs: lists, one run, its outputs and earlier attempts, wishes to cancel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from timeball.errors import NotFound
from timeball.model.run import Output
from timeball.store.database import Database, Row, Transaction, sql

_COLUMNS = (
    "r.id, j.name, r.kind, r.due_at, r.ready_at, r.state, r.reason, r.attempt, r.fence, COALESCE(i.name, r.instance_id), "
    "r.claimed_at, r.started_at, r.begun_at, r.ended_at, r.error, r.result, r.job_version, r.ticks, r.last_due_at, r.late, "
    "r.args, r.cancel_reason, p.fraction, p.text, p.at"
)
_FROM = (
    "FROM timeball_run r JOIN timeball_job j ON j.id = r.job_id LEFT JOIN timeball_instance i ON i.id = r.instance_id "
    "LEFT JOIN timeball_progress p ON p.run_id = r.id AND p.fence = r.fence"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as stored. Instants in microseconds UTC. `instance`: the name of who has or had it.

    `progress`: 0 to 1, by the word of this attempt's work at `progress_at`; None where it has said nothing.
    """

    id: int
    job: str
    kind: str
    due_at: int
    ready_at: int
    state: str
    reason: str | None
    attempt: int
    fence: int | None
    instance: str | None
    claimed_at: int | None
    started_at: int | None
    begun_at: int | None
    ended_at: int | None
    error: str | None
    result: str | None
    job_version: int
    ticks: int
    last_due_at: int | None
    late: bool
    args: str | None
    cancel_reason: str | None
    progress: float | None = None
    progress_text: str | None = None
    progress_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs a list shows; instants bound `due_at`, `since` inclusive, `until` exclusive."""

    job: str | None = None
    states: Sequence[str] = field(default=())
    since: int | None = None
    until: int | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAttempt:
    """An attempt that another one followed."""

    attempt: int
    state: str
    reason: str | None
    instance: str | None
    fence: int | None
    started_at: int | None
    ended_at: int | None
    error: str | None


class Runs:
    """The ledger, for reading."""

    def __init__(self, database: Database) -> None:
        self._db = database
        d = database.dialect
        self._one = sql(f"SELECT {_COLUMNS} {_FROM} WHERE j.namespace = :namespace AND r.id = :id")
        self._outputs = sql(
            "SELECT stream, text, bytes_total, bytes_cut FROM timeball_output WHERE run_id = :id AND attempt = :attempt "
            "ORDER BY stream"
        )
        self._attempts = sql(
            "SELECT a.attempt, a.state, a.reason, COALESCE(i.name, a.instance_id), a.fence, a.started_at, a.ended_at, "
            "a.error FROM timeball_attempt a LEFT JOIN timeball_instance i ON i.id = a.instance_id "
            "WHERE a.run_id = :id ORDER BY a.attempt"
        )
        self._cancels = sql(
            f"SELECT id, cancel_reason FROM timeball_run WHERE id {d.any_of('ids', 'BIGINT')} AND state = 'running' "
            f"AND cancel_reason IS NOT NULL"
        )
        self._states = sql(f"SELECT id, state FROM timeball_run WHERE id {d.any_of('ids', 'BIGINT')}")

    def list(self, namespace: str, wanted: RunFilter) -> list[StoredRun]:
        """Runs, the latest due first; without a filter on due instants the latest made first."""

        def work(tx: Transaction) -> list[StoredRun]:
            conditions, binds = _conditions(tx, wanted)
            order = "r.due_at DESC, r.id DESC" if wanted.job else "r.id DESC"
            statement = sql(
                f"SELECT {_COLUMNS} {_FROM} WHERE j.namespace = :namespace{conditions} ORDER BY {order} LIMIT :limit"
            )
            return [_run(row) for row in tx.all(statement, namespace=namespace, limit=wanted.limit, **binds)]

        return self._db.read(work)

    def get(self, namespace: str, run_id: int) -> StoredRun:
        """One run. Raises NotFound."""
        row = self._db.read(lambda tx: tx.one(self._one, namespace=namespace, id=run_id))
        if row is None:
            raise no_such_run(run_id)
        return _run(row)

    def outputs(self, run_id: int, attempt: int) -> list[Output]:
        """What an attempt left, by stream."""
        rows = self._db.read(lambda tx: tx.all(self._outputs, id=run_id, attempt=attempt))
        return [Output(stream=r[0], text=r[1], bytes_total=r[2], bytes_cut=r[3]) for r in rows]

    def attempts(self, run_id: int) -> list[StoredAttempt]:
        """Earlier attempts, the first first; the current one is the run itself."""
        rows = self._db.read(lambda tx: tx.all(self._attempts, id=run_id))
        return [
            StoredAttempt(
                attempt=r[0],
                state=r[1],
                reason=r[2],
                instance=r[3],
                fence=r[4],
                started_at=r[5],
                ended_at=r[6],
                error=r[7],
            )
            for r in rows
        ]

    def wishes_to_cancel(self, run_ids: Sequence[int]) -> dict[int, str]:
        """Of these running runs, those that somebody wants cancelled, with the reason."""
        if not run_ids:
            return {}
        rows = self._db.read(lambda tx: tx.all(self._cancels, ids=tx.list(sorted(run_ids))))
        return {row[0]: row[1] for row in rows}

    def states(self, run_ids: Sequence[int]) -> dict[int, str]:
        """The states of some runs; those that are gone are left out."""
        rows = self._db.read(lambda tx: tx.all(self._states, ids=tx.list(sorted(run_ids))))
        return {row[0]: row[1] for row in rows}


def no_such_run(run_id: int) -> NotFound:
    """The error for a number that no run of the namespace has."""
    return NotFound(f"there is no run {run_id}", hint="timeball runs list; retention removes old runs", field="id")


def _conditions(tx: Transaction, wanted: RunFilter) -> tuple[str, dict[str, Any]]:
    parts: list[str] = []
    binds: dict[str, Any] = {}
    if wanted.job is not None:
        parts.append("j.name = :job")
        binds["job"] = wanted.job
    if wanted.states:
        parts.append(f"r.state {tx.dialect.any_of('states', 'TEXT')}")
        binds["states"] = tx.list(list(wanted.states))
    if wanted.since is not None:
        parts.append("r.due_at >= :since")
        binds["since"] = wanted.since
    if wanted.until is not None:
        parts.append("r.due_at < :until")
        binds["until"] = wanted.until
    return "".join(f" AND {part}" for part in parts), binds


def _run(r: Row) -> StoredRun:
    return StoredRun(
        id=r[0],
        job=r[1],
        kind=r[2],
        due_at=r[3],
        ready_at=r[4],
        state=r[5],
        reason=r[6],
        attempt=r[7],
        fence=r[8],
        instance=r[9],
        claimed_at=r[10],
        started_at=r[11],
        begun_at=r[12],
        ended_at=r[13],
        error=r[14],
        result=r[15],
        job_version=r[16],
        ticks=r[17],
        last_due_at=r[18],
        late=bool(r[19]),
        args=r[20],
        cancel_reason=r[21],
        progress=r[22],
        progress_text=r[23],
        progress_at=r[24],
    )
