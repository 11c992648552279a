"""Looking at a database as the doctor does: questions about it as a whole, each answered with plain facts."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.engine import make_url

from timeball.errors import StoreError, Unavailable
from timeball.store.database import Database, sql
from timeball.store.schema import metadata

PROBES = 6
_MISSING_RIGHTS = sql(
    "SELECT c.relname, r.name FROM pg_class c CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r (name) "
    "WHERE c.oid IN (SELECT to_regclass(t.name) FROM unnest(CAST(:tables AS TEXT[])) AS t (name)) "
    "AND NOT has_table_privilege(c.oid, r.name) "
    "UNION ALL SELECT c.relname, 'USAGE' FROM pg_class c WHERE c.oid = to_regclass('timeball_fence') "
    "AND NOT has_sequence_privilege(c.oid, 'USAGE') ORDER BY 1, 2"
)
SESSION = ("transaction_isolation", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")


class Probe(NamedTuple):
    """What one of several transactions on one connection found: the server's process and our session's mark."""

    pid: int
    mark: str | None


class Inspection:
    """Each method is one question. All raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self.postgres = database.dialect.name == "postgresql"

    def file(self) -> Path | None:
        """The file of an embedded database."""
        name = make_url(self._db.url).database
        return None if self.postgres or not name else Path(name).resolve()

    def version(self) -> str:
        """The database's own version."""
        query = "SHOW server_version" if self.postgres else "SELECT sqlite_version()"
        return str(self._value(query))

    def standby(self) -> bool:
        """Whether it follows another server, and so only reads."""
        return self.postgres and bool(self._value("SELECT pg_is_in_recovery()"))

    def read_only(self) -> str | None:
        """Why nothing can be written, or None: a standby, a session that only reads, or a refused write."""
        if self.standby():
            return "a standby (read replica)"
        try:
            self._write()
        except StoreError as error:
            return error.message
        return None

    def _write(self) -> None:
        """Commit a row, change it, remove it again: only a commit meets a full disk."""
        name = f"doctor {uuid.uuid4().hex}"
        for statement in (
            "INSERT INTO timeball_counter (name, value) VALUES (:name, 0)",
            "UPDATE timeball_counter SET value = 1 WHERE name = :name",
            "DELETE FROM timeball_counter WHERE name = :name",
        ):
            with self._db.transaction() as tx:
                tx.count(sql(statement), name=name)

    def missing_rights(self) -> list[str]:
        """What the role may not do with tables and sequences of ours, as `INSERT on timeball_run`."""
        if not self.postgres:
            return []
        with self._db.snapshot() as tx:
            rows = tx.all(_MISSING_RIGHTS, tables=tx.list(sorted(metadata.tables)))
        return [f"{right} on {name}" for name, right in rows]

    def session(self) -> dict[str, str]:
        """The settings in force in a session of ours; empty where there are none."""
        if not self.postgres:
            return {}
        return {name: str(self._value(f"SELECT current_setting('{name}')")) for name in SESSION}

    def journal_mode(self) -> str:
        """SQLite's; `wal` is right."""
        return str(self._value("PRAGMA journal_mode"))

    def probes(self) -> list[Probe]:
        """Mark a session, then ask for the mark in several transactions of the same connection."""
        if not self.postgres:
            return []
        engine = self._db.dialect.make_engine(self._db.url, statement_timeout_seconds=5, pool_size=1)
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("SET timeball.mark = 'ours'")
                connection.commit()
                found: list[Probe] = []
                for _ in range(PROBES):
                    row = connection.exec_driver_sql(
                        "SELECT pg_backend_pid(), current_setting('timeball.mark', true)"
                    ).fetchone()
                    connection.commit()
                    assert row is not None
                    found.append(Probe(row[0], row[1]))
                return found
        except Exception as error:
            raise self._db.dialect.translate(error) or Unavailable(str(error)) from error
        finally:
            engine.dispose()

    def clock(self) -> int:
        """The database's clock, in microseconds."""
        with self._db.snapshot() as tx:
            return tx.now()

    def _value(self, query: str) -> object:
        with self._db.snapshot() as tx:
            row = tx.one(sql(query))
            return None if row is None else row[0]


def refuse_unfit(database: Database) -> None:
    """At the start of an instance: raise rather than take part where a promise could not be held.

    Raises Unavailable for a standby (it may become a primary), StoreError for another isolation than ours.
    """
    inspection = Inspection(database)
    if not inspection.postgres:
        return
    if inspection.standby():
        raise Unavailable(f"{database.safe_url} is a standby: it only reads", hint="the URL of the primary")
    isolation = inspection.session()["transaction_isolation"]
    if isolation != "read committed":
        raise StoreError(
            f"sessions of {database.safe_url} run at {isolation!r}, not READ COMMITTED",
            hint="timeball doctor says more; look at poolers and at ALTER ROLE … SET",
        )
