"""The trail: who did what, and what happened to the cluster. Written in the transaction of the change itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from timeball.store.database import Database, Transaction, sql

_ADD = sql(
    "INSERT INTO timeball_event (at, namespace, kind, job_id, run_id, instance_id, actor, data) "
    "VALUES (:at, :namespace, :kind, :job_id, :run_id, :instance_id, :actor, :data)"
)
_LIST = sql(
    "SELECT id, at, kind, job_id, run_id, instance_id, actor, data FROM timeball_event "
    "WHERE namespace = :namespace AND (:kind = '' OR kind = :kind) ORDER BY id DESC LIMIT :limit"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """One line of the trail; `at` in microseconds UTC."""

    id: int
    at: int
    kind: str
    job_id: int | None
    run_id: int | None
    instance_id: str | None
    actor: str
    data: Mapping[str, Any]


def add_event(
    tx: Transaction,
    *,
    at: int,
    namespace: str,
    kind: str,
    actor: str,
    job_id: int | None = None,
    run_id: int | None = None,
    instance_id: str | None = None,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Add a line to the trail inside an open transaction."""
    tx.count(
        _ADD,
        at=at,
        namespace=namespace,
        kind=kind,
        job_id=job_id,
        run_id=run_id,
        instance_id=instance_id,
        actor=actor,
        data=json.dumps(dict(data or {}), ensure_ascii=False),
    )


class Events:
    """Reading the trail."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def latest(self, namespace: str, *, kind: str = "", limit: int = 100) -> list[StoredEvent]:
        """The newest lines first, all kinds or one."""
        rows = self._db.read(lambda tx: tx.all(_LIST, namespace=namespace, kind=kind, limit=limit))
        return [
            StoredEvent(
                id=r[0],
                at=r[1],
                kind=r[2],
                job_id=r[3],
                run_id=r[4],
                instance_id=r[5],
                actor=r[6],
                data=json.loads(r[7]),
            )
            for r in rows
        ]
