"""What follows when work was ended, or never begun, because its instance was cut off from the database. Pure.

The instance says so itself, if the database is back before anybody has declared the run lost; then it has to decide
as the leader would have decided about a lost one.
"""

from __future__ import annotations

from timeball.model.job import Definition, OnLost

ISOLATED = "isolated"
"""Reason of an attempt that was asked to end because its instance was cut off."""
NOT_BEGUN = "not-begun"
"""Reason of an attempt that was started in the ledger and never begun: its membership had ended by its instant."""


def again_at(definition: Definition, *, reason: str | None, attempt: int, ended_at: int) -> int | None:
    """The instant of the next attempt, or None. No run gets more attempts than failures and losses may cost it.

    What was not begun is tried again whatever the job says of lost runs: nothing of it has happened.
    """
    if attempt >= definition.attempts_max + definition.lost_max:
        return None
    rerun = reason == NOT_BEGUN or (reason == ISOLATED and definition.on_lost == OnLost.RERUN)
    return ended_at if rerun else None
