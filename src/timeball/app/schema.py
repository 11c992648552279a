"""Bringing a database to where this version can work on it, or saying why not."""

from __future__ import annotations

from timeball.settings import Settings
from timeball.store import Store
from timeball.store.revision import check_schema, current_revision


def ensure_schema(store: Store, settings: Settings, *, upgrade: bool, create: bool = False) -> None:
    """`upgrade`: apply migrations (a starting instance does). `create`: only give a schema to a database without one.

    With the setting `migrate = false` nothing is ever changed. Raises SchemaMismatch, LeaseRowMissing, Unavailable.
    """
    if settings.migrate and (upgrade or (create and current_revision(store.database) is None)):
        from timeball.store.migrate import upgrade_schema  # noqa: PLC0415 - Alembic takes a tenth of a second

        upgrade_schema(store.database, settings.namespace)
    check_schema(store.database, settings.namespace)
