"""Verbs about instances: join, heartbeat, leave, list."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from timeball.clock import Sample
from timeball.errors import Duplicate
from timeball.model.cluster import Instance, InstanceState
from timeball.store.database import Database, Row, sql
from timeball.store.events import add_event

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

    def join(self, instance: Instance, *, lifetime_us: int) -> None:
        """Take part. `instance.id` must be new; the times are the database's."""

        def work(tx: Any) -> None:
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
            self._db.transact(work, coordination=True)
        except Duplicate:
            # The commit went through and its answer was lost: the row carries our random id.
            if not self.heartbeat(instance.id, lifetime_us=lifetime_us, handlers=instance.handlers):
                raise

    def heartbeat(self, instance_id: str, *, lifetime_us: int, handlers: Sequence[str], draining: bool = False) -> bool:
        """Stay a member for another lifetime. False: the cluster has given this instance up."""
        state = InstanceState.DRAINING if draining else InstanceState.ACTIVE
        return (
            self._db.transact(
                lambda tx: tx.count(
                    self._beat,
                    id=instance_id,
                    lifetime=lifetime_us,
                    state=state.value,
                    handlers=json.dumps(sorted(handlers)),
                ),
                coordination=True,
            )
            == 1
        )

    def leave(self, instance: Instance) -> bool:
        """Leave in order; nothing of this instance runs any more."""

        def work(tx: Any) -> bool:
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
