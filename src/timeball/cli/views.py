"""Jobs and runs as JSON documents (keys as in the API) and as cells for people."""

from __future__ import annotations

import json
from typing import Any

from timeball.cli.context import duration_ms
from timeball.clock import format_instant
from timeball.model.job import Job, Pause
from timeball.store.changes import ChangeResult
from timeball.store.rulings import RunChange
from timeball.store.runs import StoredAttempt, StoredRun


def job_json(job: Job) -> dict[str, Any]:
    """A job with its definition, flat."""
    return {
        "id": job.id,
        "namespace": job.namespace,
        "name": job.name,
        "state": job.state.value,
        "version": job.version,
        **job.definition.to_dict(),
        "next_due_at": format_instant(job.next_due_at),
        "created_at": format_instant(job.created_at),
        "updated_at": format_instant(job.updated_at),
        "problem": job.problem,
        "pause": None if job.pause is None else pause_json(job.pause),
    }


def pause_json(pause: Pause) -> dict[str, Any]:
    """Why a job is paused."""
    return {
        "reason": pause.reason,
        "actor": pause.actor,
        "since": format_instant(pause.since),
        "resume_at": format_instant(pause.resume_at),
    }


def target_text(job: Job) -> str:
    """What a job runs, short."""
    target = job.definition.target
    if job.definition.executor == "command":
        argv = [str(part) for part in target.get("argv", ())]
        return " ".join(argv)[:60]
    if job.definition.executor == "http":
        return f"{target.get('method', 'http')} {target.get('url', '')}"[:60]
    return f"{job.definition.executor} {target.get('name') or target.get('task', '')}"[:60]


def run_json(run: StoredRun) -> dict[str, Any]:
    """A run; instants RFC 3339 in UTC with microseconds, durations in milliseconds."""
    begun = run.begun_at or run.started_at
    return {
        "id": run.id,
        "job": run.job,
        "job_version": run.job_version,
        "kind": run.kind,
        "due_at": format_instant(run.due_at),
        "state": run.state,
        "reason": run.reason,
        "attempt": run.attempt,
        "fence": run.fence,
        "instance": run.instance,
        "claimed_at": format_instant(run.claimed_at),
        "started_at": format_instant(run.started_at),
        "begun_at": format_instant(run.begun_at),
        "ended_at": format_instant(run.ended_at),
        "lateness_ms": duration_ms(begun, run.ready_at),
        "duration_ms": duration_ms(run.ended_at, begun) if run.state != "lost" else None,
        "error": run.error,
        "result": None if run.result is None else json.loads(run.result),
        "ticks": run.ticks,
        "last_due_at": format_instant(run.last_due_at),
        "late_outcome": run.late,
        "args": None if run.args is None else json.loads(run.args),
        "cancel_reason": run.cancel_reason,
        "progress": run.progress,
        "progress_text": run.progress_text,
        "progress_at": format_instant(run.progress_at),
    }


def attempt_json(attempt: StoredAttempt) -> dict[str, Any]:
    """An earlier attempt."""
    return {
        "attempt": attempt.attempt,
        "state": attempt.state,
        "reason": attempt.reason,
        "instance": attempt.instance,
        "fence": attempt.fence,
        "started_at": format_instant(attempt.started_at),
        "ended_at": format_instant(attempt.ended_at),
        "error": attempt.error,
    }


def change_json(result: ChangeResult) -> dict[str, Any]:
    """The answer to a change, true when it is given."""
    return {
        "name": result.job.name,
        "state": result.job.state.value,
        "version": result.job.version,
        "changed": result.changed,
        "removed_runs": result.removed_runs,
        "still_running": [
            {"run": r.run_id, "instance": r.instance, "started_at": format_instant(r.started_at)}
            for r in result.still_running
        ],
        "at": format_instant(result.at),
    }


def run_change_json(change: RunChange) -> dict[str, Any]:
    """The answer to a wish about a run."""
    return {
        "id": change.run_id,
        "job": change.job,
        "state": str(change.state),
        "attempt": change.attempt,
        "changed": change.changed,
        "instance": change.owner,
        "instance_gone": change.owner_gone,
    }


def short_instant(instant: int | None) -> str | None:
    """To the millisecond, for tables."""
    text = format_instant(instant)
    return None if text is None else text[:-4] + "Z"


def short_ms(value: float | None) -> str | None:
    """Milliseconds for tables."""
    return None if value is None else f"{value:,.1f}"
