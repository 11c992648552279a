"""PostgreSQL through psycopg 3: READ COMMITTED, row locks, SKIP LOCKED, LISTEN/NOTIFY."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from timeball.errors import Busy, Corrupt, Duplicate, SchemaMismatch, StoreError, Unavailable
from timeball.store.bounded import bound, patience
from timeball.store.refusals import refusal_of

SERVER_MIN = 140000  # EXTRACT gives exact numerics, so microseconds survive
LOCK_SECONDS = 2
IDLE_IN_TRANSACTION_SECONDS = 2
READ_ONLY = "25006"
MIGRATION_SECONDS = 300
MIGRATION_LOCK_KEY = 0x7169_6D65_6261_6C6C & 0x7FFF_FFFF_FFFF_FFFF
HOLD_SPACE = 0x7469_6D65
LISTEN_SLICE_SECONDS = 0.5
LISTEN_BACKOFF_SECONDS = 1.0


class PostgresDialect:
    """Fragments for PostgreSQL 14 and newer."""

    name = "postgresql"
    # clock_timestamp moves inside a transaction; now() stands still and would write leases of the past.
    now = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"
    lock = "FOR NO KEY UPDATE"
    lock_shared = "FOR SHARE"
    skip_locked = "FOR UPDATE SKIP LOCKED"
    fence = "(SELECT nextval('timeball_fence'))"
    greatest = "GREATEST"

    def make_engine(self, url: str, *, statement_timeout_seconds: float, pool_size: int) -> Engine:
        """An engine whose sessions give up by themselves, so that a frozen instance blocks nobody for long."""
        engine = create_engine(
            make_url(url).set(drivername="postgresql+psycopg"),
            isolation_level="READ COMMITTED",
            pool_size=pool_size,
            max_overflow=20,
            pool_timeout=10,
            connect_args={
                "connect_timeout": 5,
                "prepare_threshold": None,
                "application_name": "timeball",
                "keepalives_idle": 5,
                "keepalives_interval": 2,
                "keepalives_count": 3,
                "tcp_user_timeout": int(max(statement_timeout_seconds * 2, 10) * 1000),
            },
        )
        bound(engine, statement_timeout_seconds=statement_timeout_seconds)
        event.listen(engine, "connect", _preparer(statement_timeout_seconds))
        event.listen(engine, "handle_error", _drop_read_only)
        return engine

    def missing(self, url: str) -> bool:
        """Connecting never creates a database here."""
        del url
        return False

    def begin(self, connection: Connection) -> None:
        """The driver begins with the first statement."""

    def mint_fence(self, connection: Connection) -> None:
        """The fragment mints: a subquery that is evaluated once a statement."""

    def join_by_hash(self, connection: Connection) -> None:
        """Statistics that know of no running run make the planner loop over both sides: 50 times slower."""
        connection.exec_driver_sql("SET LOCAL enable_nestloop = off")

    def any_of(self, bind: str, kind: str) -> str:
        """A bound array; by value, so that the primary key's index is used whatever the statistics say."""
        return f"= ANY(CAST(:{bind} AS {kind}[]))"

    def picked(self, select: str) -> str:
        """An array, made once; the rows are then addressed by primary key."""
        return f"= ANY(ARRAY({select}))"

    def hold(self, key: str) -> str:
        """A shared advisory lock of the transaction: nobody but who asks for `unheld` ever meets it."""
        return f"SELECT pg_advisory_xact_lock_shared({_advisory(key)})"

    def unheld(self, key: str) -> str:
        """The same lock, alone, without waiting."""
        return f"pg_try_advisory_xact_lock({_advisory(key)})"

    def rows(self, alias: str, bind: str, **columns: str) -> str:
        """Rows out of parallel arrays; `position` counts from 1."""
        arrays = ", ".join(f"CAST(:{bind}_{i} AS {kind}[])" for i, kind in enumerate(columns.values()))
        return f"unnest({arrays}) WITH ORDINALITY AS {alias} ({', '.join(columns)}, position)"

    def bind_rows(self, bind: str, rows: Sequence[Sequence[Any]], width: int) -> dict[str, Any]:
        """One array a column."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * width
        return {f"{bind}_{i}": _array(column) for i, column in enumerate(columns)}

    def bind_list(self, values: Sequence[Any]) -> Any:
        """One array."""
        return _array(values)

    def translate(self, error: Exception) -> StoreError | None:
        """By SQLSTATE; a connection that broke has none."""
        if isinstance(error, DBAPIError):
            return _classify(error.orig, broken=error.connection_invalidated)
        if isinstance(error, psycopg.Error):
            return _classify(error, broken=False)
        return None

    def notify(self, connection: Connection, channel: str) -> None:
        """Delivered when the transaction commits."""
        connection.exec_driver_sql("SELECT pg_notify(%s, '')", (channel,))

    @contextlib.contextmanager
    def listen(self, url: str, channel: str, wake: Callable[[], None]) -> Generator[None]:
        """A thread with a session of its own; it reconnects for ever, since losing it costs only latency."""
        stop = threading.Event()
        address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        thread = threading.Thread(
            target=_listen, args=(address, channel, wake, stop), name="timeball-listen", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(LISTEN_SLICE_SECONDS * 4)

    @contextlib.contextmanager
    def migration_lock(self, connection: Connection) -> Generator[None]:
        """A transaction's advisory lock: freed by commit, rollback or a broken connection."""
        connection.exec_driver_sql("SET LOCAL lock_timeout = '120s'")
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{MIGRATION_SECONDS}s'")
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = '60s'")
        with patience(connection, MIGRATION_SECONDS):
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK_KEY,))
            yield


