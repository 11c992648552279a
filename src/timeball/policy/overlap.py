"""What becomes of runs that are due while their job is running. Pure: values in, verdicts out.

The rule for `skip`: a tick is skipped only when an earlier run really was running at the tick's due instant. Two
ticks that are late together (after an outage, or after their claimer died) do not skip each other: they take turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from timeball.model.job import Definition, Overlap


class Verdict(Enum):
    """Start now, wait for the turn, give the claim back for a while, or never start."""

    START = "start"
    WAIT = "wait"
    PARK = "park"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A claimed run that is due. `ready_at` in microseconds."""

    run_id: int
    ready_at: int
    attempt: int
    scheduled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A run of the same job that is running somewhere; `started_at` in microseconds."""

    run_id: int
    started_at: int
    instance: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict on one candidate; `reason` for a skip, `replace` the runs to be cancelled for it."""

    run_id: int
    verdict: Verdict
    reason: str | None = None
    replace: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Runs of the same job that are due and not among the candidates. `first_at`: when the first of them was ready."""

    count: int = 0
    first_at: int | None = None


def decide_starts(
    definition: Definition,
    candidates: Iterable[Candidate],
    running: Sequence[Running],
    elsewhere: Elsewhere = Elsewhere(),
) -> list[Decision]:
    """Verdicts for all due runs of one job, oldest first."""
    free = definition.running_max - len(running)
    queued = elsewhere.count
    decisions: list[Decision] = []
    for candidate in sorted(candidates, key=lambda c: (c.ready_at, c.run_id)):
        if free > 0 and elsewhere.first_at is not None and candidate.ready_at > elsewhere.first_at:
            queued += 1
            decisions.append(Decision(run_id=candidate.run_id, verdict=Verdict.WAIT))  # that one comes first
            continue
        if free > 0:
            free -= 1
            decisions.append(Decision(run_id=candidate.run_id, verdict=Verdict.START))
            continue
        decision = _full(definition, candidate, running, queued)
        queued += decision.verdict is Verdict.WAIT
        decisions.append(decision)
    return decisions


def _full(definition: Definition, candidate: Candidate, running: Sequence[Running], queued: int) -> Decision:
    blockers = [r for r in running if r.started_at < candidate.ready_at]
    turn = Decision(run_id=candidate.run_id, verdict=Verdict.WAIT)
    if not candidate.scheduled or candidate.attempt > 1:
        return turn  # somebody asked for this very run, or it is a further try: it waits for its turn
    if definition.overlap == Overlap.QUEUE and queued >= definition.queue_max:
        return Decision(
            run_id=candidate.run_id,
            verdict=Verdict.SKIP,
            reason=f"overlap: {queued} runs are waiting already",
        )
    if definition.overlap == Overlap.SKIP and blockers:
        where = f" on {blockers[0].instance}" if blockers[0].instance else ""
        return Decision(
            run_id=candidate.run_id, verdict=Verdict.SKIP, reason=f"overlap: run {blockers[0].run_id}{where}"
        )
    if definition.overlap == Overlap.REPLACE and blockers:
        return Decision(run_id=candidate.run_id, verdict=Verdict.WAIT, replace=tuple(r.run_id for r in blockers))
    return turn
