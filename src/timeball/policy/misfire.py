"""What becomes of ticks that could not start in time. Pure: a stretch of ticks in, what to run and what to miss out.

A tick has misfired when `misfire_after_seconds` have passed since its due instant. Ticks that are late but inside
that window are no misfires: they run, late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timeball.clock import seconds_to_us
from timeball.model.job import Definition, Misfire


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive misfired ticks: from `first` to `last` (instants in microseconds), `count` of them."""

    first: int
    last: int
    count: int


def keep_count(definition: Definition, misfired: int, *, later_overdue: bool) -> int:
    """How many of the newest misfired ticks still run.

    `later_overdue`: a younger tick is due already and will run anyway, so that `run_once` needs no misfired one.
    """
    if definition.misfire == Misfire.SKIP:
        return 0
    if definition.misfire == Misfire.RUN_ALL:
        return min(misfired, definition.catchup_max)
    return 0 if later_overdue else min(misfired, 1)


def start_by(definition: Definition, due_at: int) -> int:
    """The instant after which a tick's run may not be started without the misfire policy's word.

    The window counts from the latest instant that jitter may choose; the deadline always from the tick.
    """
    window = definition.jitter_seconds + definition.misfire_after_seconds
    if definition.deadline_seconds is not None:
        window = min(window, definition.deadline_seconds)
    return due_at + seconds_to_us(window)


def catch_up_by(definition: Definition, due_at: int, never: int) -> int:
    """The same for a tick that the policy lets run late: its deadline, else never."""
    if definition.deadline_seconds is None:
        return never
    return due_at + seconds_to_us(definition.deadline_seconds)


def split_kept(due: Sequence[int], keep: int) -> tuple[Sequence[int], Sequence[int]]:
    """Misfired ticks in ascending order, split into those that are missed and the newest that run."""
    cut = len(due) - keep
    return due[:cut], due[cut:]
