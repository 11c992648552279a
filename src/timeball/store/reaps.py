"""Verbs of the reaper: instances that expired, the runs they leave behind, and ticks that misfired."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timeball.clock import STEP_BACK_US
from timeball.model.cluster import Term
from timeball.store.database import Database, Row, Transaction, sql
from timeball.store.events import add_event
from timeball.store.leases import Leases
from timeball.store.schema import NO_LIMIT
from timeball.store.settles import keep_record
from timeball.store.wake import work_channel

SUPERSEDED = "misfire: a later tick runs in its place; policy run_once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A run that is running by the ledger, on an instance that is gone. `definition` is its version's JSON."""

    run_id: int
    job_id: int
    attempt: int
    fence: int
    lost_count: int
    instance_id: str
    instance: str
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRun:
    """The verdict on an orphan."""

    orphan: Orphan
    rerun: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueJob:
    """Pending ticks of one job of which some have misfired; each row is (run id, due_at, start_by)."""

    job_id: int
    definition: str
    rows: Sequence[tuple[int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MisfireVerdict:
    """Runs that are missed, and runs that may start late after all with their new `start_by`.

    `superseded`: runs that were kept so before and are missed now, because a later tick runs in their place.
    """

    missed: Sequence[int]
    kept: Sequence[tuple[int, int]]
    reason: str
    superseded: Sequence[int] = ()


class Reaps:
    """Only for the leader: every transaction proves its term."""

    def __init__(self, database: Database, leases: Leases) -> None:
        self._db = database
        self._leases = leases
        d = database.dialect
        ids = d.any_of("ids", "BIGINT")
        self._expired = sql(
            f"SELECT id, name FROM timeball_instance WHERE namespace = :namespace AND state IN ('active', 'draining') "
            f"AND expires_at < {d.now} ORDER BY id LIMIT :limit {d.skip_locked}"
        )
        # A heartbeat of the future: the clock went back. The membership goes on for its length, from now.
        self._mend = sql(
            f"UPDATE timeball_instance SET expires_at = {d.now} + (expires_at - heartbeat_at), heartbeat_at = {d.now} "
            f"WHERE namespace = :namespace AND state IN ('active', 'draining') AND heartbeat_at > {d.now} + :tolerance"
        )
        gone = d.any_of("gone", "TEXT")
        self._expire = sql(
            f"UPDATE timeball_instance SET state = 'expired' WHERE id {gone} AND state IN ('active', 'draining') "
            f"AND expires_at < {d.now} RETURNING id"
        )
        self._free_claims = sql(
            f"UPDATE timeball_run SET state = 'planned', instance_id = NULL, claimed_at = NULL, "
            f"claimable_at = ready_at "
            f"WHERE instance_id {gone} AND state = 'claimed'"
        )
        self._orphans = sql(
            f"SELECT r.id, r.job_id, r.attempt, r.fence, r.lost_count, i.id, i.name, v.definition "
            f"FROM timeball_instance i JOIN timeball_run r ON r.instance_id = i.id AND r.state = 'running' "
            f"JOIN timeball_job_version v ON v.job_id = r.job_id AND v.version = r.job_version "
            f"WHERE i.namespace = :namespace AND i.state IN ('expired', 'stopped') AND {d.unheld('r.id')} "
            f"ORDER BY r.id LIMIT :limit"
        )
        lost = d.rows("v", "losts", id="BIGINT", attempt="INTEGER", fence="BIGINT", reason="TEXT")
        self._lose = sql(
            f"UPDATE timeball_run SET state = 'lost', reason = v.reason, ended_at = {d.now}, "
            f"lost_count = timeball_run.lost_count + 1 FROM {lost} WHERE timeball_run.id {ids} "
            f"AND timeball_run.id = v.id AND timeball_run.attempt = v.attempt AND timeball_run.fence = v.fence "
            f"AND timeball_run.state = 'running' AND {d.unheld('timeball_run.id')} RETURNING timeball_run.id"
        )
        self._keep_record = sql(keep_record(f"WHERE id {ids}"))
        self._rerun = sql(
            f"UPDATE timeball_run SET state = 'planned', attempt = attempt + 1, ready_at = {d.now}, claimable_at = {d.now}, "
            f"start_by = :never, instance_id = NULL, fence = NULL, claimed_at = NULL, started_at = NULL, begun_at = NULL, "
            f"ended_at = NULL, reason = NULL, cancel_reason = NULL WHERE id {ids} AND state = 'lost' "
            f"AND (SELECT j.version FROM timeball_job j WHERE j.id = timeball_run.job_id "
            f"AND (j.state = 'active' OR (timeball_run.kind <> 'scheduled' AND j.state IN ('stopped', 'paused')))) = job_version"
        )
        self._lock_jobs = sql(
            f"SELECT id FROM timeball_job WHERE id {d.any_of('jobs', 'BIGINT')} ORDER BY id {d.lock_shared}"
        )
        self._misfired_jobs = sql(
            f"SELECT DISTINCT r.job_id FROM timeball_run r JOIN timeball_job j ON j.id = r.job_id "
            f"WHERE r.claimable_at IS NOT NULL AND r.claimable_at <= {d.now} AND r.start_by < {d.now} "
            f"AND j.namespace = :namespace AND (j.next_due_at IS NULL OR j.next_due_at > {d.now}) LIMIT :limit"
        )
        self._overdue = sql(
            f"SELECT r.job_id, v.definition, r.id, r.due_at, r.start_by FROM timeball_run r "
            f"JOIN timeball_job_version v ON v.job_id = r.job_id AND v.version = r.job_version "
            f"WHERE r.job_id {d.any_of('jobs', 'BIGINT')} AND r.state IN ('planned', 'claimed') "
            f"AND r.kind = 'scheduled' AND r.attempt = 1 AND r.ready_at <= {d.now} ORDER BY r.job_id, r.due_at"
        )
        waiting = f"id {ids} AND state IN ('planned', 'claimed')"
        pending = f"{waiting} AND start_by < {d.now}"
        miss = f"UPDATE timeball_run SET state = 'missed', reason = :reason, claimable_at = NULL, ended_at = {d.now} "
        self._miss = sql(f"{miss} WHERE {pending}")
        self._supersede = sql(f"{miss} WHERE {waiting}")
        self._allow = sql(f"UPDATE timeball_run SET start_by = :start_by WHERE {pending}")

    def expire_members(self, term: Term, *, limit: int = 100) -> list[str]:
        """Give up instances whose membership has run out, and free their claims; the names of those given up."""

        def work(tx: Transaction) -> list[str]:
            self._leases.prove(tx, term)
            tx.count(self._mend, namespace=term.namespace, tolerance=STEP_BACK_US)
            names = {row[0]: row[1] for row in tx.all(self._expired, namespace=term.namespace, limit=limit)}
            if not names:
                return []
            gone = [row[0] for row in tx.all(self._expire, gone=tx.list(sorted(names)))]
            tx.count(self._free_claims, gone=tx.list(gone))
            for instance_id in gone:
                add_event(
                    tx,
                    at=tx.now(),
                    namespace=term.namespace,
                    kind="instance.expired",
                    instance_id=instance_id,
                    actor=term.holder,
                    data={"name": names[instance_id]},
                )
            if gone:
                tx.notify(work_channel(term.namespace))
            return [names[instance_id] for instance_id in gone]

        return self._db.transact(work)

    def orphans(self, term: Term, *, limit: int = 200) -> list[Orphan]:
        """Runs that are running on an instance that has expired or left, and that no transaction of theirs holds."""
        rows = self._db.read(lambda tx: tx.all(self._orphans, namespace=term.namespace, limit=limit))
        return [
            Orphan(
                run_id=r[0],
                job_id=r[1],
                attempt=r[2],
                fence=r[3],
                lost_count=r[4],
                instance_id=r[5],
                instance=r[6],
                definition=r[7],
            )
            for r in rows
        ]

    def lose(self, term: Term, losses: Sequence[LostRun]) -> int:
        """Mark orphans lost and plan those again that their job wants again; how many were still running.

        An owner that settles at the same moment and commits first wins: its run is not running any more. A run whose
        own transaction has checked its fence (see `fences`) is left for later: that transaction may still commit.
        """
        ordered = sorted(losses, key=lambda loss: loss.orphan.run_id)

        def work(tx: Transaction) -> int:
            self._leases.prove(tx, term)
            tx.join_by_hash()
            rows = [(x.orphan.run_id, x.orphan.attempt, x.orphan.fence, x.reason) for x in ordered]
            # Jobs before runs, as all who change a job lock them.
            jobs = sorted({x.orphan.job_id for x in ordered if x.rerun})
            if jobs:
                tx.all(self._lock_jobs, jobs=tx.list(jobs))
            lost = {
                row[0] for row in tx.all(self._lose, ids=tx.list([r[0] for r in rows]), **tx.rows("losts", rows, 4))
            }
            again = [x.orphan for x in ordered if x.rerun and x.orphan.run_id in lost]
            if again:
                ids = tx.list([o.run_id for o in again])
                tx.count(self._keep_record, ids=ids)
                tx.count(self._rerun, ids=ids, never=NO_LIMIT)
                tx.notify(work_channel(term.namespace))
            return len(lost)

        return self._db.transact(work)

    def resolve_misfires(self, term: Term, decide: Callable[[OverdueJob], MisfireVerdict], *, limit: int = 100) -> int:
        """Give planned ticks that could not start in time their fate; how many rows changed.

        Jobs whose overdue ticks are not all planned yet wait for the planner, which sees the whole stretch.
        """

        def work(tx: Transaction) -> int:
            self._leases.prove(tx, term)
            jobs = [row[0] for row in tx.all(self._misfired_jobs, namespace=term.namespace, limit=limit)]
            changed = 0
            for job in _overdue_jobs(tx.all(self._overdue, jobs=tx.list(sorted(jobs))) if jobs else []):
                verdict = decide(job)
                if verdict.missed:
                    changed += tx.count(self._miss, ids=tx.list(sorted(verdict.missed)), reason=verdict.reason)
                if verdict.superseded:
                    ids = tx.list(sorted(verdict.superseded))
                    changed += tx.count(self._supersede, ids=ids, reason=SUPERSEDED)
                for run_id, start_by in verdict.kept:
                    changed += tx.count(self._allow, ids=tx.list([run_id]), start_by=start_by)
            if changed:
                tx.notify(work_channel(term.namespace))
            return changed

        return self._db.transact(work)


def _overdue_jobs(rows: Sequence[Row]) -> list[OverdueJob]:
    grouped: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    definitions: dict[int, str] = {}
    for job_id, definition, run_id, due_at, start_by in rows:
        grouped[job_id].append((run_id, due_at, start_by))
        definitions[job_id] = definition
    return [OverdueJob(job_id=job_id, definition=definitions[job_id], rows=grouped[job_id]) for job_id in grouped]
