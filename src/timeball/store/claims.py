"""Verbs of the claim: reserve planned runs for one instance until a deadline, and give them back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from timeball.model.cluster import Term
from timeball.store.database import Database, Transaction, sql
from timeball.store.leases import Leases


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """What an instance can take: handler keys, and every set of required labels that its labels cover."""

    handlers: Sequence[str]
    requires: Sequence[str]


class Claim(NamedTuple):
    """A run reserved for us. Instants in microseconds; `deadline_at`: others may take it from then on."""

    run_id: int
    job_id: int
    job_version: int
    kind: str
    attempt: int
    exclusive: int
    ready_at: int
    deadline_at: int


class Started(NamedTuple):
    """A run that is ours to execute: the start is committed. `args`: its own arguments as JSON, or None."""

    run_id: int
    job_id: int
    job_version: int
    kind: str
    attempt: int
    fence: int
    due_at: int
    ready_at: int
    args: str | None


STARTED_COLUMNS = "id, job_id, job_version, kind, attempt, fence, due_at, ready_at, args"
JOB_UNCHANGED = (
    # A scalar subquery, so that it is a look-up by key for each row under any statistics.
    "(SELECT j.version FROM timeball_job j WHERE j.id = timeball_run.job_id "
    "AND (j.state = 'active' OR (timeball_run.kind <> 'scheduled' AND j.state IN ('stopped', 'paused')))) = timeball_run.job_version"
)


def member_valid(now: str) -> str:
    """A condition: the instance `:me` is a member by the database's clock."""
    return (
        f"(SELECT i.expires_at FROM timeball_instance i WHERE i.id = :me AND i.state IN ('active', 'draining')) > {now}"
    )


class Claims:
    """Who holds a planned run; the row count decides."""

    def __init__(self, database: Database, leases: Leases) -> None:
        self._db = database
        self._leases = leases
        d = database.dialect
        self._claim = sql(
            f"UPDATE timeball_run SET state = 'claimed', instance_id = :me, claimed_at = {d.now}, "
            f"claimable_at = {d.greatest}(ready_at, {d.now}) + :slack "
            f"WHERE id {_picked(database, '')} AND {member_valid(d.now)} "
            f"RETURNING id, job_id, job_version, kind, attempt, exclusive, ready_at, claimable_at"
        )
        # What is due already and competes with nobody is claimed and started by one statement.
        self._take = sql(
            f"UPDATE timeball_run SET state = 'running', instance_id = :me, claimed_at = {d.now}, "
            f"started_at = {d.greatest}(ready_at, {d.now}), fence = {d.fence}, claimable_at = NULL "
            f"WHERE id {_picked(database, ' AND exclusive = 0')} AND {member_valid(d.now)} "
            f"RETURNING {STARTED_COLUMNS}"
        )
        self._give_back = sql(
            f"UPDATE timeball_run SET state = 'planned', instance_id = NULL, claimed_at = NULL, "
            f"claimable_at = ready_at "
            f"WHERE id {d.any_of('ids', 'BIGINT')} AND state = 'claimed' AND instance_id = :me"
        )

    def claim(
        self,
        me: str,
        capability: Capability,
        *,
        prefetch_us: int,
        slack_us: int,
        limit: int,
        term: Term | None = None,
    ) -> list[Claim]:
        """Reserve runs that are due within `prefetch_us`, or whose claim ran out; highest priority first.

        With `term`, only while that term lasts (`execute = leader`); raises ClaimLost then.
        """

        def work(tx: Transaction) -> list[Claim]:
            self._prove(tx, term)
            rows = tx.all(
                self._claim,
                me=me,
                prefetch=prefetch_us,
                slack=slack_us,
                limit=limit,
                **_binds(tx, capability),
            )
            return [Claim._make(row) for row in rows]

        return self._db.transact(work)

    def take(self, me: str, capability: Capability, *, limit: int, term: Term | None = None) -> list[Started]:
        """Claim and start runs that are due now and compete with no other run, highest priority first."""

        def work(tx: Transaction) -> list[Started]:
            self._prove(tx, term)
            tx.mint_fence()
            rows = tx.all(self._take, me=me, prefetch=0, limit=limit, **_binds(tx, capability))
            return [Started._make(row) for row in rows]

        return self._db.transact(work)

    def give_back(self, me: str, run_ids: Sequence[int]) -> int:
        """Return claims that have not started; how many were still ours."""
        if not run_ids:
            return 0
        return self._db.transact(lambda tx: tx.count(self._give_back, me=me, ids=tx.list(sorted(run_ids))))

    def _prove(self, tx: Transaction, term: Term | None) -> None:
        if term is not None:
            self._leases.prove(tx, term)


def _binds(tx: Transaction, capability: Capability) -> dict[str, Any]:
    return {"handlers": tx.list(capability.handlers), "requires": tx.list(capability.requires)}


def _picked(database: Database, condition: str) -> str:
    """Membership in the runs that may be claimed, best first, without those that others are claiming now."""
    d = database.dialect
    return d.picked(
        f"SELECT id FROM timeball_run WHERE claimable_at IS NOT NULL AND claimable_at <= {d.now} + :prefetch "
        f"AND (state = 'planned' OR claimable_at <= {d.now}) AND start_by >= {d.now} "
        f"AND handler {d.any_of('handlers', 'TEXT')} AND requires {d.any_of('requires', 'TEXT')}{condition} "
        f"AND {JOB_UNCHANGED} ORDER BY priority DESC, claimable_at LIMIT :limit {d.skip_locked}"
    )
