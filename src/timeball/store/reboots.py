"""Verbs about starts of the cluster (`@reboot`): opened by whoever joins, judged by the leader.

Nobody can tell at a join whether members that are silent have died or are only cut off from the database. So the first
join of a process opens a question, at most one at a time. The leader answers it: no, once a member from before gives a
sign of life after it; yes, once all members from before have left or have been given up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timeball.model.cluster import Term
from timeball.store.database import Database, Transaction, sql
from timeball.store.events import add_event
from timeball.store.leases import Leases
from timeball.store.plans import DueJob, JobPlan, Plans

_OPEN = sql(
    "INSERT INTO timeball_reboot (namespace, opened_at, instance_id) VALUES (:namespace, :at, :instance_id) "
    "ON CONFLICT DO NOTHING"
)


def open_question(tx: Transaction, *, namespace: str, instance_id: str) -> None:
    """Inside a join, before it reads the clock: two joins at once wait here for each other, and one of them asks.

    So whoever has joined before an open question is older than it by the clock too.
    """
    tx.count(_OPEN, namespace=namespace, at=tx.now(), instance_id=instance_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenJob:
    """A job that cannot be planned, and why."""

    job: DueJob
    problem: str


Decide = Callable[[Sequence[DueJob], int], tuple[Sequence[JobPlan], Sequence[BrokenJob]]]
"""Plans, and jobs that have none because they cannot be read, for jobs that are locked and an instant."""


class Reboots:
    """For the leader: the transaction that judges proves its term."""

    def __init__(self, database: Database, leases: Leases, plans: Plans) -> None:
        self._db = database
        self._leases = leases
        self._plans = plans
        d = database.dialect
        self._question = sql(
            f"SELECT opened_at, instance_id FROM timeball_reboot WHERE namespace = :namespace AND counted_at IS NULL {d.lock}"
        )
        self._asked = sql("SELECT 1 FROM timeball_reboot WHERE namespace = :namespace AND counted_at IS NULL")
        older = "FROM timeball_instance WHERE namespace = :namespace AND started_at < :opened_at"
        self._alive_since = sql(f"SELECT 1 {older} AND heartbeat_at > :opened_at LIMIT 1")
        self._unburied = sql(f"SELECT 1 {older} AND state IN ('active', 'draining') LIMIT 1")
        self._withdraw = sql("DELETE FROM timeball_reboot WHERE namespace = :namespace AND counted_at IS NULL")
        self._count = sql(
            "UPDATE timeball_reboot SET counted_at = :at WHERE namespace = :namespace AND counted_at IS NULL"
        )
        # Asks too much rather than too little: whoever decides parses the texts.
        self._jobs = sql(
            f"SELECT id, name, version, definition, cursor_at, anchor_at FROM timeball_job WHERE namespace = :namespace "
            f"AND state = 'active' AND lower(definition) LIKE '%@reboot%' ORDER BY id {d.lock}"
        )
        self._boundaries = sql(
            "SELECT cursor_at FROM timeball_job WHERE namespace = :namespace AND lower(definition) LIKE '%@reboot%'"
        )
        self._counted = sql(
            "SELECT counted_at FROM timeball_reboot WHERE namespace = :namespace AND counted_at > :after "
            "AND counted_at <= :until ORDER BY counted_at"
        )
        self._purge = sql("DELETE FROM timeball_reboot WHERE namespace = :namespace AND counted_at < :before")

    def judge(self, term: Term, decide: Decide, *, tzdata: str) -> int | None:
        """Answer the open question, if there is one that can be answered; the instant, when the cluster has started.

        `decide` says with the jobs locked what of them to plan at that instant. Raises ClaimLost, and what it raises.
        """

        def work(tx: Transaction) -> int | None:
            self._leases.prove(tx, term)
            question = tx.one(self._question, namespace=term.namespace)
            if question is None:
                return None
            seen = {"namespace": term.namespace, "opened_at": question[0]}
            if tx.one(self._alive_since, **seen) is not None:
                tx.count(self._withdraw, namespace=term.namespace)
                return None
            if tx.one(self._unburied, **seen) is not None:
                return None
            return self._fire(tx, term, question[1], decide, tzdata)

        return self._db.transact(work)

    def asked(self, namespace: str) -> bool:
        """Whether a question is open."""
        return self._db.read(lambda tx: tx.one(self._asked, namespace=namespace)) is not None

    def counted(self, namespace: str, *, after: int, until: int) -> list[int]:
        """The starts of the cluster after one instant and up to another, as instants."""
        rows = self._db.read(lambda tx: tx.all(self._counted, namespace=namespace, after=after, until=until))
        return [row[0] for row in rows]

    def purge(self, term: Term, *, before: int) -> int:
        """Forget starts from before an instant; how many. Those whose runs are still in the ledger must stay."""

        def work(tx: Transaction) -> int:
            self._leases.prove(tx, term)
            return tx.count(self._purge, namespace=term.namespace, before=before)

        return self._db.transact(work)

    def _fire(
        self,
        tx: Transaction,
        term: Term,
        opener: str,
        decide: Decide,
        tzdata: str,
    ) -> int:
        rows = tx.all(self._jobs, namespace=term.namespace)
        # With the jobs locked: every version of them that counts began before. A job that was stopped, edited or
        # deleted at this very instant was so before the start: what is due at its boundary belongs to the old version.
        at, boundaries = tx.now(), {row[0] for row in tx.all(self._boundaries, namespace=term.namespace)}
        while at in boundaries:
            at += 1
        jobs = [
            DueJob(id=r[0], name=r[1], version=r[2], definition=r[3], cursor_at=r[4], next_due_at=at, anchor_at=r[5])
            for r in rows
            if r[4] < at
        ]
        plans, broken = decide(jobs, at)
        for case in broken:
            self._plans.set_aside(tx, case.job, case.problem)
        self._plans.insert(tx, term, plans, tzdata=tzdata)
        tx.count(self._count, namespace=term.namespace, at=at)
        add_event(
            tx,
            at=at,
            namespace=term.namespace,
            kind="cluster.started",
            instance_id=opener,
            actor=term.holder,
            data={"jobs": len(plans)},
        )
        return at
