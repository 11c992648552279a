"""The checker: all rules over one history, and the figures. Pure; it reads no clock, no file and no database."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from timeball.clock import format_instant
from timeball.selftest.evidence import BEGIN, Mark
from timeball.selftest.expected import SECOND_US
from timeball.selftest.fates import every_tick_has_one_fate, expected_by_job, versions_by_job
from timeball.selftest.faults import SKEW
from timeball.selftest.history import ACTIVE, History, LedgerRun, Version, Violation
from timeball.selftest.rules import RULES, index_of

WRONG_US = 20 * SECOND_US
DUPLICATE_RULES = frozenset({"begun-twice", "tick-twice", "two-fates", "key-twice", "run-again"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured, durations in microseconds. Lateness and gaps come from the evidence."""

    ticks: int
    runs: int
    begins: int
    later_attempts: int
    duplicates: int
    missed: int
    skipped: int
    lost: int
    late_p50_us: int | None
    late_p99_us: int | None
    late_max_us: int | None
    worst_gap_us: int
    worst_gap_job: str
    lease_hands: int
    changes: int
    triggers: int


def check(history: History) -> tuple[list[Violation], Figures]:
    """Every violation of every rule, and the figures."""
    index = index_of(history)
    violations = [violation for rule in RULES for violation in rule(index)]
    violations += every_tick_has_one_fate(history)
    violations += [Violation(rule=rule, detail=detail) for rule, detail in history.troubles]
    violations += _tested_something(history)
    return violations, _figures(history, violations)


def story_of(history: History, violation: Violation) -> list[str]:
    """The history of a violation's tick: evidence, ledger, changes, one line each."""

    def ours(job: str, due_at: int, run_id: int) -> bool:
        same_tick = job == violation.job and due_at == violation.due_at
        return run_id == violation.run_id or (violation.due_at is not None and same_tick)

    marks = [m for m in history.marks if ours(m.job, m.due_at, m.run_id)]
    lines = [_mark_line(history, mark) for mark in marks]
    lines += [_run_line(run) for run in history.runs if ours(run.job, run.due_at, run.id)]
    if violation.due_at is not None:
        near = range(violation.due_at - 5 * SECOND_US, violation.due_at + 30 * SECOND_US)
        lines += [
            f"changed   {c.kind} answered at {format_instant(c.database_at)}, running {sorted(c.running)}"
            for c in history.changes
            if c.job == violation.job and c.database_at is not None and c.database_at in near
        ]
    return lines


def _mark_line(history: History, mark: Mark) -> str:
    at = format_instant(mark.mono_us + history.offset_us)
    where = f"{mark.instance or 'command'} ({mark.pid})"
    return f"evidence  {at} {mark.what:5} run {mark.run_id} attempt {mark.attempt} fence {mark.fence} on {where}"


def _run_line(run: LedgerRun) -> str:
    started = format_instant(run.started_at) or "never"
    why = f" ({run.reason})" if run.reason else ""
    return (
        f"ledger    run {run.id} {run.kind} due {format_instant(run.due_at)} {run.state}{why} attempt {run.attempt} "
        f"fence {run.fence} version {run.version} started {started} on {run.instance or '-'}{' late' * run.late}"
    )


def _tested_something(history: History) -> Iterator[Violation]:
    """A green verdict about nothing is a red one."""
    ticks = sum(map(len, expected_by_job(history).values()))
    begins = sum(mark.what == BEGIN for mark in history.marks)
    if ticks < history.ticks_min:
        yield Violation(rule="too-few-ticks", detail=f"{ticks} ticks; at least {history.ticks_min} were to be")
    if begins < history.ticks_min // 2:
        yield Violation(rule="too-little-work", detail=f"{begins} begins in the evidence for {ticks} ticks")
    answered = sum(change.answered_us is not None for change in history.changes)
    if answered < history.changes_min:
        detail = f"{answered} stops, starts and edits were answered; at least {history.changes_min} were to be"
        yield Violation(rule="too-few-changes", detail=detail)
    for kind in history.wanted_faults:
        if not history.faults.get(kind):
            yield Violation(rule="fault-not-applied", detail=f"not one fault of the kind {kind} could be applied")
    if SKEW in history.wanted_faults and not any(_is_wrong(history, mark) for mark in history.marks):
        yield Violation(rule="skew-not-seen", detail="no work of any instance ever saw a wrong wall clock")


def _is_wrong(history: History, mark: Mark) -> bool:
    """Whether its wall clock was further from the database's than honest ones are."""
    return abs(mark.wall_us - (mark.mono_us + history.offset_us)) > WRONG_US + history.offset_error_us


def _figures(history: History, violations: Sequence[Violation]) -> Figures:
    late = sorted(_lateness(history))
    gap, job = _worst_gap(history)
    states = [run.state for run in history.runs]
    return Figures(
        ticks=sum(map(len, expected_by_job(history).values())),
        runs=len(history.runs),
        begins=sum(mark.what == BEGIN for mark in history.marks),
        later_attempts=sum(mark.what == BEGIN and mark.attempt > 1 for mark in history.marks),
        duplicates=sum(violation.rule in DUPLICATE_RULES for violation in violations),
        missed=states.count("missed"),
        skipped=states.count("skipped"),
        lost=sum(run.ever_lost for run in history.runs),
        late_p50_us=_quantile(late, 0.5),
        late_p99_us=_quantile(late, 0.99),
        late_max_us=_quantile(late, 1.0),
        worst_gap_us=gap,
        worst_gap_job=job,
        lease_hands=history.lease_hands,
        changes=sum(change.answered_us is not None for change in history.changes),
        triggers=len(history.triggers),
    )


def _lateness(history: History) -> Iterator[int]:
    """Of first attempts whose job does not make them wait by its own policy."""
    free = {version.job for version in history.versions if version.overlap == "allow"}
    scheduled = {run.id for run in history.runs if run.kind == "scheduled" and run.job in free}
    for mark in history.marks:
        if mark.what == BEGIN and mark.attempt == 1 and mark.run_id in scheduled:
            yield max(0, mark.mono_us + history.offset_us - mark.due_at)


def _worst_gap(history: History) -> tuple[int, str]:
    """The longest time between two begins of a job that was due each second from its begin to its end."""
    begins: dict[str, list[int]] = defaultdict(list)
    for mark in history.marks:
        if mark.what == BEGIN and mark.attempt == 1:
            begins[mark.job].append(mark.mono_us)
    steady = [job for job, versions in versions_by_job(history).items() if _is_steady(versions)]
    gaps = [
        (max((b - a for a, b in itertools.pairwise(sorted(begins[job]))), default=0), job)
        for job in steady
        if begins[job]
    ]
    return max(gaps, default=(0, ""))


def _is_steady(versions: Sequence[Version]) -> bool:
    first, *others = versions
    each_second = first.schedule == "* * * * * *" and first.overlap == "allow"
    return first.state == ACTIVE and each_second and all(v.state != ACTIVE for v in others)


def _quantile(ordered: Sequence[int], part: float) -> int | None:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None
