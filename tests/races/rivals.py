"""Two rivals over one row: the loser is held at a named statement of its transaction, or at the winner's locks.

Each side has a store, and so connections, of its own. The winner acts on the test's thread or, where its transaction
stays open until the loser has come up against its locks, on one of its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from sqlalchemy import TextClause

from tests.store.stepped import DEADLINE_SECONDS, eventually
from timeball.store import Store
from timeball.store.database import Transaction, sql

T = TypeVar("T")
HELD_SECONDS = DEADLINE_SECONDS
LATE = "late"
"""The loser is held before its statement until the winner has committed."""
COMMIT = "commit"
"""The winner's transaction is open until the loser waits for its locks (or has got by them), then commits."""
ROLLBACK = "rollback"
"""The same, but the winner's transaction is rolled back: the loser has met nobody."""
MEETINGS = (LATE, COMMIT, ROLLBACK)
_WAITING = sql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
_AT_BEGIN = sql("BEGIN")
_AT_END = sql("COMMIT or ROLLBACK")


class Cut(Exception):
    """The winner's transaction is rolled back here."""


class Hold:
    """The place in one store's transactions where a thread has to wait until the test lets it go on."""

    def __init__(self, store: Store, before: TextClause) -> None:
        self._database: Any = store.database
        self._before = before
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.rolled_back = False

    @contextlib.contextmanager
    def placed(self) -> Generator[None]:
        """While this lasts, transactions of the store stop at the place, the first one that comes there only."""
        inner, make = self._database.transaction, self._watched
        self._database.transaction = lambda **options: make(inner, options)
        try:
            yield
        finally:
            self.go_on.set()
            self._database.transaction = inner

    @contextlib.contextmanager
    def _watched(self, inner: Callable[..., Any], options: dict[str, Any]) -> Generator[Transaction]:
        self._pass(_AT_BEGIN)
        with inner(**options) as tx:
            execute = tx._execute
            tx._execute = lambda statement, binds: (self._pass(statement, tx), execute(statement, binds))[1]
            yield tx
            self._pass(_AT_END, tx)

    def _pass(self, statement: TextClause, tx: Transaction | None = None) -> None:
        if statement is not self._before or self.reached.is_set():
            return
        if tx is not None and tx.dialect.name == "postgresql":  # a slow host is no frozen instance
            tx._connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = '60s'")
        self.reached.set()
        assert self.go_on.wait(HELD_SECONDS), "nobody let the held side go on"
        if self.rolled_back:
            raise Cut


class Side(Generic[T]):
    """What one rival does, on a thread of its own."""

    def __init__(self, act: Callable[[], T]) -> None:
        self._future: Future[T] = Future()
        self._act = act
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def done(self) -> bool:
        return self._future.done()

    def result(self) -> T:
        return self._future.result(HELD_SECONDS)

    def _run(self) -> None:
        try:
            self._future.set_result(self._act())
        except BaseException as error:
            self._future.set_exception(error)


class Rivals:
    """The loser's store is `mine`, the winner's `theirs`."""

    def __init__(self, mine: Store, theirs: Store) -> None:
        self.mine = mine
        self.theirs = theirs
        self.sqlite = mine.database.dialect.name == "sqlite"

    def meet(
        self, loser: Callable[[], T], winner: Callable[[], object], meeting: str, *, before: TextClause = _AT_BEGIN
    ) -> T:
        """The loser's answer. `before`: the statement of `mine` at which a late loser is held.

        SQLite has one writer at a time: there a late loser is held before its transaction begins.
        """
        if meeting == LATE:
            return self.late(loser, winner, before=before)
        return self.blocked(loser, winner, rolled_back=meeting == ROLLBACK)

    def late(self, loser: Callable[[], T], winner: Callable[[], object], *, before: TextClause = _AT_BEGIN) -> T:
        hold = Hold(self.mine, _AT_BEGIN if self.sqlite else before)
        with hold.placed():
            losing = Side(loser)
            eventually(lambda: hold.reached.is_set() or losing.done)
            assert hold.reached.is_set(), f"the loser never came to its statement: {losing.result()}"
            winner()
            assert not losing.done
            hold.go_on.set()
            return losing.result()

    def blocked(
        self,
        loser: Callable[[], T],
        winner: Callable[[], object],
        *,
        rolled_back: bool,
        then: Callable[[], None] = lambda: None,
    ) -> T:
        """The loser's answer. `then`: what the test does while both stand still."""
        hold = Hold(self.theirs, _AT_END)
        with hold.placed():
            winning = Side(winner)
            eventually(lambda: hold.reached.is_set() or winning.done)
            assert hold.reached.is_set(), f"the winner had no transaction: {winning.result()}"
            losing = Side(loser) if not self.sqlite else self._coming(loser)
            eventually(lambda: losing.done or self.waiting())
            then()
            hold.rolled_back = rolled_back
            hold.go_on.set()
            with contextlib.suppress(Cut):
                winning.result()
            return losing.result()

    @contextlib.contextmanager
    def standing(self, act: Callable[[], T], *, before: TextClause) -> Generator[Side[T]]:
        """The other side, which stands before a statement of its transaction while this lasts."""
        hold = Hold(self.theirs, before)
        with hold.placed():
            side = Side(act)
            eventually(lambda: hold.reached.is_set() or side.done)
            assert hold.reached.is_set(), f"it never came to its statement: {side.result()}"
            yield side

    def beside(self, act: Callable[[], T]) -> Side[T]:
        """A third party, on a thread of its own."""
        return Side(act)

    def waiting(self) -> bool:
        """Whether a side waits for a lock. SQLite does not say so: there the write lock is what it comes up against."""
        if self.sqlite:
            return True
        with self.theirs.database.snapshot() as tx:
            row = tx.one(_WAITING)
            return row is not None and row[0] > 0

    def _coming(self, act: Callable[[], T]) -> Side[T]:
        """A side that is about to ask for SQLite's write lock, which the winner has."""
        hold = Hold(self.mine, _AT_BEGIN)
        with hold.placed():
            side = Side(act)
            eventually(lambda: hold.reached.is_set() or side.done)
        return side
