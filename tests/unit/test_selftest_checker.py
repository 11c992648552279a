"""The checker of `timeball selftest`: each rule has a history that breaks it, and one that its policies allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from timeball.model.job import Definition
from timeball.schedule import schedule_of
from timeball.selftest.checker import check, story_of
from timeball.selftest.evidence import BEGIN, END, Mark
from timeball.selftest.expected import ticks_of
from timeball.selftest.history import Change, History, LedgerRun, Trigger, Version

SECOND = 1_000_000
T0 = 1_700_000_000 * SECOND
"""The database's instant at monotonic 0 of the hand-made histories."""


def version(job: str = "tick", *, number: int = 1, at: int = 0, state: str = "active", **more: Any) -> Version:
    values = {"schedule": "* * * * * *", "anchor_at": T0, **more}
    return Version(job=job, version=number, from_at=T0 + at * SECOND, state=state, **values)


def mark(what: str, second: float, *, run: int, after_ms: float = 1, attempt: int = 1, **more: Any) -> Mark:
    at = int(second * SECOND + after_ms * 1000)
    values = {"job": "tick", "kind": "scheduled", "fence": 10 * run + attempt, "instance": "a", "pid": 1, **more}
    return Mark(
        what=what, due_at=T0 + int(second) * SECOND, run_id=run, attempt=attempt, wall_us=T0 + at, mono_us=at, **values
    )


def row(run: int, second: int, *, state: str = "succeeded", attempt: int = 1, **more: Any) -> LedgerRun:
    due = T0 + second * SECOND
    fences = {earlier: 10 * run + earlier for earlier in range(1, attempt)}
    values = {"fence": 10 * run + attempt, "started_at": due, "fences": fences, "job": "tick", "kind": "scheduled"}
    return LedgerRun(id=run, due_at=due, state=state, attempt=attempt, **{**values, **more})


def clean() -> History:
    """Three ticks of one job; then it is stopped, and the stop is answered."""
    marks = [mark(what, second, run=second, after_ms=ms) for second in (1, 2, 3) for what, ms in ((BEGIN, 1), (END, 2))]
    return History(
        marks=marks,
        versions=[version(), version(number=2, at=3, state="stopped")],
        runs=[row(second, second) for second in (1, 2, 3)],
        changes=[Change(job="tick", kind="stop", sent_us=3_400_000, answered_us=3_500_000, database_at=T0)],
        triggers=[],
        offset_us=T0,
        ticks_min=3,
    )


def test_a_clean_history_has_no_violation_and_its_figures() -> None:
    violations, figures = check(clean())
    assert violations == []
    assert (figures.ticks, figures.runs, figures.begins, figures.duplicates) == (3, 3, 3, 0)
    assert (figures.late_p50_us, figures.worst_gap_us, figures.worst_gap_job) == (1000, SECOND, "tick")


def with_marks(*marks: Mark, **more: Any) -> Callable[[History], History]:
    return lambda h: replace(h, marks=sorted([*h.marks, *marks], key=lambda m: m.mono_us), **more)


def with_rows(*rows: LedgerRun) -> Callable[[History], History]:
    """Rows that replace those of the same id."""
    ids = {r.id for r in rows}
    return lambda h: replace(h, runs=[*(r for r in h.runs if r.id not in ids), *rows])


def without_marks_of(run: int, *what: str) -> Callable[[History], History]:
    return lambda h: replace(h, marks=[m for m in h.marks if m.run_id != run or m.what not in what])


def without_attempt(run: int, attempt: int) -> Callable[[History], History]:
    return lambda h: replace(h, marks=[m for m in h.marks if m.key != (run, attempt)])


def both(*changes: Callable[[History], History]) -> Callable[[History], History]:
    def changed(history: History) -> History:
        for change in changes:
            history = change(history)
        return history

    return changed


def of_policy(**policy: Any) -> Callable[[History], History]:
    return lambda h: replace(h, versions=[replace(v, **policy) for v in h.versions])


