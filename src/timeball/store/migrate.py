"""Bringing the schema up to date: Alembic under a lock, in one transaction, safe when many start at once."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config

from timeball.clock import pause_us, seconds_to_us
from timeball.errors import Busy
from timeball.store.database import Database, Transaction, sql
from timeball.store.revision import current_revision, refuse_newer, refuse_unrecorded

TRIES_MAX = 60
PAUSE_SECONDS = 0.25


def upgrade_schema(database: Database, namespace: str, *, reseed: bool = False) -> str | None:
    """Apply what is missing and seed the namespace's lease row; the revision found before, or None if there was none.

    A lease row that was there once is put back only where `reseed` says so: its epoch is lost. Raises SchemaMismatch
    for a schema of a newer version. One instance migrates, the others wait for its lock and find nothing left to do.
    """
    before = current_revision(database)
    refuse_newer(database, before)
    if before is None:
        refuse_unrecorded(database, database.safe_url)
    for attempt in range(TRIES_MAX):
        try:
            with database.transaction(any_schema=True) as tx, tx.migration_lock() as connection:
                config = Config()
                config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                _seed(tx, namespace, reseed=reseed)
            return before
        except Busy:
            if attempt == TRIES_MAX - 1:
                raise
            pause_us(seconds_to_us(PAUSE_SECONDS))
    raise AssertionError("unreachable")


def _seed(tx: Transaction, namespace: str, *, reseed: bool) -> None:
    fresh = "NOT EXISTS (SELECT 1 FROM timeball_instance WHERE namespace = :namespace)"
    tx.count(
        sql(
            f"INSERT INTO timeball_lease (namespace, holder, epoch, expires_at) "
            f"SELECT CAST(:namespace AS TEXT), NULL, 0, 0 WHERE {'1 = 1' if reseed else fresh} ON CONFLICT (namespace) DO NOTHING"
        ),
        namespace=namespace,
    )
