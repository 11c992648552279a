"""The verb of the start: claimed becomes running, where the claim is ours, the job unchanged, and overlap allows it.

Only what this returns is executed. Whichever commits first, this or a stop, the other finds the row changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from timeball.model.cluster import Term
from timeball.model.job import Definition, Overlap
from timeball.policy.limits import Permits, Wanting, share
from timeball.policy.overlap import Candidate, Decision, Elsewhere, Running, Verdict, decide_starts
from timeball.store.claims import JOB_UNCHANGED, STARTED_COLUMNS, Claim, Started, member_valid
from timeball.store.database import Database, Transaction, sql
from timeball.store.leases import Leases
from timeball.store.permits import PermitCounts
from timeball.store.schema import NO_LIMIT, REASON_CHARS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class StartResult:
    """What became of a batch.

    Started, waiting for their turn (still ours), parked (given back until a limit may let them start), skipped by
    policy (and why), or no longer ours.
    """

    started: Sequence[Started]
    waiting: frozenset[int]
    parked: frozenset[int]
    skipped: Mapping[int, str]
    cancelled: frozenset[int]


class _Outdated(Exception):
    """Rolls a start back: these claims carry another version than their runs."""

    def __init__(self, run_ids: frozenset[int]) -> None:
        super().__init__(run_ids)
        self.run_ids = run_ids


class _Shared(NamedTuple):
    """Decisions once limits have been asked; `parked`: from when on those may be claimed again."""

    decisions: Sequence[Decision]
    permits: Mapping[str, Permits]
    ids: Mapping[str, int]
    parked: Mapping[int, int]


class Starts:
    """One batch, one transaction."""

    def __init__(self, database: Database, leases: Leases, permits: PermitCounts) -> None:
        self._db = database
        self._permits = permits
        self._leases = leases
        d = database.dialect
        ids = d.any_of("ids", "BIGINT")
        jobs = d.any_of("jobs", "BIGINT")
        ours = "state = 'claimed' AND instance_id = :me"
        self._gate = sql(f"SELECT job_id FROM timeball_gate WHERE job_id {jobs} ORDER BY job_id {d.lock}")
        self._running = sql(
            f"SELECT r.job_id, r.id, r.started_at, COALESCE(i.name, '') FROM timeball_run r "
            f"LEFT JOIN timeball_instance i ON i.id = r.instance_id WHERE r.job_id {jobs} AND r.state = 'running'"
        )
        self._elsewhere = sql(
            f"SELECT job_id, count(*), min(CASE WHEN start_by >= {d.now} THEN ready_at END) FROM timeball_run "
            f"WHERE job_id {jobs} AND state IN ('planned', 'claimed') AND ready_at <= {d.now} + :lead "
            f"AND NOT (id {ids}) GROUP BY job_id"
        )
        self._start = sql(
            f"UPDATE timeball_run SET state = 'running', started_at = {d.greatest}(ready_at, {d.now}), "
            f"fence = {d.fence}, claimable_at = NULL WHERE id {ids} AND {ours} AND ready_at <= {d.now} + :lead "
            f"AND start_by >= {d.now} AND {JOB_UNCHANGED} AND {member_valid(d.now)} RETURNING {STARTED_COLUMNS}"
        )
        self._mine = sql(f"SELECT {STARTED_COLUMNS} FROM timeball_run WHERE instance_id = :me AND state = 'running'")
        rows = d.rows("v", "skips", id="BIGINT", reason="TEXT")
        self._skip = sql(
            f"UPDATE timeball_run SET state = 'skipped', reason = v.reason, claimable_at = NULL, ended_at = {d.now} "
            f"FROM {rows} WHERE timeball_run.id = v.id AND timeball_run.id {ids} AND {ours} "
            f"AND ready_at <= {d.now} + :lead RETURNING timeball_run.id, job_version"
        )
        parks = d.rows("v", "parks", id="BIGINT", claimable_at="BIGINT")
        self._park = sql(
            f"UPDATE timeball_run SET state = 'planned', instance_id = NULL, claimed_at = NULL, "
            f"claimable_at = v.claimable_at FROM {parks} WHERE timeball_run.id = v.id AND timeball_run.id {ids} AND {ours}"
        )
        self._keep = sql(f"UPDATE timeball_run SET start_by = :never WHERE id {ids} AND {ours} AND start_by < :never")
        self._cancel = sql(
            f"UPDATE timeball_run SET cancel_reason = 'replaced by a newer run' WHERE id {ids} "
            f"AND state = 'running' AND cancel_reason IS NULL RETURNING id"
        )

    def start(
        self,
        me: str,
        claims: Sequence[Claim],
        definitions: Mapping[tuple[int, int], Definition],
        *,
        lead_us: int,
        prefetch_us: int = 0,
        term: Term | None = None,
    ) -> StartResult:
        """Start claims that are due within `lead_us`. `definitions` by job id and version, for the overlap policy.

        A claim whose run has followed its job to another version, though we have claimed it anew, is left to that
        newer claim: this one was judged by an old definition. `prefetch_us`: how early instances claim; what has to
        wait long for a limit is claimable that much later than its turn may come.
        """
        outdated: frozenset[int] = frozenset()
        while True:
            current = [c for c in claims if c.run_id not in outdated]
            try:
                return self._start_all(me, current, definitions, lead_us, prefetch_us, term)
            except _Outdated as error:
                outdated |= error.run_ids

    def _start_all(
        self,
        me: str,
        claims: Sequence[Claim],
        definitions: Mapping[tuple[int, int], Definition],
        lead_us: int,
        prefetch_us: int,
        term: Term | None,
    ) -> StartResult:
        limits = {c.run_id: definitions[(c.job_id, c.job_version)].limits for c in claims}
        versions = {c.run_id: c.job_version for c in claims}

        def work(tx: Transaction) -> StartResult:
            if term is not None:
                self._leases.prove(tx, term)
            decisions = self._decide(tx, claims, definitions, lead_us)
            shared = self._share(tx, me, decisions, claims, definitions)
            by_verdict: dict[Verdict, list[Decision]] = defaultdict(list)
            for decision in shared.decisions:
                by_verdict[decision.verdict].append(decision)
            started = self._started(tx, me, by_verdict[Verdict.START], versions, lead_us)
            held = {s.run_id: limits[s.run_id] for s in started if limits[s.run_id]}
            if shared.permits:
                self._permits.take(tx, held, shared.permits, shared.ids)
            return StartResult(
                started=started,
                parked=self._parked(tx, me, shared.parked, prefetch_us),
                waiting=self._waiting(tx, me, by_verdict[Verdict.WAIT], claims, definitions),
                skipped=self._skipped(tx, me, by_verdict[Verdict.SKIP], versions, lead_us),
                cancelled=self._replaced(tx, by_verdict[Verdict.WAIT]),
            )

        return self._db.transact(work)

    def mine(self, me: str) -> list[Started]:
        """What the ledger says is running on an instance: to compare with memory after an unknown commit."""
        rows = self._db.read(lambda tx: tx.all(self._mine, me=me))
        return [Started._make(row) for row in rows]

    def _decide(
        self,
        tx: Transaction,
        claims: Sequence[Claim],
        definitions: Mapping[tuple[int, int], Definition],
        lead_us: int,
    ) -> list[Decision]:
        decisions = [Decision(run_id=c.run_id, verdict=Verdict.START) for c in claims if not c.exclusive]
        by_job: dict[int, list[Claim]] = defaultdict(list)
        for claim in claims:
            if claim.exclusive:
                by_job[claim.job_id].append(claim)
        if not by_job:
            return decisions
        jobs = tx.list(sorted(by_job))
        tx.all(self._gate, jobs=jobs)
        running: dict[int, list[Running]] = defaultdict(list)
        for job_id, run_id, started_at, instance in tx.all(self._running, jobs=jobs):
            running[job_id].append(Running(run_id=run_id, started_at=started_at, instance=instance))
        elsewhere = self._due_elsewhere(tx, by_job, definitions, lead_us)
        for job_id, group in by_job.items():
            newest = max(group, key=lambda c: c.job_version)
            candidates = [
                Candidate(run_id=c.run_id, ready_at=c.ready_at, attempt=c.attempt, scheduled=c.kind == "scheduled")
                for c in group
            ]
            definition = definitions[(job_id, newest.job_version)]
            decisions += decide_starts(definition, candidates, running[job_id], elsewhere.get(job_id, Elsewhere()))
        return decisions

    def _share(
        self,
        tx: Transaction,
        me: str,
        decisions: Sequence[Decision],
        claims: Sequence[Claim],
        definitions: Mapping[tuple[int, int], Definition],
    ) -> _Shared:
        """The same decisions with those turned to waiting that lack a permit of a limit."""
        by_run = {c.run_id: c for c in claims}
        wanting: list[Wanting] = []
        for decision in decisions:
            claim = by_run[decision.run_id]
            definition = definitions[(claim.job_id, claim.job_version)]
            if decision.verdict is Verdict.START and definition.limits:
                wanting.append(
                    Wanting(
                        run_id=claim.run_id,
                        limits=definition.limits,
                        priority=definition.priority,
                        ready_at=claim.ready_at,
                    )
                )
        if not wanting:
            return _Shared(decisions, {}, {}, {})
        names = {name for run in wanting for name in run.limits}
        permits, ids = self._permits.locked(tx, me, names)
        shares = share(wanting, permits, tx.now())
        verdicts = dict.fromkeys(shares.turn, Verdict.WAIT) | dict.fromkeys(shares.parked, Verdict.PARK)
        turned = [
            Decision(run_id=d.run_id, verdict=verdicts[d.run_id]) if d.run_id in verdicts else d for d in decisions
        ]
        return _Shared(turned, permits, ids, shares.parked)

    def _parked(self, tx: Transaction, me: str, parked: Mapping[int, int], prefetch_us: int) -> frozenset[int]:
        if parked:
            rows = [(run_id, at + prefetch_us) for run_id, at in sorted(parked.items())]
            tx.count(self._park, me=me, ids=tx.list([r[0] for r in rows]), **tx.rows("parks", rows, 2))
        return frozenset(parked)

    def _due_elsewhere(
        self,
        tx: Transaction,
        by_job: Mapping[int, Sequence[Claim]],
        definitions: Mapping[tuple[int, int], Definition],
        lead_us: int,
    ) -> dict[int, Elsewhere]:
        """What else of these jobs is due, where the order of ticks or the length of the queue counts."""
        ordered = {job_id: g for job_id, g in by_job.items() if definitions[(job_id, g[0].job_version)].in_order}
        if not ordered:
            return {}
        ids = sorted(claim.run_id for group in ordered.values() for claim in group)
        rows = tx.all(self._elsewhere, jobs=tx.list(sorted(ordered)), ids=tx.list(ids), lead=lead_us)
        return {row[0]: Elsewhere(count=row[1], first_at=row[2]) for row in rows}

    def _started(
        self, tx: Transaction, me: str, decisions: Sequence[Decision], versions: Mapping[int, int], lead_us: int
    ) -> list[Started]:
        if not decisions:
            return []
        tx.mint_fence()
        rows = tx.all(self._start, me=me, ids=tx.list(sorted(d.run_id for d in decisions)), lead=lead_us)
        started = [Started._make(row) for row in rows]
        _refuse_outdated([(s.run_id, s.job_version) for s in started], versions)
        return started

    def _skipped(
        self, tx: Transaction, me: str, decisions: Sequence[Decision], versions: Mapping[int, int], lead_us: int
    ) -> dict[int, str]:
        if not decisions:
            return {}
        tx.join_by_hash()
        ordered = sorted(decisions, key=lambda d: d.run_id)
        rows = [(d.run_id, (d.reason or "")[:REASON_CHARS_MAX]) for d in ordered]
        ids = tx.list([r[0] for r in rows])
        changed = tx.all(self._skip, me=me, ids=ids, lead=lead_us, **tx.rows("skips", rows, 2))
        _refuse_outdated([(row[0], row[1]) for row in changed], versions)
        reasons = dict(rows)
        return {row[0]: reasons[row[0]] for row in changed}

    def _waiting(
        self,
        tx: Transaction,
        me: str,
        decisions: Sequence[Decision],
        claims: Sequence[Claim],
        definitions: Mapping[tuple[int, int], Definition],
    ) -> frozenset[int]:
        waiting = {d.run_id for d in decisions}
        queued = [
            c.run_id
            for c in claims
            if c.run_id in waiting and definitions[(c.job_id, c.job_version)].overlap == Overlap.QUEUE
        ]
        if queued:  # what queues by policy is not overtaken by the misfire policy
            tx.count(self._keep, me=me, ids=tx.list(sorted(queued)), never=NO_LIMIT)
        return frozenset(waiting)

    def _replaced(self, tx: Transaction, decisions: Sequence[Decision]) -> frozenset[int]:
        run_ids = sorted({run_id for d in decisions for run_id in d.replace})
        if not run_ids:
            return frozenset()
        return frozenset(row[0] for row in tx.all(self._cancel, ids=tx.list(run_ids)))


def _refuse_outdated(changed: Sequence[tuple[int, int]], versions: Mapping[int, int]) -> None:
    outdated = frozenset(run_id for run_id, version in changed if versions[run_id] != version)
    if outdated:
        raise _Outdated(outdated)
