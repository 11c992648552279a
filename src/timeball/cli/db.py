"""`timeball db …`."""

from __future__ import annotations

import click

from timeball.cli.context import Context, common
from timeball.store import open_store
from timeball.store.revision import HEAD, check_schema, current_revision


@click.group(name="db")
def command() -> None:
    """Bring the database's schema up to date, or check it."""


@command.command()
@common
def upgrade(context: Context) -> None:
    """Apply the missing migrations. Safe while instances run, and when several do it at once."""
    from timeball.store.migrate import upgrade_schema  # noqa: PLC0415 - Alembic takes a tenth of a second

    settings = context.settings
    store = open_store(settings.database_url)
    try:
        before = upgrade_schema(store.database, settings.namespace, reseed=True)
        after = current_revision(store.database)
        document = {"database": store.database.safe_url, "before": before, "after": after}
    finally:
        store.close()
    words = f"schema {after}: nothing to do" if before == after else f"schema {before or 'none'} -> {after}"
    context.show(document, lambda: click.echo(words))


@command.command()
@common
def check(context: Context) -> None:
    """Check that the database answers and has the schema that this version needs. Changes nothing."""
    settings = context.settings
    store = open_store(settings.database_url)
    try:
        store.database.must_exist()
        check_schema(store.database, settings.namespace)
        document = {"database": store.database.safe_url, "revision": HEAD, "ok": True}
    finally:
        store.close()
    context.show(document, lambda: click.echo(f"{document['database']}: schema {HEAD}, ok"))
