"""Taking back what was noted of a future that is no more, because the database's clock went back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from timeball.store.database import Transaction, sql


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """What a job's schedule says of a stretch of missed ticks that reaches beyond now.

    `count`: how many ticks lie after one instant and up to another. `last`: the last tick up to an instant.
    """

    count: Callable[[int, int], int]
    last: Callable[[int], int | None]


class Rewinds:
    """Part of a change to a job, with its row locked."""

    def __init__(self) -> None:
        self._unmiss = sql(
            "DELETE FROM timeball_run WHERE job_id = :job_id AND due_at > :at AND kind = 'scheduled' "
            "AND state = 'missed' AND attempt = 1"
        )
        self._stretches = sql(
            "SELECT id, due_at FROM timeball_run WHERE job_id = :job_id AND due_at <= :at AND last_due_at > :at"
        )
        self._shorten = sql("UPDATE timeball_run SET last_due_at = :last, ticks = :count WHERE id = :id")

    def take_back(self, tx: Transaction, job_id: int, rewind: Rewind, at: int) -> None:
        """Remove what was missed after `at`; a stretch that began before ends there."""
        tx.count(self._unmiss, job_id=job_id, at=at)
        for run_id, first in tx.all(self._stretches, job_id=job_id, at=at):
            count = rewind.count(first - 1, at)
            last = rewind.last(at) if count > 1 else None
            tx.count(self._shorten, id=run_id, last=last, count=count)
