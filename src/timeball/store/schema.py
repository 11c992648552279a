"""The tables. Instants are BIGINT microseconds UTC; keys are binary-exact text; JSON is text that we write ourselves.

Every table begins with `timeball_`, since it may share a database with an application. There are no foreign keys on
the ledger: jobs are never removed before their runs, and a check per inserted run would be paid on the hot path.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, String, Table, Text, UniqueConstraint
from sqlalchemy import text as sql_text

metadata = MetaData()

# SQLite numbers rows by themselves only in an INTEGER PRIMARY KEY.
Id = BigInteger().with_variant(Integer, "sqlite")
NO_LIMIT = 2**62
"""An instant that never comes: `start_by` of what may start however late."""
REASON_CHARS_MAX = 200


def _name(length: int = 200) -> String:
    return String(length).with_variant(String(length, collation="C"), "postgresql")


job = Table(
    "timeball_job",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("namespace", _name(), nullable=False),
    Column("name", _name(), nullable=False),
    # The name while the job lives, NULL once it is deleted: frees the name and keeps the row, on every database.
    Column("live_name", _name(), nullable=True),
    Column("state", String(20), nullable=False),
    Column("version", Integer, nullable=False),
    Column("definition", Text, nullable=False),
    Column("cursor_at", BigInteger, nullable=False),
    Column("next_due_at", BigInteger, nullable=True),
    Column("anchor_at", BigInteger, nullable=False),
    # Retention has removed runs due up to here; an audit begins after it.
    Column("purged_until", BigInteger, nullable=False, server_default="0"),
    Column("declared", Text, nullable=True),
    Column("problem", Text, nullable=True),
    # While it is paused, as JSON: why, by whom, since when; and when it is resumed by itself.
    Column("pause", Text, nullable=True),
    Column("resume_at", BigInteger, nullable=True),
    Column("tzdata", String(20), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("namespace", "live_name", name="timeball_job_live_name"),
    Index("timeball_job_due", "namespace", "state", "next_due_at"),
    sqlite_autoincrement=True,
)

job_version = Table(
    "timeball_job_version",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    # Ticks after this instant and up to the next version's follow this definition, if the state is active.
    Column("from_at", BigInteger, nullable=False),
    Column("state", String(20), nullable=False),
    Column("definition", Text, nullable=False),
    Column("anchor_at", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Column("actor", _name(), nullable=False),
    Column("change", String(20), nullable=False),
)

run = Table(
    "timeball_run",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("job_id", BigInteger, nullable=False),
    Column("job_version", Integer, nullable=False),
    Column("kind", String(10), nullable=False),
    # The tick. With salt 0 this is the key that makes two runs of one tick impossible; manual runs have a random salt.
    Column("due_at", BigInteger, nullable=False),
    Column("salt", BigInteger, nullable=False, server_default="0"),
    # A stretch of missed ticks is one row: from due_at to last_due_at, this many.
    Column("last_due_at", BigInteger, nullable=True),
    Column("ticks", Integer, nullable=False, server_default="1"),
    Column("state", String(12), nullable=False),
    Column("reason", String(REASON_CHARS_MAX), nullable=True),
    Column("attempt", Integer, nullable=False, server_default="1"),
    Column("lost_count", Integer, nullable=False, server_default="0"),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("exclusive", Integer, nullable=False, server_default="0"),
    Column("handler", _name(250), nullable=False),
    Column("requires", _name(500), nullable=False, server_default=""),
    # This attempt's due instant; the tick's for the first.
    Column("ready_at", BigInteger, nullable=False),
    # When the row may be claimed: planned: ready_at; claimed: the claim's deadline; else NULL (keeps the index small).
    Column("claimable_at", BigInteger, nullable=True),
    # Not to be started later than this without the leader's word (misfire).
    Column("start_by", BigInteger, nullable=False),
    Column("args", Text, nullable=True),
    Column("idempotency_key", _name(), nullable=True),
    Column("instance_id", String(32), nullable=True),
    Column("fence", BigInteger, nullable=True),
    Column("claimed_at", BigInteger, nullable=True),
    Column("started_at", BigInteger, nullable=True),
    Column("begun_at", BigInteger, nullable=True),
    Column("ended_at", BigInteger, nullable=True),
    Column("cancel_reason", String(200), nullable=True),
    Column("late", Integer, nullable=False, server_default="0"),
    # The ids of the limits whose permits it holds while it is running, as `3,17`.
    Column("limits", _name(), nullable=False, server_default=""),
    Column("error", Text, nullable=True),
    Column("result", Text, nullable=True),
    UniqueConstraint("job_id", "due_at", "salt", name="timeball_run_tick"),
    sqlite_autoincrement=True,
)

_CLAIMABLE = sql_text("claimable_at IS NOT NULL")
_LIVE = sql_text("state IN ('planned', 'claimed', 'running')")
_LIMITED = sql_text("state = 'running' AND limits <> ''")
_KEYED = sql_text("idempotency_key IS NOT NULL")
Index(
    "timeball_run_claimable",
    run.c.priority.desc(),
    run.c.claimable_at,
    postgresql_where=_CLAIMABLE,
    sqlite_where=_CLAIMABLE,
)
Index("timeball_run_live", run.c.job_id, run.c.state, postgresql_where=_LIVE, sqlite_where=_LIVE)
Index("timeball_run_limited", run.c.limits, postgresql_where=_LIMITED, sqlite_where=_LIMITED)
Index("timeball_run_owner", run.c.instance_id, postgresql_where=_LIVE, sqlite_where=_LIVE)
Index(
    "timeball_run_idempotency",
    run.c.job_id,
    run.c.idempotency_key,
    unique=True,
    postgresql_where=_KEYED,
    sqlite_where=_KEYED,
)

attempt = Table(
    "timeball_attempt",
    metadata,
    # Attempts that another one followed; the last attempt's record is the run's own row.
    Column("run_id", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("state", String(12), nullable=False),
    Column("reason", String(REASON_CHARS_MAX), nullable=True),
    Column("instance_id", String(32), nullable=True),
    Column("fence", BigInteger, nullable=True),
    Column("ready_at", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=True),
    Column("begun_at", BigInteger, nullable=True),
    Column("ended_at", BigInteger, nullable=True),
    Column("error", Text, nullable=True),
)

output = Table(
    "timeball_output",
    metadata,
    Column("run_id", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("stream", String(20), primary_key=True),
    Column("text", Text, nullable=False),
    Column("bytes_total", BigInteger, nullable=False),
    Column("bytes_cut", BigInteger, nullable=False),
)

progress = Table(
    "timeball_progress",
    metadata,
    # The last word of a run's attempt, by its fence; without a key to the run's row, which others lock.
    Column("run_id", BigInteger, primary_key=True, autoincrement=False),
    Column("fence", BigInteger, nullable=False),
    Column("fraction", Double, nullable=False),
    Column("text", String(200), nullable=False),
    Column("at", BigInteger, nullable=False),
)

instance = Table(
    "timeball_instance",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("namespace", _name(), nullable=False),
    Column("name", _name(), nullable=False),
    Column("host", _name(250), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("version", String(40), nullable=False),
    Column("state", String(12), nullable=False),
    Column("execute", String(10), nullable=False),
    Column("labels", Text, nullable=False),
    Column("handlers", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("heartbeat_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index("timeball_instance_state", "namespace", "state", "expires_at"),
)

lease = Table(
    "timeball_lease",
    metadata,
    Column("namespace", _name(), primary_key=True),
    Column("holder", String(32), nullable=True),
    Column("epoch", BigInteger, nullable=False),
    Column("acquired_at", BigInteger, nullable=True),
    Column("expires_at", BigInteger, nullable=False),
)

event = Table(
    "timeball_event",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("namespace", _name(), nullable=False),
    Column("kind", String(60), nullable=False),
    Column("job_id", BigInteger, nullable=True),
    Column("run_id", BigInteger, nullable=True),
    Column("instance_id", String(32), nullable=True),
    Column("actor", _name(), nullable=False),
    Column("data", Text, nullable=False),
    Index("timeball_event_at", "at"),
    sqlite_autoincrement=True,
)

reboot = Table(
    "timeball_reboot",
    metadata,
    # Starts of the cluster. While `counted_at` is NULL it is a question: whether anybody lives from before it.
    Column("namespace", _name(), primary_key=True),
    Column("opened_at", BigInteger, primary_key=True, autoincrement=False),
    Column("instance_id", String(32), nullable=False),
    Column("counted_at", BigInteger, nullable=True),
)
_OPEN = sql_text("counted_at IS NULL")
Index("timeball_reboot_open", reboot.c.namespace, unique=True, postgresql_where=_OPEN, sqlite_where=_OPEN)

calendar = Table(
    "timeball_calendar",
    metadata,
    Column("namespace", _name(), primary_key=True),
    Column("name", _name(), primary_key=True),
    Column("rules", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

limit = Table(
    "timeball_limit",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("namespace", _name(), nullable=False),
    Column("name", _name(), nullable=False),
    Column("running_max", Integer, nullable=True),
    Column("started_max", Integer, nullable=True),
    Column("window_us", BigInteger, nullable=True),
    Column("description", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("namespace", "name", name="timeball_limit_name"),
    sqlite_autoincrement=True,
)

permit = Table(
    "timeball_permit",
    metadata,
    # One row a limit, locked by starts: apart from its definition, for the reason that gates are apart from jobs.
    Column("limit_id", BigInteger, primary_key=True, autoincrement=False),
    # As JSON: `recent`, the starts within the window as [[end of slot, count], …], and `tail_at`.
    Column("state", Text, nullable=False),
)

backfill = Table(
    "timeball_backfill",
    metadata,
    # Its runs have the negative of this id as their salt.
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("namespace", _name(), nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("ticks", Integer, nullable=False),
    Column("at_once", Integer, nullable=False),
    Column("state", String(12), nullable=False),
    Column("actor", _name(), nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Index("timeball_backfill_open", "namespace", "state"),
    sqlite_autoincrement=True,
)

gate = Table(
    "timeball_gate",
    metadata,
    # One row a job. Starts that must be counted against each other lock it, so that they never wait for the planner,
    # which locks the job's own row.
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
)

counter = Table(
    "timeball_counter",
    metadata,
    # Fences where the database has no sequences.
    Column("name", _name(), primary_key=True),
    Column("value", BigInteger, nullable=False),
)
