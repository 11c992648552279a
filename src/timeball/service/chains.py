"""What an audit can say of `@after`: each tick lies one delay after the end of a run, and one always follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from timeball.model.job import Definition
from timeball.policy.misfire import start_by
from timeball.schedule import Schedule, instant_of
from timeball.store.audits import LedgerRow


class Stretch(Protocol):
    """A stretch of time in which one version of a job was active."""

    @property
    def schedule(self) -> Schedule: ...
    @property
    def definition(self) -> Definition: ...
    @property
    def after(self) -> int: ...
    @property
    def until(self) -> int: ...


class Chain:
    """The runs of one job while its schedule was `@after`, in the order of their ticks."""

    def __init__(self, segments: Sequence[Stretch], now: int, blame: Callable[[str, int, str], None]) -> None:
        self._segments = [s for s in segments if s.schedule.follows_runs is not None]
        self._last_segment = segments[-1] if segments else None
        self._now = now
        self._blame = blame
        self._before: LedgerRow | None = None

    def covers(self, instant: int) -> bool:
        """Whether ticks at an instant follow from runs, so that none can be computed."""
        return any(s.after < instant <= s.until for s in self._segments)

    def take(self, row: LedgerRow) -> Stretch:
        """The next run of the chain; tells when it came before its time. Returns the stretch that it lies in."""
        segment = next(s for s in self._segments if s.after < row.due_at <= s.until)
        delay = segment.schedule.follows_runs or 0
        before, self._before = self._before, row
        if before is not None and before.ended_at is not None and row.due_at < before.ended_at + delay:
            self._blame(
                "too-early", row.due_at, f"run {row.run_id} is due before run {before.run_id} had ended so long"
            )
        elif before is not None and before.ended_at is None:
            self._blame("too-early", row.due_at, f"run {row.run_id} is due though run {before.run_id} has not ended")
        return segment

    def end(self, grace_us: int) -> None:
        """Tell when no run follows the last one, though the job is active and its time has come."""
        segment = self._last_segment
        if segment is None or segment not in self._segments or segment.until < self._now - grace_us:
            return
        delay, before = segment.schedule.follows_runs or 0, self._before
        if before is None or before.due_at <= segment.after:
            due_at = segment.schedule.next_after(segment.after)
        elif before.ended_at is None:
            return
        else:
            due_at = max(before.ended_at, before.due_at) + delay
        if due_at is None or _over(segment.definition, due_at):
            return
        if start_by(segment.definition, due_at) + grace_us < self._now:
            self._blame("without-fate", due_at, "no run follows the last one")


def _over(definition: Definition, due_at: int) -> bool:
    if not definition.end_at:
        return False
    return due_at > instant_of(definition.end_at, timezone=definition.timezone, field="end_at")
