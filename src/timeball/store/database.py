"""One database: engines, transactions, the database's clock, errors translated at the border. Knows no table."""

from __future__ import annotations

import contextlib
import importlib
import random
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from timeball.clock import monotonic_us, pause_us, seconds_to_us, wall_us
from timeball.errors import Busy, NotFound, SchemaMismatch, SettingsError, StoreError, Unavailable
from timeball.store.address import read_url
from timeball.store.dialect import Dialect
from timeball.store.sqlite import SqliteDialect

T = TypeVar("T")
Row = Sequence[Any]

BUSY_TRIES_MAX = 8
BUSY_PAUSE_SECONDS = 0.01


class Transaction:
    """One open transaction. Statements are text with `:name` binds; lists and rows are bound by the dialect."""

    def __init__(self, connection: Connection, dialect: Dialect, host_clock: Callable[[], int]) -> None:
        self._connection = connection
        self._host_clock = host_clock
        self.dialect = dialect

    def all(self, statement: TextClause, **binds: Any) -> Sequence[Row]:
        """The rows a statement returns."""
        return self._execute(statement, binds).fetchall()

    def one(self, statement: TextClause, **binds: Any) -> Row | None:
        """The first row a statement returns, or None."""
        return self._execute(statement, binds).fetchone()

    def count(self, statement: TextClause, **binds: Any) -> int:
        """How many rows a statement changed. The count decides what really happened."""
        return self._execute(statement, binds).rowcount

    def now(self) -> int:
        """The database's clock at this moment, in microseconds. After a lock, ask again."""
        if self.dialect.now == ":now":
            return self._host_clock()
        row = self._connection.exec_driver_sql(f"SELECT {self.dialect.now}").fetchone()
        assert row is not None
        return int(row[0])

    @contextlib.contextmanager
    def migration_lock(self) -> Generator[Connection]:
        """The connection of this transaction, while no other migration can run."""
        with self.dialect.migration_lock(self._connection):
            yield self._connection

    def mint_fence(self) -> None:
        """Raise the fence that this transaction's starts will carry."""
        self.dialect.mint_fence(self._connection)

    def join_by_hash(self) -> None:
        """Make joins with bound rows safe against misleading statistics, in this transaction."""
        self.dialect.join_by_hash(self._connection)

    def notify(self, channel: str) -> None:
        """Wake whoever listens on the channel, at commit."""
        self.dialect.notify(self._connection, channel)

    def rows(self, bind: str, rows: Sequence[Row], width: int) -> dict[str, Any]:
        """Parameters for the dialect's `rows` item."""
        return self.dialect.bind_rows(bind, rows, width)

    def list(self, values: Sequence[Any]) -> Any:
        """Parameter for the dialect's `any_of`."""
        return self.dialect.bind_list(values)

    def _execute(self, statement: TextClause, binds: dict[str, Any]) -> Any:
        if self.dialect.now == ":now" and ":now" in statement.text:
            binds.setdefault("now", self._host_clock())
        return self._connection.execute(statement, binds)