SECOND_ATTEMPT = both(
    with_rows(row(2, 2, attempt=2, lost_attempts=frozenset({1}))),
    without_marks_of(2, END),
    with_marks(mark(BEGIN, 2, run=2, attempt=2, after_ms=300), mark(END, 2, run=2, attempt=2, after_ms=350)),
)
BROKEN: dict[str, Callable[[History], History]] = {
    "begun-twice": with_marks(mark(BEGIN, 2, run=2, instance="b", after_ms=5)),
    "tick-twice": both(with_marks(mark(BEGIN, 2, run=7), mark(END, 2, run=7)), with_rows(row(7, 2))),
    "unknown-run": with_marks(mark(BEGIN, 2, run=9, kind="manual")),
    "wrong-tick": with_rows(row(2, 2, job="other")),
    "unknown-attempt": with_marks(mark(BEGIN, 2, run=2, attempt=2, after_ms=9)),
    "wrong-fence": with_rows(row(2, 2, fence=99)),
    "success-without-work": without_marks_of(2, BEGIN, END),
    "work-without-start": with_rows(row(2, 2, state="missed")),
    "run-again": SECOND_ATTEMPT,
    "fence-fell": both(
        of_policy(on_lost="rerun"),
        SECOND_ATTEMPT,
        lambda h: replace(
            h,
            marks=[replace(m, fence=1) if m.attempt == 2 else m for m in h.marks],
            runs=[replace(r, fence=1) if r.attempt == 2 else r for r in h.runs],
        ),
    ),
    "attempts-overlap": both(of_policy(attempts_max=2), SECOND_ATTEMPT, with_marks(mark(END, 2, run=2, after_ms=320))),
    "runs-overlap": both(
        of_policy(overlap="skip"), without_marks_of(2, END), with_marks(mark(END, 2, run=2, after_ms=1100))
    ),
    "begun-after-stop": with_marks(mark(BEGIN, 3, run=8, after_ms=510)),
    "begun-after-edit": lambda h: replace(
        h, changes=[*h.changes, Change(job="tick", kind="edit", sent_us=0, answered_us=2_500_000, edition=1)]
    ),
    "begun-early": both(
        without_marks_of(2, BEGIN),
        with_marks(
            mark(
                BEGIN,
                2,
                run=2,
                after_ms=-140,
            )
        ),
    ),
    "key-twice": lambda h: replace(h, triggers=[Trigger(job="tick", key="k", run_ids=(1, 2))]),
    "trigger-vanished": lambda h: replace(h, triggers=[Trigger(job="tick", key="k", run_ids=(77, 77))]),
    "without-fate": with_rows(row(2, 2, state="running")),
    "no-fate": lambda h: replace(h, runs=[r for r in h.runs if r.id != 2]),
    "two-fates": with_rows(row(4, 2, state="skipped")),
    "extra": with_rows(row(4, 4, state="skipped")),
    "died": lambda h: replace(h, troubles=[("died", "a ended by itself")]),
    "too-few-ticks": lambda h: replace(h, ticks_min=4),
    "too-few-changes": lambda h: replace(h, changes_min=2),
    "too-little-work": lambda h: replace(h, marks=[], ticks_min=3),
    "fault-not-applied": lambda h: replace(h, wanted_faults=("kill",), faults={"pause": 3}),
    "skew-not-seen": lambda h: replace(h, wanted_faults=("skew",), faults={"skew": 3}),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_each_rule_finds_the_history_that_breaks_it(rule: str) -> None:
    history = BROKEN[rule](clean())
    violations, _ = check(history)
    assert rule in {violation.rule for violation in violations}
    found = next(violation for violation in violations if violation.rule == rule)
    if found.run_id in {m.run_id for m in history.marks}:
        assert any(line.startswith("evidence") for line in story_of(history, found))


ALLOWED: dict[str, Callable[[History], History]] = {
    "a wall clock is wrong": lambda h: replace(
        h,
        marks=[replace(m, wall_us=m.wall_us - 3600 * SECOND) if m.run_id == 2 else m for m in h.marks],
        wanted_faults=("skew",),
        faults={"skew": 1},
    ),
    "a lost run is run again where the job says so": both(of_policy(on_lost="rerun"), SECOND_ATTEMPT),
    "and overlaps with its frozen first attempt": both(
        of_policy(on_lost="rerun"), SECOND_ATTEMPT, with_marks(mark(END, 2, run=2, after_ms=320))
    ),
    "a given up run overlaps with the next": both(
        of_policy(overlap="skip"),
        without_marks_of(2, END),
        with_marks(mark(END, 2, run=2, after_ms=1100)),
        with_rows(row(2, 2, state="lost")),
    ),
    "stop told that it still runs": both(
        with_marks(mark(BEGIN, 3, run=3, after_ms=1)),
        lambda h: replace(
            h,
            marks=[m for m in h.marks if m.run_id != 3]
            + [mark(BEGIN, 3, run=3, after_ms=600), mark(END, 3, run=3, after_ms=700)],
            changes=[replace(c, running=frozenset({3})) for c in h.changes],
        ),
    ),
    "an attempt that was never begun is no begin": both(SECOND_ATTEMPT, without_attempt(2, 1)),
    "a stretch of missed ticks is one row": both(
        without_marks_of(2, BEGIN, END),
        without_marks_of(3, BEGIN, END),
        lambda h: replace(
            h,
            runs=[h.runs[0], row(2, 2, state="missed", last_due_at=T0 + 3 * SECOND, started_at=None)],
            ticks_min=2,
        ),
    ),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_the_policies_allow_is_no_violation(what: str) -> None:
    assert check(ALLOWED[what](clean()))[0] == []


@pytest.mark.parametrize("schedule", ["* * * * * *", "*/2 * * * * *", "*/15 * * * * *", "@every 1s", "@every 7s"])
def test_its_own_arithmetic_agrees_with_the_schedules(schedule: str) -> None:
    anchor = T0 + 3_456_789
    definition = Definition(schedule=schedule, executor="function", target={"name": "x"})
    known = schedule_of(definition, name="x", anchor_at=anchor).between(T0 + 5 * SECOND, T0 + 95 * SECOND, 1000)
    mine = ticks_of(version(schedule=schedule, anchor_at=anchor), T0 + 5 * SECOND, T0 + 95 * SECOND)
    assert list(mine) == list(known)


def test_a_start_of_the_cluster_is_a_tick_of_reboot_jobs_and_nothing_else_is() -> None:
    boot = [version("boot", schedule="@reboot"), version("boot", number=2, at=20, state="stopped", schedule="@reboot")]
    runs = [row(1, 5, job="boot")]
    marks = [mark(BEGIN, 5, run=1, job="boot"), mark(END, 5, run=1, job="boot")]
    told = {"versions": boot, "runs": runs, "marks": marks, "offset_us": T0}
    starts = [T0 - SECOND, T0 + 5 * SECOND, T0 + 30 * SECOND]
    assert check(History(**told, reboots=starts))[0] == []
    assert {v.rule for v in check(History(**told))[0]} == {"extra"}
    assert {v.rule for v in check(History(**told, reboots=[*starts, T0 + 9 * SECOND]))[0]} == {"no-fate"}
