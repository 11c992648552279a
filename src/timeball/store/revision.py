"""Which schema this code needs, and whether the database has it. Imports no Alembic: it runs at every start."""

from __future__ import annotations

from timeball.errors import LeaseRowMissing, SchemaMismatch
from timeball.store.database import Database, Transaction, sql

HEAD = "0002"
VERSION_TABLE = "timeball_schema"
# Schemas that this code can work on: its own, and with expand-then-contract its neighbours'.
WORKS_ON = frozenset({HEAD})
# Every schema that a migration of ours leads on from.
KNOWN = frozenset({"0001", "0002"})


def current_revision(database: Database) -> str | None:
    """The revision recorded in the database; None when there is no schema of ours at all."""

    def work(tx: Transaction) -> str | None:
        row = tx.one(sql(f"SELECT version_num FROM {VERSION_TABLE}"))
        return None if row is None else str(row[0])

    try:
        return database.read(work)
    except SchemaMismatch:
        return None


def refuse_newer(database: Database, revision: str | None) -> None:
    """Raise SchemaMismatch for a schema that no migration of this version knows."""
    if revision is not None and revision not in KNOWN:
        raise SchemaMismatch(
            f"{database.safe_url} has schema {revision}, which was made by a newer version; this one goes up to {HEAD}",
            hint="install that version; nothing was changed",
        )


def check_schema(database: Database, namespace: str) -> None:
    """Raise SchemaMismatch or LeaseRowMissing unless this code can work on the database as it is."""
    revision = current_revision(database)
    if revision is None:
        raise SchemaMismatch(f"{database.safe_url} has no Timeball schema", hint="timeball db upgrade creates it")
    refuse_newer(database, revision)
    if revision not in WORKS_ON:
        raise SchemaMismatch(
            f"{database.safe_url} has schema {revision}; this version works on {', '.join(sorted(WORKS_ON))}",
            hint="timeball db upgrade",
        )
    seeded = database.read(
        lambda tx: tx.one(sql("SELECT 1 FROM timeball_lease WHERE namespace = :namespace"), namespace=namespace)
    )
    if seeded is None:
        raise LeaseRowMissing(
            f"the lease row of namespace {namespace!r} is missing, so nobody can lead",
            hint="timeball db upgrade puts it back",
        )
