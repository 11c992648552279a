"""Pure decisions: overlap, retry, lost, misfire, planning. Rows of cases/behaviour.jsonl are named by their ids."""

from __future__ import annotations

from typing import Any

import pytest

from timeball.clock import parse_instant
from timeball.engine.planner import plan_ticks
from timeball.engine.reaper import decide_misfires
from timeball.model.job import Definition
from timeball.model.run import Outcome
from timeball.model.states import State
from timeball.policy.lost import decide_lost
from timeball.policy.overlap import Candidate, Decision, Elsewhere, Running, Verdict, decide_starts
from timeball.policy.retry import retry_at
from timeball.schedule import parse
from timeball.store.plans import DueJob, PlannedTick
from timeball.store.reaps import OverdueJob

SECOND = 1_000_000
NOON = parse_instant("2026-12-01T12:00:00Z")


def define(schedule: str = "* * * * * *", **policies: Any) -> Definition:
    return Definition.from_dict({"schedule": schedule, "executor": "function", "target": {"name": "f"}, **policies})


def ended(*, state: State = State.FAILED, attempt: int = 1, **fields: Any) -> Outcome:
    return Outcome(run_id=1, attempt=attempt, fence=1, state=state, begun_at=0, ended_at=0, **fields)


def plan(definition: Definition, *, cursor: int, now: int, anchor: int = 0) -> list[PlannedTick]:
    schedule = parse(definition.schedule, timezone=definition.timezone, anchor=anchor)
    due = schedule.next_after(cursor)
    assert due is not None
    job = DueJob(
        id=1,
        name="job",
        version=1,
        definition=definition.to_json(),
        cursor_at=cursor,
        next_due_at=due,
        anchor_at=anchor,
    )
    ticks, _ = plan_ticks(schedule, definition, job, now=now, until=now + 30 * SECOND, ticks_max=1000)
    return ticks


def starts(definition: Definition, dues: list[int], running: list[Running], waiting: int = 0) -> list[Decision]:
    candidates = [Candidate(run_id=n, ready_at=due, attempt=1, scheduled=True) for n, due in enumerate(dues)]
    return decide_starts(definition, candidates, running, Elsewhere(count=waiting))


def verdicts(decisions: list[Decision]) -> list[Verdict]:
    return [decision.verdict for decision in decisions]


BUSY = [Running(run_id=99, started_at=NOON - 5, instance="b")]


def test_a_run_lets_an_older_one_in_another_hand_begin_first() -> None:
    candidates = [Candidate(run_id=n, ready_at=NOON + n, attempt=1, scheduled=True) for n in (2, 4)]
    ordered = define(misfire="run_all")
    for first_at, right in (
        (NOON + 1, [Verdict.WAIT, Verdict.WAIT]),
        (NOON + 3, [Verdict.START, Verdict.WAIT]),
        (None, [Verdict.START, Verdict.WAIT]),
    ):
        assert verdicts(decide_starts(ordered, candidates, [], Elsewhere(count=1, first_at=first_at))) == right


def test_overlap_skip_names_the_run_in_the_way() -> None:
    decision = starts(define(overlap="skip"), [NOON], BUSY)[0]
    assert (decision.verdict, decision.reason) == (Verdict.SKIP, "overlap: run 99 on b")


def test_two_late_ticks_take_turns_and_do_not_skip_each_other() -> None:
    assert verdicts(starts(define(overlap="skip"), [NOON, NOON + 1], [])) == [Verdict.START, Verdict.WAIT]
    later = [Running(run_id=99, started_at=NOON + 5)]
    assert verdicts(starts(define(overlap="skip"), [NOON], later)) == [Verdict.WAIT]


def test_a_full_queue_skips() -> None:
    definition = define(overlap="queue", queue_max=2)
    assert verdicts(starts(definition, [NOON, NOON + 1], BUSY, waiting=1)) == [Verdict.WAIT, Verdict.SKIP]


def test_replace_cancels_the_older() -> None:
    decision = starts(define(overlap="replace"), [NOON], BUSY)[0]
    assert (decision.verdict, decision.replace) == (Verdict.WAIT, (99,))


def test_allow_starts_up_to_its_limit() -> None:
    definition = define(overlap="allow", concurrency_max=2)
    assert verdicts(starts(definition, [NOON, NOON + 1], BUSY)) == [Verdict.START, Verdict.WAIT]


