"""Verbs that read what an audit compares: the recorded definitions and the ledger of a period."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from timeball.store.database import Database, sql


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """One version of a job: its ticks after `from_at` count, up to the next version's, if `state` is active."""

    job_id: int
    name: str
    version: int
    from_at: int
    state: str
    definition: str
    anchor_at: int
    purged_until: int
    cursor_at: int


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One scheduled run, or a stretch of missed ticks."""

    run_id: int
    due_at: int
    last_due_at: int | None
    ticks: int
    state: str
    attempt: int
    ready_at: int
    started_at: int | None
    begun_at: int | None
    instance_id: str | None
    ended_at: int | None


class Audits:
    """Reads in slices, so that an audit of months does not hold the ledger in memory."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._versions = sql(
            "SELECT v.job_id, j.name, v.version, v.from_at, v.state, v.definition, v.anchor_at, j.purged_until, "
            "j.cursor_at "
            "FROM timeball_job_version v JOIN timeball_job j ON j.id = v.job_id "
            "WHERE j.namespace = :namespace AND (:job = '' OR j.name = :job) ORDER BY v.job_id, v.version"
        )
        self._ledger = sql(
            "SELECT id, due_at, last_due_at, ticks, state, attempt, ready_at, started_at, begun_at, instance_id, ended_at FROM timeball_run "
            "WHERE job_id = :job_id AND salt = 0 AND due_at > :after AND due_at <= :until ORDER BY due_at LIMIT :limit"
        )
        self._stretch_before = sql(
            "SELECT id, due_at, last_due_at, ticks, state, attempt, ready_at, started_at, begun_at, instance_id, ended_at FROM timeball_run "
            "WHERE job_id = :job_id AND salt = 0 AND due_at <= :after AND last_due_at > :after"
        )

    def versions(self, namespace: str, job: str | None) -> list[VersionRow]:
        """Every version of every job, deleted ones too, in order."""
        rows = self._db.read(lambda tx: tx.all(self._versions, namespace=namespace, job=job or ""))
        return [
            VersionRow(
                job_id=r[0],
                name=r[1],
                version=r[2],
                from_at=r[3],
                state=r[4],
                definition=r[5],
                anchor_at=r[6],
                purged_until=r[7],
                cursor_at=r[8],
            )
            for r in rows
        ]

    def ledger(self, job_id: int, *, after: int, until: int, slice_max: int = 5000) -> Iterator[LedgerRow]:
        """Scheduled runs of a job, due after one instant and up to another, in order; a stretch that began before too."""
        for row in self._db.read(lambda tx: tx.all(self._stretch_before, job_id=job_id, after=after)):
            yield LedgerRow(*row)
        position = after
        while True:
            rows = self._db.read(
                lambda tx, p=position: tx.all(self._ledger, job_id=job_id, after=p, until=until, limit=slice_max)
            )
            for row in rows:
                yield LedgerRow(*row)
            if len(rows) < slice_max:
                return
            position = rows[-1][1]
