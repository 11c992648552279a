"""What becomes of a run whose instance disappeared in mid-run. Pure.

Whether its effect happened is unknown; the job says what is worse, twice or never.
"""

from __future__ import annotations

from dataclasses import dataclass

from timeball.model.job import Definition, OnLost


@dataclass(frozen=True, slots=True, kw_only=True)
class LostVerdict:
    """Run it again, or leave it lost for the reason given."""

    rerun: bool
    reason: str


def lost_again_at(definition: Definition, *, attempt: int, ended_at: int) -> int | None:
    """The instant of the next attempt when the owner itself says that the work is lost, or None.

    No run gets more attempts than failures and losses may cost it.
    """
    if definition.on_lost != OnLost.RERUN or attempt >= definition.attempts_max + definition.lost_max:
        return None
    return ended_at


def decide_lost(definition: Definition, *, lost_count: int, instance: str) -> LostVerdict:
    """`lost_count`: how many attempts of this run were lost before this one."""
    gone = f"instance {instance} was gone in mid-run"
    if definition.on_lost == OnLost.RERUN:
        if lost_count < definition.lost_max:
            return LostVerdict(rerun=True, reason=gone)
        return LostVerdict(
            rerun=False, reason=f"{gone}; lost {lost_count + 1} times, lost_max is {definition.lost_max}"
        )
    if definition.on_lost == OnLost.HOLD:
        return LostVerdict(rerun=False, reason=f"{gone}; held for a person to decide")
    return LostVerdict(rerun=False, reason=gone)
