"""Verbs that read what was: who changed a job when, what a tick became."""

from __future__ import annotations

from dataclasses import dataclass

from timeball.store.database import Database, sql

RUNS_MAX = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PastVersion:
    """One version of a job. Its ticks after `from_at` count, up to the next version's, if `state` is active."""

    job_id: int
    version: int
    from_at: int
    state: str
    definition: str
    anchor_at: int
    changed_at: int
    actor: str
    change: str
    purged_until: int


class Histories:
    """The past of jobs and ticks, as far as it is kept."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._versions = sql(
            "SELECT v.job_id, v.version, v.from_at, v.state, v.definition, v.anchor_at, v.changed_at, v.actor, v.change, "
            "j.purged_until FROM timeball_job j JOIN timeball_job_version v ON v.job_id = j.id "
            "WHERE j.namespace = :namespace AND j.name = :name ORDER BY v.job_id, v.version"
        )
        self._runs = sql(
            "SELECT id FROM timeball_run WHERE job_id = :job_id AND due_at < :until "
            "AND (due_at >= :since OR last_due_at >= :since) ORDER BY due_at, id LIMIT :limit"
        )

    def versions(self, namespace: str, name: str) -> list[PastVersion]:
        """Every version of every job that had the name, deleted ones too, in order."""
        rows = self._db.read(lambda tx: tx.all(self._versions, namespace=namespace, name=name))
        return [
            PastVersion(
                job_id=r[0],
                version=r[1],
                from_at=r[2],
                state=r[3],
                definition=r[4],
                anchor_at=r[5],
                changed_at=r[6],
                actor=r[7],
                change=r[8],
                purged_until=r[9],
            )
            for r in rows
        ]

    def runs(self, job_id: int, *, since: int, until: int) -> list[int]:
        """Runs of a job that are due in `since <= due < until`, of every kind, and stretches of missed ticks there."""
        binds = {"job_id": job_id, "since": since, "until": until, "limit": RUNS_MAX}
        return [row[0] for row in self._db.read(lambda tx: tx.all(self._runs, **binds))]
