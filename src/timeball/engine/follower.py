"""Planning `@after`: the next tick follows from the end of the last run, which only the ledger knows. Pure."""

from __future__ import annotations

from typing import NamedTuple

from timeball.clock import MICROS
from timeball.model.job import Definition, Misfire
from timeball.policy.jitter import ready_at
from timeball.policy.misfire import catch_up_by, start_by
from timeball.schedule import Schedule, instant_of
from timeball.store.plans import DueJob, LastRun, PlannedTick
from timeball.store.schema import NO_LIMIT

LOOK_AGAIN_MIN_US, LOOK_AGAIN_MAX_US = MICROS // 2, 10 * MICROS


class Following(NamedTuple):
    """The tick to plan, if its time has come; where the cursor then stands; when the planner must look again."""

    ticks: list[PlannedTick]
    cursor: int
    next_due_at: int | None


def plan_following(
    schedule: Schedule,
    definition: Definition,
    job: DueJob,
    last: LastRun | None,
    *,
    now: int,
    until: int,
    horizon_us: int,
) -> Following:
    """The tick after the job's last run, counted from its end; while that run lives, only when to look again.

    `until`: ticks up to here are planned. `next_due_at` is what the planner is woken by, not always a tick: it looks
    `horizon_us` ahead, so an instant beyond that by half the delay is looked at in time for the earliest next tick.
    """
    delay = schedule.follows_runs or 0
    if last is not None and last.ended_at is None:
        pause = min(max(delay // 2, LOOK_AGAIN_MIN_US), LOOK_AGAIN_MAX_US)
        return Following([], job.cursor_at, now + horizon_us + pause)
    ended_at = job.anchor_at if last is None or last.ended_at is None else max(last.ended_at, last.due_at)
    due_at = max(ended_at + delay, schedule.next_after(job.cursor_at) or 0, job.cursor_at + 1)
    if definition.end_at and due_at > instant_of(definition.end_at, timezone=definition.timezone, field="end_at"):
        return Following([], job.cursor_at, None)
    if due_at > until:
        return Following([], job.cursor_at, due_at)
    return Following([_tick(definition, job, due_at, now)], due_at, due_at + delay)


def _tick(definition: Definition, job: DueJob, due_at: int, now: int) -> PlannedTick:
    ready = ready_at(definition, job.id, due_at)
    if start_by(definition, due_at) >= now:
        return PlannedTick(due_at=due_at, start_by=start_by(definition, due_at), ready_at=ready)
    late_by = catch_up_by(definition, due_at, NO_LIMIT)
    if definition.misfire == Misfire.SKIP or late_by < now:
        reason = f"misfire: nobody planned it in time; policy {definition.misfire}"
        return PlannedTick(due_at=due_at, start_by=due_at, missed=True, reason=reason)
    return PlannedTick(due_at=due_at, start_by=late_by, ready_at=ready)
