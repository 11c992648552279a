"""The fence in the job's hands: a proof inside the job's own transaction that its attempt is the one that counts.

From the proof until that transaction ends nobody gives the run up, so that what it commits was written by the attempt
that the ledger calls running. The lock is one that only who gives runs up asks for, and never waits for: whatever a
job does with its transaction, it holds up no stop, no cancel and no end of another run.
"""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import make_url

from timeball.errors import InvalidInput, Superseded
from timeball.store.database import make_dialect

_NO_TRANSACTION = "25P01"
_NO_TABLE = "42P01"
_SAVEPOINT = "timeball_fence"

Run = Callable[[str], Sequence[Any]]
"""Executes one statement on somebody's connection and returns its rows."""


@dataclass(frozen=True, slots=True)
class FenceCheck:
    """The check for jobs whose ledger is in a database of one kind (`postgresql`, `sqlite`)."""

    kind: str

    def __call__(self, connection: object, *, run_id: int, attempt: int, fence: int) -> None:
        """Hold the run until the connection's transaction ends, if this attempt is running under this fence.

        `connection`: a DB-API connection, or SQLAlchemy's Connection or Session, to the database of the ledger. Raises
        Superseded, InvalidInput (no such connection, no transaction); what its driver raises comes through.
        """
        run = _runner(connection, self.kind)
        dialect = make_dialect(f"{self.kind}:///ledger")  # which one makes no difference
        look = f"SELECT state, attempt, fence FROM timeball_run WHERE id = {run_id:d} {dialect.lock_shared}"
        try:
            run(dialect.hold(f"{run_id:d}"))
            _demand_transaction(connection)
            # The lock on the row is for snapshots of before: a transaction whose snapshot is older than the loss fails
            # here. It goes with the savepoint, so that nobody has to wait for it.
            run(f"SAVEPOINT {_SAVEPOINT}")
            rows = run(look)
            run(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            run(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        except Exception as error:
            trouble = _trouble(error)
            if trouble is None:
                raise
            raise trouble from error
        found = tuple(rows[0]) if rows else None
        if found != ("running", attempt, fence):
            raise Superseded(
                f"attempt {attempt} of run {run_id} (fence {fence:d}) does not count any more: {_instead(found)}",
                hint="roll back; whatever it writes now could overwrite what came after it",
            )


def fence_check(database_url: str) -> FenceCheck:
    """The check for jobs whose ledger is behind a database URL."""
    return FenceCheck(make_url(database_url).get_backend_name())


def _instead(found: tuple[Any, ...] | None) -> str:
    if found is None:
        return "this database has no such run"
    state, attempt, fence = found
    return f"attempt {attempt} is {state}" + ("" if fence is None else f" (fence {fence})")


def _runner(connection: Any, kind: str) -> Run:
    if isinstance(connection, Engine):
        raise InvalidInput("an Engine is not a transaction", hint="give the connection that the job writes with")
    if type(connection).__module__.startswith("sqlalchemy.ext.asyncio"):
        raise InvalidInput(
            f"{type(connection).__name__} is asynchronous", hint="await connection.run_sync(run.fence.check)"
        )
    if not isinstance(connection, Connection) and hasattr(connection, "get_bind"):  # a Session
        connection = connection.connection()
    if isinstance(connection, Connection):
        return _by_sqlalchemy(connection, kind)
    if not hasattr(connection, "cursor"):
        raise InvalidInput(
            f"{type(connection).__name__} is no connection to a database",
            hint="a DB-API connection, or SQLAlchemy's Connection or Session",
        )
    return _by_driver(connection)


def _by_sqlalchemy(connection: Connection, kind: str) -> Run:
    if connection.dialect.name != kind:
        raise InvalidInput(
            f"this connection leads to {connection.dialect.name}; the ledger of the runs is in {kind}",
            hint="the fence can be checked where the ledger is; elsewhere keep the highest fence yourself",
        )

    def run(statement: str) -> Sequence[Any]:
        result = connection.exec_driver_sql(statement)
        return result.fetchall() if result.returns_rows else ()

    return run


def _by_driver(connection: Any) -> Run:
    def run(statement: str) -> Sequence[Any]:
        cursor = _now(connection.cursor())
        try:
            _now(cursor.execute(statement))
            return cursor.fetchall() if cursor.description else ()
        finally:
            _now(cursor.close())

    return run


def _now(answer: Any) -> Any:
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise InvalidInput(
            "this connection is asynchronous", hint="check on a synchronous one; SQLAlchemy's have run_sync"
        )
    return answer


def _demand_transaction(connection: object) -> None:
    """PostgreSQL refuses a savepoint outside of a transaction; SQLite would begin one."""
    raw = _sqlite_below(connection)
    if raw is not None and not raw.in_transaction:
        raise _no_transaction()


def _sqlite_below(connection: object) -> sqlite3.Connection | None:
    if not isinstance(connection, Connection) and hasattr(connection, "get_bind"):
        connection = cast("Any", connection).connection()
    for _ in range(3):
        if isinstance(connection, sqlite3.Connection):
            return connection
        connection = getattr(connection, "driver_connection", None) or getattr(connection, "connection", None)
    return None


def _no_transaction() -> InvalidInput:
    return InvalidInput(
        "the connection is not in a transaction, so the check would hold nothing",
        hint="begin one (no autocommit), check, write, commit",
    )


def _trouble(error: Exception) -> Exception | None:
    """What a driver's error means for the caller, or None when it is best told as it is."""
    origin = getattr(error, "orig", None) or error.__cause__ or error
    state = getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None)
    if state == _NO_TRANSACTION:
        return _no_transaction()
    if state == _NO_TABLE or "no such table: timeball_" in str(origin):
        return InvalidInput(
            "the database of this connection has no runs of Timeball",
            hint="the fence can be checked in the ledger's own database and schema; elsewhere keep the highest fence",
        )
    return None
