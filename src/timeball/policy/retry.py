"""Whether and when an attempt that failed is tried again. Pure."""

from __future__ import annotations

from timeball.clock import seconds_to_us
from timeball.model.job import Backoff, Definition
from timeball.model.states import State

RETRIED = frozenset({State.FAILED, State.TIMED_OUT})


def retry_at(definition: Definition, *, state: State, attempt: int, ended_at: int) -> int | None:
    """The instant of the next attempt in microseconds, or None when this one was the last."""
    if state not in RETRIED or attempt >= definition.attempts_max:
        return None
    wait = definition.backoff_seconds
    if definition.backoff == Backoff.EXPONENTIAL:
        wait *= 2.0 ** min(attempt - 1, 60)
    return ended_at + seconds_to_us(min(wait, definition.backoff_max_seconds))
