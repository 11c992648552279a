"""Starts of the cluster, for `@reboot`. Expands only: nothing that was there changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """One table; at most one row of a namespace is open."""
    name = sa.String(length=200).with_variant(sa.String(length=200, collation="C"), "postgresql")
    op.create_table(
        "timeball_reboot",
        sa.Column("namespace", name, nullable=False),
        sa.Column("opened_at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("instance_id", sa.String(length=32), nullable=False),
        sa.Column("counted_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("namespace", "opened_at"),
    )
    is_open = sa.text("counted_at IS NULL")
    op.create_index(
        "timeball_reboot_open",
        "timeball_reboot",
        ["namespace"],
        unique=True,
        postgresql_where=is_open,
        sqlite_where=is_open,
    )


def downgrade() -> None:
    """The version before refuses `@reboot`: such jobs are set aside as broken."""
    op.drop_table("timeball_reboot")
