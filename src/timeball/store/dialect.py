"""What differs between databases, as a short object. Owns SQL fragments; knows no table and no verb.

A dialect is not a backend: every statement is written once, in the verb that needs it, out of these fragments.
MySQL/MariaDB will need one more thing: they have no RETURNING on UPDATE, so their verbs read back by token.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection, Engine

from timeball.errors import StoreError

Rows = Sequence[Sequence[Any]]


class Dialect(Protocol):
    """Fragments and small acts that a statement cannot do without."""

    name: str
    now: str
    """SQL for the database's clock at this moment, in microseconds; `:now` where the statement binds it."""
    lock: str
    """Row lock for a write that follows, put behind a SELECT."""
    lock_shared: str
    """Row lock against writers only, put behind a SELECT."""
    skip_locked: str
    """Row lock that leaves out rows somebody else has locked, put behind a SELECT."""
    fence: str
    """SQL for the fence of this transaction's starts, after `mint_fence`; monotone in the whole database."""
    greatest: str
    """Name of the function for the larger of two values."""

    def make_engine(self, url: str, *, statement_timeout_seconds: float, pool_size: int) -> Engine:
        """An engine whose sessions carry our limits and isolation."""
        ...

    def missing(self, url: str) -> bool:
        """Whether there is nothing at the URL yet, and connecting would make it."""
        ...

    def begin(self, connection: Connection) -> None:
        """Begin a transaction that will write."""
        ...

    def mint_fence(self, connection: Connection) -> None:
        """Raise the fence for this transaction, where the fragment does not do it by itself."""
        ...

    def join_by_hash(self, connection: Connection) -> None:
        """For this transaction: join bound rows with a table by hash, not by a loop over loops."""
        ...

    def any_of(self, bind: str, kind: str) -> str:
        """`… {any_of}`: membership of a bound list; `kind` is an SQL type."""
        ...

    def picked(self, select: str) -> str:
        """`… {picked}`: membership of a subquery that locks what it picks, found by primary key."""
        ...

    def hold(self, key: str) -> str:
        """A statement that keeps `unheld` of that key (SQL for a whole number) from holding until its transaction ends.

        For connections that are not ours, so it binds nothing. Many may hold one key.
        """
        ...

    def unheld(self, key: str) -> str:
        """A condition: no transaction holds that key; and none can until ours ends, where several can write at once."""
        ...

    def rows(self, alias: str, bind: str, **columns: str) -> str:
        """A FROM item made of bound rows, with columns named and typed."""
        ...

    def bind_rows(self, bind: str, rows: Rows, width: int) -> dict[str, Any]:
        """The parameters for `rows`."""
        ...

    def bind_list(self, values: Sequence[Any]) -> Any:
        """The parameter for `any_of`."""
        ...

    def translate(self, error: Exception) -> StoreError | None:
        """A driver's error as one of ours; None when it is not the database's doing."""
        ...

    def notify(self, connection: Connection, channel: str) -> None:
        """Wake whoever listens, when the transaction commits. Carries no work."""
        ...

    def listen(self, url: str, channel: str, wake: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        """Call `wake` for each notification until the context ends; does nothing where there is none."""
        ...

    def migration_lock(self, connection: Connection) -> contextlib.AbstractContextManager[None]:
        """Only one migration at a time in the whole database."""
        ...
