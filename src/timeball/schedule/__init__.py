"""When a job is due: the calendar of Timeball. Owns the grammar of schedules and their ticks; reads no clock."""

from __future__ import annotations

from timeball.schedule.calendars import apply_calendar
from timeball.schedule.closures import closures_of
from timeball.schedule.contract import Schedule
from timeball.schedule.parsing import parse
from timeball.schedule.stored import instant_of, refuse_without_ticks, schedule_of
from timeball.schedule.words import languages
from timeball.schedule.zones import resolve_zone, tzdata_version

__all__ = [
    "Schedule",
    "apply_calendar",
    "closures_of",
    "instant_of",
    "languages",
    "parse",
    "refuse_without_ticks",
    "resolve_zone",
    "schedule_of",
    "tzdata_version",
]
