"""The first schema: jobs and their history, runs, attempts, outputs, instances, the lease, the trail.

Frozen: later changes are migrations of their own (expand first, contract in a later release).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _name(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length=length).with_variant(sa.String(length=length, collation="C"), "postgresql")


def _id() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create everything; fences come from a sequence where there are sequences, else from a counter's row."""
    _create_tables()
    op.execute("INSERT INTO timeball_counter (name, value) VALUES ('fence', 0)")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("CREATE SEQUENCE timeball_fence AS BIGINT")


def _create_tables() -> None:
    op.create_table(
        "timeball_attempt",
        sa.Column("run_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("reason", sa.String(length=200), nullable=True),
        sa.Column("instance_id", sa.String(length=32), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=True),
        sa.Column("ready_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("begun_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt"),
    )
    op.create_table(
        "timeball_backfill",
        sa.Column("id", _id(), autoincrement=True, nullable=False),
        sa.Column("namespace", _name(200), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("ticks", sa.Integer(), nullable=False),
        sa.Column("at_once", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("actor", _name(200), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("timeball_backfill_open", "timeball_backfill", ["namespace", "state"], unique=False)
    op.create_table(
        "timeball_counter",
        sa.Column("name", _name(200), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "timeball_event",
        sa.Column("id", _id(), autoincrement=True, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("namespace", _name(200), nullable=False),
        sa.Column("kind", sa.String(length=60), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=True),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("instance_id", sa.String(length=32), nullable=True),
        sa.Column("actor", _name(200), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("timeball_event_at", "timeball_event", ["at"], unique=False)
    op.create_table(
        "timeball_gate",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_table(
        "timeball_instance",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("namespace", _name(200), nullable=False),
        sa.Column("name", _name(200), nullable=False),
        sa.Column("host", _name(250), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(length=40), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("execute", sa.String(length=10), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("handlers", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("timeball_instance_state", "timeball_instance", ["namespace", "state", "expires_at"], unique=False)
    op.create_table(
        "timeball_job",
        sa.Column("id", _id(), autoincrement=True, nullable=False),
        sa.Column("namespace", _name(200), nullable=False),
        sa.Column("name", _name(200), nullable=False),
        sa.Column("live_name", _name(200), nullable=True),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("cursor_at", sa.BigInteger(), nullable=False),
        sa.Column("next_due_at", sa.BigInteger(), nullable=True),
        sa.Column("anchor_at", sa.BigInteger(), nullable=False),
        sa.Column("purged_until", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("declared", sa.Text(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("pause", sa.Text(), nullable=True),
        sa.Column("resume_at", sa.BigInteger(), nullable=True),
        sa.Column("tzdata", sa.String(length=20), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("namespace", "live_name", name="timeball_job_live_name"),
        sqlite_autoincrement=True,
    )
    op.create_index("timeball_job_due", "timeball_job", ["namespace", "state", "next_due_at"], unique=False)
    op.create_table(
        "timeball_job_version",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("from_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("anchor_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("actor", _name(200), nullable=False),
        sa.Column("change", sa.String(length=20), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "version"),
    )
    op.create_table(
        "timeball_lease",
        sa.Column("namespace", _name(200), nullable=False),
        sa.Column("holder", sa.String(length=32), nullable=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("acquired_at", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("namespace"),
    )
    op.create_table(
        "timeball_limit",
        sa.Column("id", _id(), autoincrement=True, nullable=False),
        sa.Column("namespace", _name(200), nullable=False),
        sa.Column("name", _name(200), nullable=False),
        sa.Column("running_max", sa.Integer(), nullable=True),
        sa.Column("started_max", sa.Integer(), nullable=True),
        sa.Column("window_us", sa.BigInteger(), nullable=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("namespace", "name", name="timeball_limit_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "timeball_permit",
        sa.Column("limit_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("limit_id"),
    )
    op.create_table(
        "timeball_output",
        sa.Column("run_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stream", sa.String(length=20), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("bytes_total", sa.BigInteger(), nullable=False),
        sa.Column("bytes_cut", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "attempt", "stream"),
    )
    op.create_table(
        "timeball_progress",
        sa.Column("run_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("fraction", sa.Double(), nullable=False),
        sa.Column("text", sa.String(length=200), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_table(
        "timeball_run",
        sa.Column("id", _id(), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("job_version", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("salt", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_due_at", sa.BigInteger(), nullable=True),
        sa.Column("ticks", sa.Integer(), server_default="1", nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("reason", sa.String(length=200), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default="1", nullable=False),
        sa.Column("lost_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("priority", sa.Integer(), server_default="0", nullable=False),
        sa.Column("exclusive", sa.Integer(), server_default="0", nullable=False),
        sa.Column("handler", _name(250), nullable=False),
        sa.Column("requires", _name(500), server_default="", nullable=False),
        sa.Column("ready_at", sa.BigInteger(), nullable=False),
        sa.Column("claimable_at", sa.BigInteger(), nullable=True),
        sa.Column("start_by", sa.BigInteger(), nullable=False),
        sa.Column("args", sa.Text(), nullable=True),
        sa.Column("idempotency_key", _name(200), nullable=True),
        sa.Column("instance_id", sa.String(length=32), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=True),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("begun_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("cancel_reason", sa.String(length=200), nullable=True),
        sa.Column("late", sa.Integer(), server_default="0", nullable=False),
        sa.Column("limits", _name(200), server_default="", nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "due_at", "salt", name="timeball_run_tick"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "timeball_run_claimable",
        "timeball_run",
        [sa.literal_column("priority DESC"), "claimable_at"],
        unique=False,
        postgresql_where=sa.text("claimable_at IS NOT NULL"),
        sqlite_where=sa.text("claimable_at IS NOT NULL"),
    )
    op.create_index(
        "timeball_run_idempotency",
        "timeball_run",
        ["job_id", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
        sqlite_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_index(
        "timeball_run_live",
        "timeball_run",
        ["job_id", "state"],
        unique=False,
        postgresql_where=sa.text("state IN ('planned', 'claimed', 'running')"),
        sqlite_where=sa.text("state IN ('planned', 'claimed', 'running')"),
    )
    op.create_index(
        "timeball_run_limited",
        "timeball_run",
        ["limits"],
        unique=False,
        postgresql_where=sa.text("state = 'running' AND limits <> ''"),
        sqlite_where=sa.text("state = 'running' AND limits <> ''"),
    )
    op.create_index(
        "timeball_run_owner",
        "timeball_run",
        ["instance_id"],
        unique=False,
        postgresql_where=sa.text("state IN ('planned', 'claimed', 'running')"),
        sqlite_where=sa.text("state IN ('planned', 'claimed', 'running')"),
    )
