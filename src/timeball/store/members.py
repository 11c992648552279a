"""Verbs about instances: join, heartbeat, leave, list."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from timeball.clock import Sample
from timeball.errors import Duplicate, SchemaMismatch
from timeball.model.cluster import Instance, InstanceState
from timeball.store.database import Database, Row, Transaction, sql
from timeball.store.events import add_event
from timeball.store.reboots import open_question
from timeball.store.revision import check_revision, prove_revision

T = TypeVar("T")

_COLUMNS = (
    "id, namespace, name, host, pid, version, state, execute, labels, handlers, started_at, heartbeat_at, expires_at"
)


class Members:
    """Who takes part, by the database's clock."""

    def __init__(self, database: Database) -> None:
        self._db = database
        d = database.dialect
        self._join = sql(
            f"INSERT INTO timeball_instance ({_COLUMNS}) VALUES (:id, :namespace, :name, :host, :pid, :version, "
            f"'active', :execute, :labels, :handlers, :at, :at, :expires_at)"
        )
        # An instance that was given up stays given up: it must come back under a new id.
        self._beat = sql(
            f"UPDATE timeball_instance SET heartbeat_at = {d.now}, expires_at = {d.now} + :lifetime, state = :state, "
            f"handlers = :handlers WHERE id = :id AND state IN ('active', 'draining')"
        )
        self._leave = sql(
            f"UPDATE timeball_instance SET state = 'stopped', heartbeat_at = {d.now}, expires_at = {d.now} "
            f"WHERE id = :id AND state IN ('active', 'draining')"
        )
        self._list = sql(
            f"SELECT {_COLUMNS} FROM timeball_instance WHERE namespace = :namespace ORDER BY started_at, id"
        )
        self._live = sql(
            f"SELECT {_COLUMNS} FROM timeball_instance WHERE namespace = :namespace AND expires_at > {d.now} "
            f"AND state IN ('active', 'draining') ORDER BY started_at, id"
        )

    def others_run(self, namespace: str, version: str) -> bool:
        """Whether a member runs another version of the program than this one."""
        return any(instance.version != version for instance in self.live(namespace))

    def clock(self) -> int:
        """The database's clock, in microseconds."""
        with self._db.snapshot() as tx:
            return tx.now()

    def sample(self, monotonic: Callable[[], int]) -> Sample:
        """Look at the database's clock. Opening a connection and a transaction is no part of the round trip."""
        with self._db.snapshot() as tx:
            tx.now()
            sent = monotonic()
            return Sample(database_us=tx.now(), sent_us=sent, received_us=monotonic())

    def join(self, instance: Instance, *, lifetime_us: int, first: bool = True) -> None:
        """Take part. `instance.id` must be new; the times are the database's. Raises as `heartbeat` does.

        `first`: of this process, so that it may be the start of the cluster; not when it comes back.
        """

        def work(tx: Transaction) -> None:
            if first:
                open_question(tx, namespace=instance.namespace, instance_id=instance.id)
            at = tx.now()
            tx.count(
                self._join,
                id=instance.id,
                namespace=instance.namespace,
                name=instance.name,
                host=instance.host,
                pid=instance.pid,
                version=instance.version,
                execute=instance.execute,
                labels=json.dumps(dict(instance.labels), sort_keys=True),
                handlers=json.dumps(sorted(instance.handlers)),
                at=at,
                expires_at=at + lifetime_us,
            )
            add_event(
                tx,
                at=at,
                namespace=instance.namespace,
                kind="instance.joined",
                instance_id=instance.id,
                actor=instance.name,
                data={"name": instance.name, "host": instance.host, "pid": instance.pid},
            )

        try:
            self._attend(work)
        except Duplicate:
            # The commit went through and its answer was lost: the row carries our random id.
            if not self.heartbeat(instance.id, lifetime_us=lifetime_us, handlers=instance.handlers):
                raise

    def heartbeat(self, instance_id: str, *, lifetime_us: int, handlers: Sequence[str], draining: bool = False) -> bool:
        """Stay a member for another lifetime. False: the cluster has given this instance up.

        Raises SchemaMismatch when the schema is one that this code cannot work on; nothing is written then, not by
        any verb of this store, until a heartbeat finds it right again.
        """
        state = InstanceState.DRAINING if draining else InstanceState.ACTIVE
        beaten = self._attend(
            lambda tx: tx.count(
                self._beat,
                id=instance_id,
                lifetime=lifetime_us,
                state=state.value,
                handlers=json.dumps(sorted(handlers)),
            )
        )
        return beaten == 1

    def _attend(self, work: Callable[[Transaction], T]) -> T:
        """A transaction that finds the schema right, or refuses it for the whole store."""

        def proven(tx: Transaction) -> T:
            prove_revision(tx)
            return work(tx)

        try:
            done = self._db.transact(proven, coordination=True, any_schema=True)
        except SchemaMismatch as error:
            self._db.refusal = self._why_refused(error)
            raise self._db.refusal from None
        self._db.refusal = None
        return done

    def _why_refused(self, error: SchemaMismatch) -> SchemaMismatch:
        """In the words of a start, which say more than those of a statement that has no table."""
        try:
            check_revision(self._db, subject="the database")
        except SchemaMismatch as refusal:
            return refusal
        return error

    def leave(self, instance: Instance) -> bool:
        """Leave in order; nothing of this instance runs any more."""

        def work(tx: Transaction) -> bool:
            left = tx.count(self._leave, id=instance.id) == 1
            if left:
                add_event(
                    tx,
                    at=tx.now(),
                    namespace=instance.namespace,
                    kind="instance.left",
                    instance_id=instance.id,
                    actor=instance.name,
                    data={"name": instance.name},
                )
            return left

        return self._db.transact(work, coordination=True)

    def all(self, namespace: str) -> list[Instance]:
        """Every instance that is still recorded, oldest first."""
        return [read_instance(row) for row in self._db.read(lambda tx: tx.all(self._list, namespace=namespace))]

    def live(self, namespace: str) -> list[Instance]:
        """The members by the database's clock."""
        return [read_instance(row) for row in self._db.read(lambda tx: tx.all(self._live, namespace=namespace))]


def read_instance(row: Row) -> Instance:
    """An instance from its row."""
    return Instance(
        id=row[0],
        namespace=row[1],
        name=row[2],
        host=row[3],
        pid=row[4],
        version=row[5],
        state=InstanceState(row[6]),
        execute=row[7],
        labels=json.loads(row[8]),
        handlers=tuple(json.loads(row[9])),
        started_at=row[10],
        heartbeat_at=row[11],
        expires_at=row[12],
    )