def test_retries_grow_up_to_their_bound() -> None:
    definition = define(attempts_max=9, backoff_seconds=10, backoff_max_seconds=60)
    waits = [(retry_at(definition, ended(attempt=attempt), ended_at=0) or 0) // SECOND for attempt in range(1, 6)]
    assert waits == [10, 20, 40, 60, 60]
    assert retry_at(definition, ended(attempt=9), ended_at=0) is None
    assert retry_at(definition, ended(state=State.CANCELLED), ended_at=0) is None


def test_a_wait_that_was_asked_for_takes_the_place_of_the_back_off_within_its_bound() -> None:
    definition = define(attempts_max=2, backoff_seconds=10, backoff_max_seconds=60)

    def wait(asked_seconds: int | None, **other: Any) -> int | None:
        asked = None if asked_seconds is None else asked_seconds * SECOND
        outcome = ended(**{"state": State.FAILED, "attempt": 1, **other})._replace(retry_after_us=asked)
        at = retry_at(definition, outcome, ended_at=NOON)
        return None if at is None else (at - NOON) // SECOND

    assert [wait(asked) for asked in (None, 0, 7, 60, 61, -5)] == [10, 0, 7, 60, 60, 0]
    own_word = ended(state=State.FAILED)._replace(retry_after_us=90 * SECOND, retry=True)
    assert retry_at(definition, own_word, ended_at=NOON) == NOON + 90 * SECOND
    assert wait(7, attempt=2) is None
    assert wait(7, state=State.SUCCEEDED) is None


def test_a_job_that_kills_its_hosts_is_not_run_for_ever() -> None:
    definition = define(on_lost="rerun", lost_max=2)
    assert [decide_lost(definition, lost_count=n, instance="a").rerun for n in range(4)] == [True, True, False, False]
    assert not decide_lost(define(), lost_count=0, instance="a").rerun
    assert "person" in decide_lost(define(on_lost="hold"), lost_count=0, instance="a").reason


def test_miss_001_a_deploy_exactly_at_noon_still_runs_noon() -> None:
    ticks = plan(define("0 12 * * *"), cursor=NOON - SECOND, now=NOON + 3 * SECOND)
    assert [(tick.due_at, tick.missed) for tick in ticks] == [(NOON, False)]


def test_miss_003_no_election_costs_the_next_tick() -> None:
    seen: list[int] = []
    cursor = NOON
    for minute in range(30):  # a new leader every minute, each with nothing but the stored cursor
        now = NOON + minute * 60 * SECOND
        ticks = plan(define("* * * * *"), cursor=cursor, now=now)
        seen += [tick.due_at for tick in ticks]
        cursor = max(cursor, now + 30 * SECOND)
    assert seen == [NOON + minute * 60 * SECOND for minute in range(1, 30)]


@pytest.mark.parametrize("offset", range(0, 60, 7))
def test_miss_004_a_standby_covers_the_window_of_the_one_that_stopped(offset: int) -> None:
    cursor = NOON + offset * SECOND
    ticks = plan(define("30 * * * * *"), cursor=cursor, now=NOON + 65 * SECOND)
    due = NOON + (30 if offset < 30 else 90) * SECOND
    assert ticks[0].due_at == due
    assert not ticks[0].missed


def test_miss_011_skip_fires_nothing_late_and_records_the_stretch() -> None:
    definition = define("*/15 * * * *", misfire="skip")
    ticks = plan(definition, cursor=NOON - 3600 * SECOND, now=NOON + 600 * SECOND)
    assert [(tick.missed, tick.ticks) for tick in ticks] == [(True, 4)]
    assert ticks[0].reason


def test_miss_012_two_seconds_late_is_no_misfire() -> None:
    ticks = plan(define("@every 72h"), cursor=NOON - SECOND, now=NOON + 2 * SECOND, anchor=NOON - 72 * 3600 * SECOND)
    assert [(tick.due_at, tick.missed) for tick in ticks] == [(NOON, False)]


def test_miss_016_the_phase_of_a_weekly_job_is_stored() -> None:
    week = 7 * 86_400 * SECOND
    for deploy in range(1, 4):  # each deploy sees only the stored anchor and cursor
        ticks = plan(define("@every 168h"), cursor=NOON + deploy * week - 1, now=NOON + deploy * week, anchor=NOON)
        assert [tick.due_at for tick in ticks] == [NOON + deploy * week]


def test_run_once_runs_the_latest_of_the_overdue_and_misses_the_others() -> None:
    ticks = plan(define("* * * * *"), cursor=NOON - 600 * SECOND, now=NOON + 30 * SECOND)
    missed = sum(tick.ticks for tick in ticks if tick.missed)
    kept = [tick.due_at for tick in ticks if not tick.missed]
    assert (missed, kept) == (9, [NOON, NOON + 60 * SECOND])


def test_run_all_is_bounded() -> None:
    ticks = plan(define("* * * * *", misfire="run_all", catchup_max=3), cursor=NOON - 3600 * SECOND, now=NOON + SECOND)
    late = [tick for tick in ticks if not tick.missed and tick.due_at <= NOON - 60 * SECOND]
    assert len(late) == 3
    assert sum(tick.ticks for tick in ticks if tick.missed) > 50


def test_planned_ticks_that_nobody_started_in_time_get_the_same_policy() -> None:
    rows = [(n, NOON + n * SECOND, NOON + (60 + n) * SECOND) for n in range(5)]
    job = OverdueJob(job_id=1, definition=define().to_json(), rows=rows)
    verdict = decide_misfires(job, NOON + 500 * SECOND)
    assert (list(verdict.missed), [run_id for run_id, _ in verdict.kept]) == ([0, 1, 2, 3], [4])
