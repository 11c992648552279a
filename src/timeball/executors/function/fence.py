"""The fence as a function has it: a number, and the question whether it still counts. Knows no database."""

from __future__ import annotations

from typing import Any, Protocol

from timeball.errors import InvalidInput
from timeball.model.run import Work


class CheckFence(Protocol):
    """Asks the ledger through somebody's connection; raises Superseded."""

    def __call__(self, connection: object, *, run_id: int, attempt: int, fence: int) -> None: ...


class Fence(int):
    """The fence of one attempt: rises with every attempt of a run, so the far side can refuse a lower one."""

    _run_id: int
    _attempt: int
    _check: CheckFence | None

    def __new__(cls, work: Work, check: CheckFence | None = None) -> Fence:
        """`check`: how to ask the ledger; None where there is none to ask."""
        made = super().__new__(cls, work.fence)
        made._run_id, made._attempt, made._check = work.run_id, work.attempt, check
        return made

    def check(self, connection: object) -> None:
        """Prove in the transaction of `connection` that this attempt counts; nobody gives it up until that one ends.

        `connection`: the one that the job writes with, to the database that Timeball uses: a DB-API connection, or
        SQLAlchemy's Connection or Session (of asynchronous ones: `await connection.run_sync(run.fence.check)`), with
        a transaction begun. Raises Superseded: roll back, another attempt counts by now; InvalidInput when that
        connection cannot prove anything.
        """
        if self._check is None:
            raise InvalidInput("this run has no ledger that could be asked")
        self._check(connection, run_id=self._run_id, attempt=self._attempt, fence=int(self))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy elsewhere is the number only."""
        return int, (int(self),)
