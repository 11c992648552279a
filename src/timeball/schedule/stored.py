"""From a job's definition to its schedule."""

from __future__ import annotations

import dataclasses

from timeball.errors import ScheduleError
from timeball.model.job import Definition
from timeball.schedule.bounded import Bounded
from timeball.schedule.calendars import apply_calendar
from timeball.schedule.contract import Schedule
from timeball.schedule.exclusions import wrong
from timeball.schedule.once import read_instant, shown
from timeball.schedule.parsing import parse
from timeball.schedule.refusals import refusal
from timeball.schedule.segments import zone_named
from timeball.schedule.zones import resolve_zone


def schedule_of(definition: Definition, *, name: str, anchor_at: int) -> Schedule:
    """The schedule that a definition writes. `name` spreads `H`.

    `@every` begins at `start_at` where there is one, else it counts from `anchor_at`. Raises ScheduleError.
    """
    first, last = (_bound(definition, field) for field in ("start_at", "end_at"))
    schedule = parse(
        definition.schedule,
        timezone=definition.timezone,
        dialect=definition.dialect,
        dst=definition.dst or None,
        name=name,
        anchor=anchor_at,
        start=first,
    )
    if definition.calendar:
        schedule = apply_calendar(schedule, definition.calendar)
    if first is None and last is None:
        return schedule
    if first is not None and last is not None and last < first:
        raise _about("end_at", refusal("never-fires", "it lies before start_at"))
    return Bounded(schedule, first=first, last=last)


def refuse_without_ticks(definition: Definition, *, name: str, anchor_at: int, after: int) -> None:
    """Raise ScheduleError when no tick comes after an instant: all are past, or the calendar closes all of them."""
    schedule = schedule_of(definition, name=name, anchor_at=anchor_at)
    if schedule.next_after(after) is not None:
        return
    bare = schedule_of(dataclasses.replace(definition, calendar={}), name=name, anchor_at=anchor_at)
    if bare.next_after(after) is not None:
        raise wrong("the calendar closes every tick that would come", "change the one or the other", kind="never-fires")
    last = bare.previous_before(after + 1)
    if last is not None:
        raise _past(definition, shown(zone_named(bare.timezone), last))


def _past(definition: Definition, last: str) -> ScheduleError:
    error = refusal("in-the-past", f"its last tick was {last}: none comes any more", hint="choose a later end")
    error.text = definition.schedule
    error.field = "end_at" if definition.end_at else "schedule"
    return error


def _bound(definition: Definition, field: str) -> int | None:
    text: str = getattr(definition, field)
    return instant_of(text, timezone=definition.timezone, field=field) if text else None


def instant_of(text: str, *, timezone: str, field: str) -> int:
    """An instant (microseconds) as `@at` writes it: with its offset, or as the clock of `timezone` shows it.

    Raises ScheduleError naming `field`.
    """
    resolve_zone(timezone)
    try:
        return read_instant(text.strip(), 0, zone=zone_named(timezone), dst="vixie")
    except ScheduleError as error:
        error.hint = (error.hint or "").replace("@at ", "")
        raise _about(field, error) from None


def _about(field: str, error: ScheduleError) -> ScheduleError:
    error.position = None
    error.field = field
    return error.about(field)
