"""From a job's calendar to the schedule that keeps to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timeball.model.calendar import Roll
from timeball.schedule.closures import closures_of
from timeball.schedule.contract import Schedule
from timeball.schedule.excluded import Excluded, Openings
from timeball.schedule.exclusions import wrong
from timeball.schedule.reboot import Reboot
from timeball.schedule.rolled import Rolled
from timeball.schedule.segments import zone_named
from timeball.schedule.zones import resolve_zone


def apply_calendar(schedule: Schedule, calendar: Mapping[str, Any]) -> Schedule:
    """Return the schedule without, or with moved, closed ticks. Raises ScheduleError about `calendar`.

    `calendar`: what `check_calendar` accepts. Its rules are in its own `timezone`, or in that of the schedule.
    """
    if schedule.follows_runs is not None:
        raise wrong("a schedule that follows its runs takes no calendar", "use @every", kind="unsupported")
    if isinstance(schedule, Reboot):
        raise wrong("@reboot takes no calendar", "leave it out: a start happens when it happens", kind="unsupported")
    name = calendar.get("name", "")
    if "exclude" not in calendar:
        raise wrong(f"the content of calendar {name!r} is missing", "give its rules as exclude")
    closures = closures_of(tuple(calendar["exclude"]))
    zone = calendar.get("timezone") or schedule.timezone
    resolve_zone(zone)
    openings = Openings(closures, zone_named(zone))
    roll = calendar.get("roll", Roll.SKIP)
    if roll == Roll.SKIP:
        return Excluded(schedule, openings, name=name)
    return Rolled(schedule, openings, step=1 if roll == Roll.NEXT else -1, name=name)
