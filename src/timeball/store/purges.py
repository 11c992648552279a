"""Verbs of the janitor: retention in bounded batches. Never touches what lives, nor a key that planning may need."""

from __future__ import annotations

from timeball.model.cluster import Term
from timeball.store.database import Database, Transaction, sql
from timeball.store.leases import Leases

SURPLUS_MAX = 300
_FAILURES = "('failed', 'timed_out', 'lost')"
_OTHERS = "('succeeded', 'cancelled', 'skipped', 'missed')"
_FATES = f"({_FAILURES[1:-1]}, {_OTHERS[1:-1]})"


class Purges:
    """Each verb one short transaction; call again while it says there is more."""

    def __init__(self, database: Database, leases: Leases) -> None:
        self._db = database
        self._leases = leases
        d = database.dialect
        ids = d.any_of("ids", "BIGINT")
        # In the order of the primary key, from where the last pass ended: old rows have low ids.
        self._scan = sql(
            "SELECT r.id, r.state, r.ended_at, r.due_at, j.cursor_at, j.namespace, r.job_id FROM timeball_run r "
            "JOIN timeball_job j ON j.id = r.job_id WHERE r.id > :after ORDER BY r.id LIMIT :limit"
        )
        self._jobs = sql(
            "SELECT id FROM timeball_job WHERE namespace = :namespace AND id > :after ORDER BY id LIMIT :limit"
        )
        self._surplus = [
            sql(
                f"SELECT id, due_at FROM timeball_run WHERE job_id = :job_id AND state IN {states} "
                f"AND due_at <= :until ORDER BY due_at DESC LIMIT :limit OFFSET :keep"
            )
            for states in (_FAILURES, _OTHERS)
        ]
        self._runs = sql(f"DELETE FROM timeball_run WHERE id {ids} AND state IN {_FATES}")
        gone = d.rows("v", "gone", id="BIGINT", until="BIGINT")
        self._lock_jobs = sql(f"SELECT id FROM timeball_job WHERE id {ids} ORDER BY id {d.lock}")
        self._note = sql(
            f"UPDATE timeball_job SET purged_until = v.until FROM {gone} WHERE timeball_job.id {ids} "
            f"AND timeball_job.id = v.id AND timeball_job.purged_until < v.until"
        )
        self._attempts = sql(f"DELETE FROM timeball_attempt WHERE run_id {ids}")
        self._outputs = sql(f"DELETE FROM timeball_output WHERE run_id {ids}")
        self._progress = sql(f"DELETE FROM timeball_progress WHERE run_id {ids}")
        self._events = sql(
            "DELETE FROM timeball_event WHERE id IN (SELECT id FROM timeball_event WHERE at < :before "
            "AND namespace = :namespace ORDER BY at LIMIT :limit)"
        )
        self._instances = sql(
            "DELETE FROM timeball_instance WHERE namespace = :namespace AND state IN ('expired', 'stopped') "
            "AND heartbeat_at < :before AND NOT EXISTS (SELECT 1 FROM timeball_run r "
            "WHERE r.instance_id = timeball_instance.id AND r.state IN ('planned', 'claimed', 'running'))"
        )

    def runs_by_age(self, term: Term, *, before: int, after_id: int, limit: int = 1000) -> int | None:
        """Remove runs that ended before an instant; the id to go on from, or None when the old part is done."""

        def work(tx: Transaction) -> int | None:
            self._leases.prove(tx, term)
            rows = tx.all(self._scan, after=after_id, limit=limit)
            # A tick at or after its job's cursor could be planned again: its key stays.
            old = [r for r in rows if r[2] is not None and r[2] < before and r[3] < min(before, r[4])]
            self._remove(tx, [(r[0], r[6], r[3]) for r in old if r[5] == term.namespace])
            done = len(rows) < limit or not old
            return None if done else rows[-1][0]

        return self._db.transact(work)

    def runs_by_count(self, term: Term, *, keep: int, until: int, after_job: int, limit: int = 50) -> int | None:
        """Remove what a job has beyond its newest `keep` failures and `keep` others; the job to go on from, or None.

        Counted apart, so that the many successes of a frequent job do not push out the few failures.
        """

        def work(tx: Transaction) -> int | None:
            self._leases.prove(tx, term)
            jobs = [row[0] for row in tx.all(self._jobs, namespace=term.namespace, after=after_job, limit=limit)]
            removed = 0
            for job_id in jobs:
                surplus = [
                    row
                    for statement in self._surplus
                    for row in tx.all(statement, job_id=job_id, until=until, keep=keep, limit=SURPLUS_MAX)
                ]
                self._remove(tx, [(row[0], job_id, row[1]) for row in surplus])
                removed += len(surplus)
                if removed >= SURPLUS_MAX:  # one of them may have come full: look at this job again
                    return job_id - 1
            return jobs[-1] if len(jobs) == limit else None

        return self._db.transact(work)

    def events(self, term: Term, *, before: int, limit: int = 1000) -> int:
        """Remove events from before an instant; how many went."""

        def work(tx: Transaction) -> int:
            self._leases.prove(tx, term)
            return tx.count(self._events, namespace=term.namespace, before=before, limit=limit)

        return self._db.transact(work)

    def instances(self, term: Term, *, before: int) -> int:
        """Remove instances that left or expired before an instant and have nothing in hand; how many went."""

        def work(tx: Transaction) -> int:
            self._leases.prove(tx, term)
            return tx.count(self._instances, namespace=term.namespace, before=before)

        return self._db.transact(work)

    def _remove(self, tx: Transaction, runs: list[tuple[int, int, int]]) -> None:
        """Remove runs given as (id, job id, due_at), and note how far each job's history is gone."""
        if not runs:
            return
        ids = tx.list(sorted(run_id for run_id, _, _ in runs))
        for statement in (self._outputs, self._progress, self._attempts, self._runs):
            tx.count(statement, ids=ids)
        gone: dict[int, int] = {}
        for _, job_id, due_at in runs:
            gone[job_id] = max(gone.get(job_id, 0), due_at)
        tx.join_by_hash()
        tx.all(self._lock_jobs, ids=tx.list(sorted(gone)))
        tx.count(self._note, ids=tx.list(sorted(gone)), **tx.rows("gone", sorted(gone.items()), 2))
