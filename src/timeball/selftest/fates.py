"""The rule about ticks: each one that the recorded definitions demand has exactly one fate in the ledger. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from timeball.selftest.expected import expected_ticks
from timeball.selftest.history import LIVE_STATES, History, LedgerRun, Version, Violation


def versions_by_job(history: History) -> dict[str, list[Version]]:
    """The recorded definitions of each job in their order."""
    found: dict[str, list[Version]] = defaultdict(list)
    for version in sorted(history.versions, key=lambda v: v.version):
        found[version.job].append(version)
    return found


def expected_by_job(history: History) -> dict[str, list[int]]:
    """The ticks of each job. The last version of each is a stop, so that the end is recorded too."""
    return {
        job: [tick for tick, _ in expected_ticks(versions, versions[-1].from_at, history.reboots)]
        for job, versions in versions_by_job(history).items()
    }


def every_tick_has_one_fate(history: History) -> Iterator[Violation]:
    """G3, and the ledger's part of G1; manual runs need a fate too."""
    rows: dict[str, list[LedgerRun]] = defaultdict(list)
    for run in history.runs:
        if run.state in LIVE_STATES:
            detail = f"run {run.id} is still {run.state} at the end"
            yield Violation(rule="without-fate", job=run.job, due_at=run.due_at, run_id=run.id, detail=detail)
        if run.kind == "scheduled":
            rows[run.job].append(run)
    for job, ticks in expected_by_job(history).items():
        yield from _compare(job, ticks, rows[job])


def _compare(job: str, ticks: Sequence[int], rows: Sequence[LedgerRun]) -> Iterator[Violation]:
    at: dict[int, list[LedgerRun]] = defaultdict(list)
    for row in rows:
        at[row.due_at].append(row)
    stretches = [row for row in rows if row.last_due_at is not None and row.last_due_at > row.due_at]
    for tick in ticks:
        found = at.pop(tick, [])
        found += [row for row in stretches if row.due_at < tick <= (row.last_due_at or 0)]
        if not found:
            yield Violation(rule="no-fate", job=job, due_at=tick, detail="the ledger has nothing for this tick")
        elif len(found) > 1:
            names = ", ".join(f"{row.id} {row.state}" for row in found)
            yield Violation(rule="two-fates", job=job, due_at=tick, run_id=found[0].id, detail=f"runs {names}")
    for due_at, extra in at.items():
        for row in extra:
            detail = f"run {row.id} ({row.state}) is at no tick of its job"
            yield Violation(rule="extra", job=job, due_at=due_at, run_id=row.id, detail=detail)
