"""SQLite: WAL, BEGIN IMMEDIATE, one host. The host's clock is the cluster's clock here."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import QueuePool

from timeball.errors import Busy, Corrupt, Duplicate, SchemaMismatch, StoreError, Unavailable
from timeball.store.sqlite_file import SamePlace

SQLITE_MIN = (3, 35, 0)  # RETURNING
WAL_TRIES_MAX = 40


class SqliteDialect:
    """Fragments for SQLite. A write takes the one write lock at BEGIN, so row locks are empty."""

    name = "sqlite"
    now = ":now"
    lock = ""
    lock_shared = ""
    skip_locked = ""
    fence = "(SELECT value FROM timeball_counter WHERE name = 'fence')"
    greatest = "max"

    def make_engine(self, url: str, *, statement_timeout_seconds: float, pool_size: int) -> Engine:
        """An engine on one file; `statement_timeout_seconds` bounds the wait for the write lock."""
        if sqlite3.sqlite_version_info < SQLITE_MIN:
            raise StoreError(
                f"SQLite {sqlite3.sqlite_version} is too old",
                hint="3.35 or newer; it comes with the Python build",
            )
        path = make_url(url).database
        if not path or path == ":memory:":
            raise StoreError("an in-memory database cannot be shared", hint="sqlite:///timeball.db")
        if not Path(path).resolve().parent.is_dir():
            raise Unavailable(f"the folder of {path} is not there", hint="create it, or name another file")
        engine = create_engine(
            make_url(url).set(drivername="sqlite"),
            poolclass=QueuePool,
            pool_size=pool_size,
            max_overflow=10,
            connect_args={"timeout": max(5.0, statement_timeout_seconds), "check_same_thread": False},
        )
        event.listen(engine, "connect", _prepare)
        SamePlace(path).watch(engine)
        return engine

    def missing(self, url: str) -> bool:
        """A file that is not there would be created."""
        path = make_url(url).database
        return path is not None and not Path(path).exists()

    def begin(self, connection: Connection) -> None:
        """Take the write lock now: a deferred BEGIN fails at once when a reader turns writer."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def mint_fence(self, connection: Connection) -> None:
        """A counter's row, raised under the write lock."""
        connection.exec_driver_sql("UPDATE timeball_counter SET value = value + 1 WHERE name = 'fence'")

    def join_by_hash(self, connection: Connection) -> None:
        """SQLite looks up by key here whatever its statistics say."""

    def any_of(self, bind: str, kind: str) -> str:
        """A bound JSON list."""
        del kind
        return f"IN (SELECT value FROM json_each(:{bind}))"

    def picked(self, select: str) -> str:
        """A plain subquery: the write lock is held already."""
        return f"IN ({select})"

    def hold(self, key: str) -> str:
        """The write lock, which a write that changes nothing takes."""
        del key
        return "UPDATE timeball_counter SET value = value WHERE name = 'fence'"

    def unheld(self, key: str) -> str:
        """We have the write lock already."""
        del key
        return "1 = 1"

    def rows(self, alias: str, bind: str, **columns: str) -> str:
        """Rows out of a JSON list of lists; `position` counts from 1."""
        parts = ", ".join(f"json_extract(value, '$[{i}]') AS {name}" for i, name in enumerate(columns))
        return f"(SELECT {parts}, key + 1 AS position FROM json_each(:{bind})) AS {alias}"

    def bind_rows(self, bind: str, rows: Sequence[Sequence[Any]], width: int) -> dict[str, Any]:
        """One JSON text."""
        del width
        return {bind: json.dumps([list(row) for row in rows])}

    def bind_list(self, values: Sequence[Any]) -> Any:
        """One JSON text."""
        return json.dumps(list(values))

    def translate(self, error: Exception) -> StoreError | None:
        """By SQLite's error code, else by its words (older Python builds do not say the code)."""
        if not isinstance(error, DBAPIError):
            return None
        origin = error.orig
        text = str(origin)
        if isinstance(origin, sqlite3.IntegrityError):
            return (Duplicate if text.startswith("UNIQUE ") else StoreError)(f"SQLite: {text}")
        for words, kind in _KINDS:
            if any(word in text for word in words):
                return kind(f"SQLite: {text}")
        if isinstance(error, OperationalError):
            hint = "a file, not a folder, and the right to write it" if "unable to open" in text else None
            return Unavailable(f"SQLite: {text}", hint=hint)
        return StoreError(f"SQLite: {text}")

    def notify(self, connection: Connection, channel: str) -> None:
        """SQLite wakes nobody; the poll finds the change."""

    @contextlib.contextmanager
    def listen(self, url: str, channel: str, wake: Callable[[], None]) -> Generator[None]:
        """SQLite wakes nobody; the poll finds the change."""
        yield

    @contextlib.contextmanager
    def migration_lock(self, connection: Connection) -> Generator[None]:
        """The write lock is the lock; DDL is transactional."""
        yield


_KINDS: tuple[tuple[tuple[str, ...], type[StoreError]], ...] = (
    (("locked", "busy"), Busy),
    (("no such table", "no such column"), SchemaMismatch),
    (("malformed", "not a database"), Corrupt),
)


def _prepare(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves
    cursor = connection.cursor()
    for attempt in range(WAL_TRIES_MAX):
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:
            # The change to WAL does not wait for a lock; many first starts at once meet here.
            if attempt == WAL_TRIES_MAX - 1:
                raise
            time.sleep(0.01 * (attempt + 1))
    for pragma in ("synchronous = FULL", "foreign_keys = ON", "cache_size = -8000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
