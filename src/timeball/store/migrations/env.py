"""Alembic's entry: runs the migrations on the connection that `migrate.py` hands over, inside its transaction."""

from alembic import context

from timeball.store.revision import VERSION_TABLE
from timeball.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
