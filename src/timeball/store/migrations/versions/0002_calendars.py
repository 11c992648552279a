"""Named calendars. Expands only: nothing that was there changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def _name(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length=length).with_variant(sa.String(length=length, collation="C"), "postgresql")


def upgrade() -> None:
    """One table. Jobs keep copies of the rules in their definitions, so no job is touched."""
    op.create_table(
        "timeball_calendar",
        sa.Column("namespace", _name(200), nullable=False),
        sa.Column("name", _name(200), nullable=False),
        sa.Column("rules", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "name"),
    )


def downgrade() -> None:
    """Jobs go on with their copies; the version before reads those as calendars of their own."""
    op.drop_table("timeball_calendar")
