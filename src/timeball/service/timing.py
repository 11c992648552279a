"""Where a job's planning stands after a change to it. Pure: the store asks with the instant of the change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from timeball.errors import ScheduleError
from timeball.model.calendar import calendar_name
from timeball.model.job import Definition, Job, JobState
from timeball.schedule import Schedule, refuse_without_ticks, schedule_of
from timeball.store.changes import Change, UnplannedTicks
from timeball.store.jobs import NewTimes


def ticks_after(schedule: Schedule, instant: int, count: int) -> list[int]:
    """The next ticks strictly after an instant, at most `count`."""
    ticks: list[int] = []
    while len(ticks) < count and (tick := schedule.next_after(instant)) is not None:
        ticks.append(tick)
        instant = tick
    return ticks


def same_phase(one: Definition, other: Definition) -> bool:
    """Whether `@every` goes on in the same phase."""
    return _when(one) == _when(other)


def same_wish(one: Definition, other: Definition) -> bool:
    """Whether whoever wrote both wants the same ticks: what a named calendar says by now is not theirs."""
    return same_phase(one, other) and one.end_at == other.end_at and _closed(one) == _closed(other)


def _closed(definition: Definition) -> Mapping[str, Any]:
    calendar = definition.calendar
    return {key: calendar.get(key) for key in ("name", "roll")} if calendar_name(calendar) else calendar


def _when(definition: Definition) -> tuple[str, ...]:
    return (definition.schedule, definition.timezone, definition.dialect, definition.dst, definition.start_at)


def from_now(name: str, definition: Definition, *, may_be_past: bool) -> Callable[[int], NewTimes]:
    """Of a new job. Raises ScheduleError when its calendar closes every tick, or all are past unless they may be."""

    def times(at: int) -> NewTimes:
        try:
            refuse_without_ticks(definition, name=name, anchor_at=at, after=at)
        except ScheduleError as error:
            if error.code != "in-the-past" or not may_be_past:
                raise
        schedule = schedule_of(definition, name=name, anchor_at=at)
        return NewTimes(cursor_at=at, next_due_at=schedule.next_after(at), anchor_at=at)

    return times


def from_boundary(
    job: Job, definition: Definition, *, keep_anchor: bool, may_close: bool = False
) -> Callable[[int], NewTimes]:
    """Of a job that is changed. Raises ScheduleError when no tick comes any more, unless it may."""

    def times(boundary: int) -> NewTimes:
        anchor = job.anchor_at if keep_anchor else boundary
        schedule = schedule_of(definition, name=job.name, anchor_at=anchor)
        if not may_close:
            refuse_without_ticks(definition, name=job.name, anchor_at=anchor, after=boundary)
        if schedule.follows_runs is not None:  # the chain begins anew
            anchor = boundary
            schedule = schedule_of(definition, name=job.name, anchor_at=anchor)
        return NewTimes(cursor_at=boundary, next_due_at=schedule.next_after(boundary), anchor_at=anchor)

    return times


def unplanned(job: Job) -> Callable[[int], UnplannedTicks | None]:
    """What of a job no leader had planned yet when it is changed."""

    def ticks(boundary: int) -> UnplannedTicks | None:
        if job.next_due_at is None or job.next_due_at > boundary:
            return None
        schedule = schedule_of(job.definition, name=job.name, anchor_at=job.anchor_at)
        count = schedule.count_between(job.cursor_at, boundary)
        last = schedule.previous_before(boundary + 1)
        if not count or last is None:
            return None
        return UnplannedTicks(first=job.next_due_at, last=last, count=count)

    return ticks


def ended(job: Job, kind: str, state: JobState, cancel_running: bool) -> Change:
    """The change that ends a job's ticks: a stop, a pause, a delete."""

    def times(boundary: int) -> NewTimes:
        return NewTimes(cursor_at=boundary, next_due_at=None, anchor_at=job.anchor_at)

    return Change(
        kind=kind,
        state=state,
        definition=job.definition,
        placement=None,
        times=times,
        unplanned=unplanned(job) if job.state is JobState.ACTIVE else lambda _: None,
        cancel_pending=True,
        cancel_running=cancel_running,
    )
