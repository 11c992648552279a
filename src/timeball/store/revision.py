"""Which schema this code needs, and whether the database has it. Imports no Alembic: it runs at every start."""

from __future__ import annotations

from timeball.errors import LeaseRowMissing, NotFound, SchemaMismatch
from timeball.store.database import Database, Transaction, sql
from timeball.store.schema import metadata

HEAD = "0003"
VERSION_TABLE = "timeball_schema"
# Schemas that this code can work on: its own, and with expand-then-contract its neighbours'.
WORKS_ON = frozenset({HEAD})
# Every schema that a migration of ours leads on from.
KNOWN = frozenset({"0001", "0002", "0003"})


_REVISION = sql(f"SELECT version_num FROM {VERSION_TABLE}")


def current_revision(database: Database) -> str | None:
    """The revision recorded in the database; None when there is no schema of ours at all."""
    try:
        return database.read(_revision)
    except SchemaMismatch:
        return None


def refuse_newer(database: Database, revision: str | None) -> None:
    """Raise SchemaMismatch for a schema that no migration of this version knows."""
    if revision is not None and revision not in KNOWN:
        raise _newer(revision, database.safe_url)


def check_revision(database: Database, *, subject: str) -> None:
    """Raise SchemaMismatch unless this code works on the schema that is recorded; `subject` is what has it."""
    revision = current_revision(database)
    if revision is None:
        refuse_unrecorded(database, subject)
    refusal = _refusal(revision, subject)
    if refusal is not None:
        raise refusal


def refuse_unrecorded(database: Database, subject: str) -> None:
    """Raise SchemaMismatch where there are tables of ours and no record of the revision that made them."""
    there = [name for name in sorted(metadata.tables) if _has_table(database, name)]
    if there and current_revision(database) is None:  # asked again: another first start may have ended meanwhile
        raise SchemaMismatch(
            f"{subject} has tables of Timeball ({', '.join(there)}), and no record of the version that made them: "
            f"{VERSION_TABLE} is missing or empty",
            hint="put a backup back; or drop these tables, and timeball db upgrade makes new ones",
        )


def prove_revision(tx: Transaction) -> None:
    """The same inside a transaction that is about to write: one more statement in it."""
    refusal = _refusal(_revision(tx), "the database")
    if refusal is not None:
        raise refusal


def check_schema(database: Database, namespace: str) -> None:
    """Raise SchemaMismatch, LeaseRowMissing or NotFound (no such namespace) unless this code can work on the database as it is."""
    check_revision(database, subject=database.safe_url)
    seeded = database.read(
        lambda tx: tx.one(sql("SELECT 1 FROM timeball_lease WHERE namespace = :namespace"), namespace=namespace)
    )
    if seeded is None:
        _refuse_unknown_namespace(database, namespace)
        raise LeaseRowMissing(
            f"the lease row of namespace {namespace!r} is missing, so nobody can lead",
            hint="timeball db upgrade puts it back",
        )


def _refuse_unknown_namespace(database: Database, namespace: str) -> None:
    """Raise NotFound for a namespace of which nothing was ever there, beside others that are."""
    known = [
        str(row[0]) for row in database.read(lambda tx: tx.all(sql("SELECT namespace FROM timeball_lease ORDER BY 1")))
    ]
    traces = sql(
        "SELECT 1 FROM timeball_instance WHERE namespace = :namespace "
        "UNION ALL SELECT 1 FROM timeball_job WHERE namespace = :namespace LIMIT 1"
    )
    if known and database.read(lambda tx: tx.one(traces, namespace=namespace)) is None:
        raise NotFound(
            f"there is no namespace {namespace!r} in {database.safe_url}",
            hint=f"there {'are' if len(known) > 1 else 'is'} {', '.join(known[:10])}; "
            f"timeball db upgrade --namespace {namespace} makes it",
        )


def _has_table(database: Database, name: str) -> bool:
    try:
        database.read(lambda tx: tx.one(sql(f"SELECT 1 FROM {name} WHERE 1 = 0")))
    except SchemaMismatch:
        return False
    return True


def _revision(tx: Transaction) -> str | None:
    row = tx.one(_REVISION)
    return None if row is None else str(row[0])


def _refusal(revision: str | None, subject: str) -> SchemaMismatch | None:
    """Why this code cannot work on a schema, or None where it can."""
    if revision is None:
        return SchemaMismatch(f"{subject} has no Timeball schema", hint="timeball db upgrade creates it")
    if revision in WORKS_ON:
        return None
    if revision not in KNOWN:
        return _newer(revision, subject)
    works_on = ", ".join(sorted(WORKS_ON))
    return SchemaMismatch(
        f"{subject} has schema {revision}; this version works on {works_on}", hint="timeball db upgrade"
    )


def _newer(revision: str, subject: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"{subject} has schema {revision}, which was made by a newer version; this one goes up to {HEAD}",
        hint="install that version; nothing was changed",
    )