class Database:
    """Engines for one URL. `coordination` has short time-outs (leases), `work` longer ones.

    `host_clock` is the clock of databases that live on this host (SQLite); tests move it.
    """

    def __init__(
        self, url: str, *, coordination_timeout_seconds: float = 2.0, host_clock: Callable[[], int] = wall_us
    ) -> None:
        self.url = url
        self.dialect = make_dialect(url)
        self._host_clock = host_clock
        self.answered_at = 0
        """When a transaction last went through (monotonic microseconds)."""
        self.refusal: SchemaMismatch | None = None
        """Why nothing is written here now: an instance has found a schema that this code cannot work on."""
        self._coordination = self.dialect.make_engine(
            url, statement_timeout_seconds=coordination_timeout_seconds, pool_size=2
        )
        self._work = self.dialect.make_engine(url, statement_timeout_seconds=30, pool_size=5)
        # One writer at a time inside this process: SQLite's own wait polls, ours does not.
        self._writer = threading.Lock() if self.dialect.name == "sqlite" else contextlib.nullcontext()

    @property
    def safe_url(self) -> str:
        """The URL without its password, for messages."""
        return make_url(self.url).render_as_string(hide_password=True)

    def must_exist(self) -> None:
        """Refuse to go on where connecting would create an empty database. Raises NotFound."""
        if self.dialect.missing(self.url):
            raise NotFound(
                f"there is no database at {self.safe_url}",
                hint="timeball serve, jobs add, apply, import or db upgrade makes one",
            )

    @contextlib.contextmanager
    def transaction(self, *, coordination: bool = False, any_schema: bool = False) -> Generator[Transaction]:
        """One transaction: commits at the end, rolls back on any error. Driver errors come out as ours.

        `any_schema`: also while there is a `refusal`; for who looks at the schema itself, or makes it right.
        Raises Busy (may be tried again whole), Unavailable (back off), Duplicate, SchemaMismatch, Corrupt.
        """
        if self.refusal is not None and not any_schema:
            raise SchemaMismatch(self.refusal.message, hint=self.refusal.hint)
        engine = self._coordination if coordination else self._work
        try:
            with self._writer, engine.connect() as connection, connection.begin():
                self.dialect.begin(connection)
                yield Transaction(connection, self.dialect, self._host_clock)
        except (SQLAlchemyError, OSError) as error:
            raise self._translated(error) from error
        self.answered_at = monotonic_us()

    @contextlib.contextmanager
    def snapshot(self) -> Generator[Transaction]:
        """A transaction that only reads; never waits for a writer."""
        try:
            with self._work.connect() as connection, connection.begin():
                yield Transaction(connection, self.dialect, self._host_clock)
        except (SQLAlchemyError, OSError) as error:
            raise self._translated(error) from error
        self.answered_at = monotonic_us()

    def transact(self, work: Callable[[Transaction], T], *, coordination: bool = False, any_schema: bool = False) -> T:
        """Run `work` in a transaction; when the database says Busy, the whole of it again, a bounded time."""
        for attempt in range(BUSY_TRIES_MAX):
            try:
                with self.transaction(coordination=coordination, any_schema=any_schema) as tx:
                    return work(tx)
            except Busy:
                if attempt == BUSY_TRIES_MAX - 1:
                    raise
                pause_us(seconds_to_us(random.uniform(0, BUSY_PAUSE_SECONDS * 2**attempt)))  # noqa: S311 - jitter
        raise AssertionError("unreachable")

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a snapshot."""
        with self.snapshot() as tx:
            return work(tx)

    def listen(self, channel: str, wake: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        """Wake-ups for a channel, where the database has them."""
        return self.dialect.listen(self.url, channel, wake)

    def close(self) -> None:
        """Close every pooled connection."""
        self._coordination.dispose()
        self._work.dispose()

    def reset_after_fork(self) -> None:
        """Forget connections that belong to the parent process, without closing them there."""
        self._coordination.dispose(close=False)
        self._work.dispose(close=False)

    def _translated(self, error: Exception) -> StoreError:
        return self.dialect.translate(error) or Unavailable(f"{self.safe_url}: {error}")


def sql(statement: str) -> TextClause:
    """A statement of ours: text with `:name` binds."""
    return text(statement)


def make_dialect(url: str) -> Dialect:
    """The dialect of a database URL; raises SettingsError for one that is not supported."""
    address = read_url(url)
    if address.get_backend_name() == "sqlite":
        return SqliteDialect()
    return _postgres_dialect()


def _postgres_dialect() -> Dialect:
    try:  # psycopg is an extra, and SQLite's users should not wait for its import
        module = importlib.import_module("timeball.store.postgresql")
    except ImportError as error:
        raise SettingsError("PostgreSQL needs a driver", hint="pip install 'timeball[postgresql]'") from error
    return module.PostgresDialect()