def _advisory(key: str) -> str:
    """Two numbers: a space of keys that applications rarely use, and then our own part of it."""
    return f"{HOLD_SPACE}, CAST(mod({key}, 2147483647) AS INTEGER)"


def _preparer(statement_timeout_seconds: float) -> Callable[[Any, Any], None]:
    limits = {
        "statement_timeout": f"{int(statement_timeout_seconds * 1000)}ms",
        "lock_timeout": f"{LOCK_SECONDS}s",
        "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_SECONDS}s",
        # Plans are made for the values at hand: statistics of an empty or a finished table mislead generic ones,
        # and a claim must never read the whole ledger.
        "plan_cache_mode": "force_custom_plan",
        "enable_seqscan": "off",
        # A claim walks its index in order and stops at its limit; a bitmap would read and sort the whole backlog.
        "enable_bitmapscan": "off",
        "jit": "off",
    }

    def prepare(connection: Any, _record: object) -> None:
        autocommit, connection.autocommit = connection.autocommit, True
        if connection.info.server_version < SERVER_MIN:
            raise StoreError(f"PostgreSQL {connection.info.server_version // 10000} is too old", hint="14 or newer")
        connection.execute("; ".join(f"SET {name} = '{value}'" for name, value in limits.items()))
        connection.autocommit = autocommit

    return prepare


def _drop_read_only(context: Any) -> None:
    """A session of a server that was read-only (maintenance, a demoted primary) stays so: the pool opens another."""
    if getattr(context.original_exception, "sqlstate", None) == READ_ONLY:
        context.is_disconnect = True


def _array(values: Sequence[Any]) -> str:
    """An array's text form, to be bound and cast: several times faster to make than the driver's lists."""
    return "{" + ",".join([str(v) if type(v) is int else _element(v) for v in values]) + "}"


def _element(value: object) -> str:
    if value is None:
        return "NULL"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


_BUSY = {"40001", "40P01", "55P03", "57014"}
_UNAVAILABLE = {READ_ONLY, "57P01", "57P02", "57P03", "57P05", "25P03", "25P04"}
_UNAVAILABLE_CLASSES = ("08", "53", "58")
"""Connections; what the server has no more of (disk, memory, sessions); the server's own input and output."""
AWAY = "is the server up? host and port in the URL are where it listens"
_SCHEMA = {"42P01", "42703", "3F000"}
_CORRUPT = {"XX001", "XX002"}


def _classify(error: BaseException | None, *, broken: bool) -> StoreError:  # noqa: PLR0911 - a table
    state = getattr(error, "sqlstate", None)
    text = f"PostgreSQL: {_words(error)}"
    if state == "23505":
        return Duplicate(text)
    if state in _BUSY:
        return Busy(text)
    if broken or state in _UNAVAILABLE or (state or "").startswith(_UNAVAILABLE_CLASSES):
        return Unavailable(text)
    if state in _SCHEMA:
        return SchemaMismatch(text, hint="timeball db upgrade")
    if state in _CORRUPT:
        return Corrupt(text)
    if state is None and not broken and (refusal := refusal_of(text)) is not None:
        return refusal
    if state is None and isinstance(error, psycopg.OperationalError):
        return Unavailable(text, hint=AWAY if "Connection refused" in text else None)
    return StoreError(text)


def _words(error: BaseException | None) -> str:
    """On one line, without the part of a statement that is pointed at."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and line != "^" and not line.startswith("LINE "))


def _listen(url: str, channel: str, wake: Callable[[], None], stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            with psycopg.connect(
                url, autocommit=True, connect_timeout=5, application_name="timeball-listen"
            ) as session:
                session.execute(SQL("LISTEN {}").format(Identifier(channel)))
                wake()  # what happened while nobody listened
                while not stop.is_set():
                    for _ in session.notifies(timeout=LISTEN_SLICE_SECONDS, stop_after=1):
                        wake()
        except psycopg.Error:
            stop.wait(LISTEN_BACKOFF_SECONDS)
