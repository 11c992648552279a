"""From a job's definition to its schedule."""

from __future__ import annotations

from timeball.model.job import Definition
from timeball.schedule.contract import Schedule
from timeball.schedule.parsing import parse


def schedule_of(definition: Definition, *, name: str, anchor_at: int) -> Schedule:
    """The schedule that a definition writes. `name` spreads `H`, `anchor_at` is what `@every` counts from.

    Raises ScheduleError.
    """
    return parse(
        definition.schedule,
        timezone=definition.timezone,
        dialect=definition.dialect,
        dst=definition.dst or None,
        name=name,
        anchor=anchor_at,
    )
