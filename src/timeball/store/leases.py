"""Verbs about the lease: hold, release, read, and the proof that a leader's write must carry.

The row is seeded by the migration. Where it is missing nobody leads, and everybody says so: an insert race at run
time, or a default of "then I lead", is how other schedulers came to have several leaders.
"""

from __future__ import annotations

from dataclasses import dataclass

from timeball.errors import ClaimLost, LeaseRowMissing
from timeball.model.cluster import Lease, Term
from timeball.store.database import Database, Row, Transaction, sql
from timeball.store.events import add_event
from timeball.store.wake import work_channel

VACANT_US = 500_000
"""A dead leader's lease is taken over within some 50 ms of its end; longer than this nobody was able to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The answer to `hold`: the lease as it now stands, our term if we lead, and whether it was just taken."""

    lease: Lease
    term: Term | None
    taken: bool


class Leases:
    """One row a namespace."""

    def __init__(self, database: Database) -> None:
        self._db = database
        d = database.dialect
        columns = "holder, epoch, acquired_at, expires_at"
        self._read = sql(f"SELECT {columns} FROM timeball_lease WHERE namespace = :namespace")
        # Lock first, then read the clock: a statement that waits for the lock has computed its times before the wait.
        self._lock = sql(f"SELECT {columns} FROM timeball_lease WHERE namespace = :namespace {d.lock}")
        self._renew = sql(
            "UPDATE timeball_lease SET expires_at = :expires_at "
            "WHERE namespace = :namespace AND holder = :holder AND epoch = :epoch"
        )
        self._take = sql(
            "UPDATE timeball_lease SET holder = :holder, epoch = :epoch + 1, acquired_at = :at, "
            "expires_at = :expires_at WHERE namespace = :namespace AND epoch = :epoch"
        )
        self._release = sql(
            "UPDATE timeball_lease SET holder = NULL, expires_at = :at "
            "WHERE namespace = :namespace AND holder = :holder AND epoch = :epoch"
        )
        self._grace = sql(
            f"UPDATE timeball_instance SET expires_at = {d.greatest}(expires_at, :until) "
            f"WHERE namespace = :namespace AND state IN ('active', 'draining')"
        )
        self._member = sql("SELECT state FROM timeball_instance WHERE id = :holder")
        self._prove = sql(
            f"SELECT 1 FROM timeball_lease WHERE namespace = :namespace AND holder = :holder AND epoch = :epoch "
            f"AND expires_at > {d.now} {d.lock_shared}"
        )

    def read(self, namespace: str) -> Lease:
        """The lease as it stands. Raises LeaseRowMissing."""

        def work(tx: Transaction) -> Lease:
            return _lease(namespace, tx.one(self._read, namespace=namespace), tx.now())

        return self._db.read(work)

    def hold(
        self,
        namespace: str,
        holder: str,
        *,
        lifetime_us: int,
        grace_us: int = 0,
        outage: bool = False,
        dead: Lease | None = None,
    ) -> Held:
        """Renew the lease if it is ours, take it if it is free or has run out, else say who has it.

        A time in which nobody could hold it, or `outage`, the caller's own knowledge of one, was a time without the
        database: no member could send a heartbeat. All are then given `grace_us` from now before they can expire.

        `dead`: a lease that ends in a far future and that nobody has renewed while we watched it for a while: the
        clock went back and its holder is gone. It counts as run out, if it still stands as it did.

        Raises LeaseRowMissing, Busy, Unavailable: whatever is raised, nobody has been made leader by this call
        as far as the caller may believe.
        """

        def work(tx: Transaction) -> Held:
            row = tx.one(self._lock, namespace=namespace)
            lease = _lease(namespace, row, tx.now())
            abandoned = dead is not None and same_lease(lease, dead)
            if lease.holder != holder and ((lease.valid and not abandoned) or not self._is_member(tx, holder)):
                return Held(lease=lease, term=None, taken=False)
            vacant = lease.holder is not None and (abandoned or lease.read_at - lease.expires_at > VACANT_US)
            if vacant or outage:
                tx.count(self._grace, namespace=namespace, until=lease.read_at + grace_us)
            if lease.holder == holder:
                return self._renewed(tx, lease, holder, lifetime_us)
            return self._taken(tx, lease, holder, lifetime_us)

        return self._db.transact(work, coordination=True)

    def release(self, term: Term, *, actor: str) -> bool:
        """Free the lease at once; False when it was not ours any more."""

        def work(tx: Transaction) -> bool:
            at = tx.now()
            freed = tx.count(self._release, namespace=term.namespace, holder=term.holder, epoch=term.epoch, at=at)
            if freed:
                _tell(tx, at, term, "lease.released", actor)
                tx.notify(work_channel(term.namespace))
            return freed == 1

        return self._db.transact(work, coordination=True)

    def prove(self, tx: Transaction, term: Term) -> None:
        """Inside a leader's transaction: the term is valid, and nobody can take over before this commits.

        Raises ClaimLost.
        """
        if tx.one(self._prove, namespace=term.namespace, holder=term.holder, epoch=term.epoch) is None:
            raise ClaimLost(f"epoch {term.epoch} has ended; another instance leads or may lead")

    def _renewed(self, tx: Transaction, lease: Lease, holder: str, lifetime_us: int) -> Held:
        term = Term(namespace=lease.namespace, holder=holder, epoch=lease.epoch)
        tx.count(
            self._renew,
            namespace=lease.namespace,
            holder=holder,
            epoch=lease.epoch,
            expires_at=lease.read_at + lifetime_us,
        )
        return Held(lease=lease, term=term, taken=False)

    def _taken(self, tx: Transaction, lease: Lease, holder: str, lifetime_us: int) -> Held:
        taken = tx.count(
            self._take,
            namespace=lease.namespace,
            holder=holder,
            epoch=lease.epoch,
            at=lease.read_at,
            expires_at=lease.read_at + lifetime_us,
        )
        if taken != 1:
            return Held(lease=lease, term=None, taken=False)
        term = Term(namespace=lease.namespace, holder=holder, epoch=lease.epoch + 1)
        _tell(tx, lease.read_at, term, "lease.taken", holder, previous=lease.holder)
        return Held(lease=lease, term=term, taken=True)

    def _is_member(self, tx: Transaction, holder: str) -> bool:
        row = tx.one(self._member, holder=holder)
        return row is not None and row[0] == "active"


def same_lease(one: Lease, other: Lease) -> bool:
    """Whether nobody has taken or renewed the lease between the two looks."""
    return (one.holder, one.epoch, one.expires_at) == (other.holder, other.epoch, other.expires_at)


def _tell(tx: Transaction, at: int, term: Term, kind: str, actor: str, previous: str | None = None) -> None:
    add_event(
        tx,
        at=at,
        namespace=term.namespace,
        kind=kind,
        instance_id=term.holder,
        actor=actor,
        data={"epoch": term.epoch, "previous": previous},
    )


def _lease(namespace: str, row: Row | None, now: int) -> Lease:
    if row is None:
        raise LeaseRowMissing(
            f"the lease row of namespace {namespace!r} is missing, so nobody can lead",
            hint="timeball db upgrade puts it back",
        )
    return Lease(namespace=namespace, holder=row[0], epoch=row[1], acquired_at=row[2], expires_at=row[3], read_at=now)
