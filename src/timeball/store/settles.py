"""The verb of the settle: how attempts ended, each named by run, attempt and fence. Zero rows: we were superseded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from timeball.model.run import Output
from timeball.store.database import Database, Row, Transaction, sql
from timeball.store.events import add_event
from timeball.store.schema import NO_LIMIT


class Ending(NamedTuple):
    """An attempt's end, in cluster instants (microseconds). `retry_at`: when the next attempt is due, or None."""

    run_id: int
    job_id: int
    attempt: int
    fence: int
    state: str
    begun_at: int
    ended_at: int
    reason: str | None = None
    error: str | None = None
    result: str | None = None
    retry_at: int | None = None
    outputs: Sequence[Output] = ()


class Settles:
    """One batch, one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database
        d = database.dialect
        ids = d.any_of("ids", "BIGINT")
        named = (
            f"timeball_run.id {ids} AND timeball_run.id = v.id AND timeball_run.attempt = v.attempt "
            f"AND timeball_run.fence = v.fence AND timeball_run.state IN ('running', 'lost')"
            # What is lost by the leader's verdict is not lost once more by its owner's word.
            f" AND (timeball_run.state = 'running' OR v.state <> 'lost')"
        )
        finals = d.rows(
            "v",
            "ends",
            id="BIGINT",
            attempt="INTEGER",
            fence="BIGINT",
            state="TEXT",
            begun_at="BIGINT",
            ended_at="BIGINT",
            reason="TEXT",
            error="TEXT",
            result="TEXT",
        )
        self._end = sql(
            f"UPDATE timeball_run SET late = CASE WHEN timeball_run.state = 'lost' THEN 1 ELSE 0 END, state = v.state, "
            f"begun_at = v.begun_at, ended_at = v.ended_at, reason = v.reason, error = v.error, result = v.result "
            f"FROM {finals} WHERE {named} RETURNING timeball_run.id"
        )
        self._lock_jobs = sql(
            f"SELECT id, version FROM timeball_job WHERE id {d.any_of('jobs', 'BIGINT')} "
            f"AND state IN ('active', 'stopped', 'paused') ORDER BY id {d.lock_shared}"
        )
        self._retriable = sql(
            f"SELECT r.id FROM timeball_run r, timeball_job j WHERE r.id {ids} AND j.id = r.job_id "
            f"AND j.version = r.job_version AND (j.state = 'active' OR r.kind <> 'scheduled')"
        )
        again = d.rows("v", "ends", id="BIGINT", attempt="INTEGER", fence="BIGINT", retry_at="BIGINT")
        self._keep_record = sql(keep_record(f"WHERE id {ids}"))
        self._again = sql(
            f"UPDATE timeball_run SET state = 'planned', attempt = timeball_run.attempt + 1, ready_at = v.retry_at, "
            f"claimable_at = v.retry_at, start_by = :never, instance_id = NULL, fence = NULL, claimed_at = NULL, "
            f"started_at = NULL, begun_at = NULL, ended_at = NULL, reason = NULL, error = NULL, cancel_reason = NULL, "
            f"late = 0 FROM {again} WHERE timeball_run.id {ids} AND timeball_run.id = v.id "
            f"AND timeball_run.attempt = v.attempt AND timeball_run.fence = v.fence"
        )
        self._ended = sql(
            f"SELECT id, attempt, fence, state, begun_at FROM timeball_run WHERE id {ids} "
            f"UNION ALL SELECT run_id, attempt, fence, state, begun_at FROM timeball_attempt WHERE run_id {ids}"
        )
        outputs = d.rows(
            "v",
            "outs",
            run_id="BIGINT",
            attempt="INTEGER",
            stream="TEXT",
            text="TEXT",
            total="BIGINT",
            cut="BIGINT",
        )
        self._outputs = sql(
            f"INSERT INTO timeball_output (run_id, attempt, stream, text, bytes_total, bytes_cut) "
            f"SELECT run_id, attempt, stream, text, total, cut FROM {outputs} WHERE true "
            f"ON CONFLICT (run_id, attempt, stream) DO NOTHING"
        )

    def settle(self, endings: Sequence[Ending], *, namespace: str, instance_id: str) -> frozenset[int]:
        """Write how attempts ended and what follows. Returns the runs that accepted it; the others were superseded.

        Safe to repeat after an unknown commit: an attempt that has its end already does not take another.
        """
        ordered = sorted(endings, key=lambda e: e.run_id)

        def work(tx: Transaction) -> frozenset[int]:
            tx.join_by_hash()
            # Jobs before runs, as all who change a job lock them.
            again = sorted({e.job_id for e in ordered if e.retry_at is not None})
            if again:
                tx.all(self._lock_jobs, jobs=tx.list(again))
            accepted = {
                row[0]
                for row in tx.all(
                    self._end,
                    ids=tx.list([e.run_id for e in ordered]),
                    **tx.rows("ends", [_end_row(e) for e in ordered], 9),
                )
            }
            self._plan_again(tx, [e for e in ordered if e.retry_at is not None and e.run_id in accepted])
            self._write_outputs(tx, [e for e in ordered if e.run_id in accepted])
            refused = [e for e in ordered if e.run_id not in accepted]
            written = self._written_before(tx, refused)
            self._tell_superseded(tx, [e for e in refused if e.run_id not in written], namespace, instance_id)
            return frozenset(accepted | written)

        return self._db.transact(work)

    def _written_before(self, tx: Transaction, endings: Sequence[Ending]) -> set[int]:
        """Endings that an earlier try wrote, whose commit went through though its answer was lost.

        Only an owner writes when the work began: a person's word of the same end is none of its writes.
        """
        if not endings:
            return set()
        found = {tuple(row) for row in tx.all(self._ended, ids=tx.list([e.run_id for e in endings]))}
        return {e.run_id for e in endings if (e.run_id, e.attempt, e.fence, e.state, e.begun_at) in found}

    def _plan_again(self, tx: Transaction, endings: Sequence[Ending]) -> None:
        """Further attempts, for jobs that nobody has stopped or changed meanwhile (their rows are locked shared)."""
        if not endings:
            return
        rows = tx.all(self._retriable, ids=tx.list([e.run_id for e in endings]))
        free = {row[0] for row in rows}
        again = [e for e in endings if e.run_id in free]
        if not again:
            return
        ids = tx.list([e.run_id for e in again])
        tx.count(self._keep_record, ids=ids)
        tx.count(
            self._again,
            ids=ids,
            never=NO_LIMIT,
            **tx.rows("ends", [(e.run_id, e.attempt, e.fence, e.retry_at) for e in again], 4),
        )

    def _write_outputs(self, tx: Transaction, endings: Sequence[Ending]) -> None:
        rows = [(e.run_id, e.attempt, o.stream, o.text, o.bytes_total, o.bytes_cut) for e in endings for o in e.outputs]
        if rows:
            tx.count(self._outputs, **tx.rows("outs", rows, 6))

    def _tell_superseded(self, tx: Transaction, endings: Sequence[Ending], namespace: str, instance_id: str) -> None:
        for ending in endings:
            add_event(
                tx,
                at=tx.now(),
                namespace=namespace,
                kind="run.superseded",
                job_id=ending.job_id,
                run_id=ending.run_id,
                instance_id=instance_id,
                actor=instance_id,
                data={"attempt": ending.attempt, "fence": ending.fence, "refused_state": ending.state},
            )


def keep_record(condition: str) -> str:
    """Copy the current attempt's record of runs to the attempts table, before another attempt takes its place."""
    return (
        f"INSERT INTO timeball_attempt (run_id, attempt, state, reason, instance_id, fence, ready_at, started_at, "
        f"begun_at, ended_at, error) SELECT id, attempt, state, reason, instance_id, fence, ready_at, started_at, "
        f"begun_at, ended_at, error FROM timeball_run {condition} ON CONFLICT (run_id, attempt) DO NOTHING"
    )


def _end_row(e: Ending) -> Row:
    return (e.run_id, e.attempt, e.fence, e.state, e.begun_at, e.ended_at, e.reason, e.error, e.result)
