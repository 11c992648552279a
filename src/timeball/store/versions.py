"""The history of a job's definition: every change writes a version, and none is ever rewritten. The audit reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timeball.model.job import JobState
from timeball.store.database import Transaction, sql
from timeball.store.events import add_event
from timeball.store.wake import work_channel


class Versions:
    """Adds to the history, inside the transaction of the change itself."""

    def __init__(self) -> None:
        self._insert = sql(
            "INSERT INTO timeball_job_version (job_id, version, from_at, state, definition, anchor_at, changed_at, "
            "actor, change) VALUES (:job_id, :version, :from_at, :state, :definition, :anchor_at, :at, :actor, :change)"
        )

    def add(
        self,
        tx: Transaction,
        *,
        job_id: int,
        version: int,
        state: JobState,
        definition: str,
        from_at: int,
        anchor_at: int,
        at: int,
        actor: str,
        change: str,
    ) -> None:
        """One version, its `definition` as JSON: its ticks after `from_at` count."""
        tx.count(
            self._insert,
            job_id=job_id,
            version=version,
            from_at=from_at,
            state=state.value,
            definition=definition,
            anchor_at=anchor_at,
            at=at,
            actor=actor,
            change=change,
        )


def tell_job(
    tx: Transaction, *, namespace: str, job_id: int, kind: str, actor: str, at: int, data: Mapping[str, Any]
) -> None:
    """Write the event of a change to a job, and wake the instances at commit."""
    add_event(tx, at=at, namespace=namespace, kind=kind, job_id=job_id, actor=actor, data=data)
    tx.notify(work_channel(namespace))
