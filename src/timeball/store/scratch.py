"""Verbs about a schema that exists for one test only: made, used, dropped. PostgreSQL's alone."""

from __future__ import annotations

from timeball.errors import StoreError
from timeball.store.database import Database, sql


def create_schema(database: Database, name: str) -> None:
    """Make an empty schema. Raises StoreError where that is not allowed, Unavailable.

    `name` is ours: letters, digits and _ only.
    """
    assert name.isidentifier()
    try:
        database.transact(lambda tx: tx.count(sql(f"CREATE SCHEMA {name}")))
    except StoreError as error:
        if "permission denied" in error.message:
            raise StoreError(
                f"{database.safe_url}: no schema may be created here: {error.message}",
                hint="GRANT CREATE ON DATABASE … TO …, or give a database of your own",
            ) from error
        raise


def drop_schema(database: Database, name: str) -> None:
    """Remove a schema with all that is in it. Raises Busy while somebody still works in it, Unavailable."""
    assert name.isidentifier()
    database.transact(lambda tx: tx.count(sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")))
