"""The states of a run and the one table of legal moves. The diagram in the docs is checked against it."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a run stands."""

    PLANNED = "planned"
    CLAIMED = "claimed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"
    SKIPPED = "skipped"
    MISSED = "missed"


MOVES: dict[State, frozenset[State]] = {
    # claimed again: a plan row goes to whoever claims; skipped, missed, cancelled: it will not start
    State.PLANNED: frozenset({State.CLAIMED, State.RUNNING, State.SKIPPED, State.MISSED, State.CANCELLED}),
    # back to planned: given back, or its turn has not come; claimed: taken over after the claim ran out
    State.CLAIMED: frozenset(
        {State.PLANNED, State.CLAIMED, State.RUNNING, State.SKIPPED, State.MISSED, State.CANCELLED}
    ),
    # back to planned: another attempt; skipped: the work itself found nothing to do
    State.RUNNING: frozenset(
        {State.PLANNED, State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.SKIPPED, State.LOST}
    ),
    # a late outcome of a lost attempt that nobody has superseded is accepted and marked late
    State.LOST: frozenset(
        {State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.SKIPPED, State.PLANNED}
    ),
    State.SUCCEEDED: frozenset(),
    # back to planned: a person wants it run again
    State.FAILED: frozenset({State.PLANNED}),
    State.TIMED_OUT: frozenset({State.PLANNED}),
    State.CANCELLED: frozenset({State.PLANNED}),
    State.SKIPPED: frozenset(),
    State.MISSED: frozenset(),
}

PENDING = frozenset({State.PLANNED, State.CLAIMED})
LIVE = frozenset({State.PLANNED, State.CLAIMED, State.RUNNING})
FATES = frozenset(State) - LIVE
"""What a tick can end with; every tick of an active job ends with exactly one of these."""

RERUNNABLE = frozenset({State.FAILED, State.TIMED_OUT, State.CANCELLED, State.LOST})
"""What a person can run again."""

SETTLED = frozenset({State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.SKIPPED})
"""How an attempt that started can end on its own instance's word."""


def is_legal(before: State, after: State) -> bool:
    """Whether a run may go from one state to another."""
    return after in MOVES[before]
