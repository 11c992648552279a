"""The policies at their edges, each on its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeball.errors import InvalidInput
from timeball.model.job import Definition, RetryOn
from timeball.model.run import Outcome
from timeball.model.states import State
from timeball.policy.jitter import ready_at
from timeball.policy.lost import decide_lost
from timeball.policy.misfire import catch_up_by, keep_count, split_kept, start_by
from timeball.policy.overlap import Candidate, Running, Verdict, decide_starts
from timeball.policy.retry import no_more_words, retry_at

SECOND = 1_000_000
NEVER = 1 << 62


def define(**policies: Any) -> Definition:
    return Definition.from_dict({"schedule": "none", "executor": "function", "target": {}, **policies})


def ended(*, state: State = State.FAILED, attempt: int = 1, **fields: Any) -> Outcome:
    return Outcome(run_id=1, attempt=attempt, fence=1, state=state, begun_at=0, ended_at=0, **fields)


@pytest.mark.parametrize(
    ("policy", "misfired", "later_overdue", "kept"),
    [
        ("skip", 5, False, 0),
        ("run_once", 0, False, 0),
        ("run_once", 5, False, 1),
        ("run_once", 5, True, 0),
        ("run_all", 2, False, 2),
        ("run_all", 5, True, 3),
    ],
)
def test_how_many_misfired_ticks_still_run(policy: str, misfired: int, later_overdue: bool, kept: int) -> None:
    definition = define(misfire=policy, catchup_max=3)
    assert keep_count(definition, misfired, later_overdue=later_overdue) == kept


@given(due=st.lists(st.integers(), max_size=20), data=st.data())
def test_the_newest_ticks_are_kept_and_none_is_forgotten(due: list[int], data: st.DataObject) -> None:
    due.sort()
    keep = data.draw(st.integers(0, len(due)))
    missed, kept = split_kept(due, keep)
    assert [*missed, *kept] == due
    assert len(kept) == keep


def test_a_deadline_shortens_the_window_and_bounds_catching_up() -> None:
    assert start_by(define(), 0) == 60 * SECOND
    assert start_by(define(deadline_seconds=5), 0) == 5 * SECOND
    assert start_by(define(deadline_seconds=500), 0) == 60 * SECOND
    assert catch_up_by(define(), 0, NEVER) == NEVER
    assert catch_up_by(define(deadline_seconds=500), 0, NEVER) == 500 * SECOND


@pytest.mark.parametrize("state", sorted(State))
def test_only_failures_and_timeouts_are_tried_again(state: State) -> None:
    again = retry_at(define(attempts_max=2), ended(state=state), ended_at=0)
    assert (again is not None) is (state in {State.FAILED, State.TIMED_OUT})


def test_a_fixed_wait_stays_and_no_wait_overflows() -> None:
    fixed = define(attempts_max=1000, backoff="fixed", backoff_seconds=7)
    assert {retry_at(fixed, ended(attempt=n), ended_at=1) for n in range(1, 20)} == {7 * SECOND + 1}
    growing = define(attempts_max=1000)
    assert retry_at(growing, ended(attempt=999), ended_at=0) == 3600 * SECOND


def test_jittered_waits_differ_by_run_and_lie_between_half_and_the_whole() -> None:
    jittered = define(attempts_max=9, backoff="jittered", backoff_seconds=100)
    waits = {retry_at(jittered, ended(attempt=2)._replace(run_id=n), ended_at=0) or 0 for n in range(200)}
    assert len(waits) > 190
    assert 100 * SECOND <= min(waits) < 110 * SECOND
    assert 190 * SECOND < max(waits) <= 200 * SECOND
    again = ended(attempt=2)
    assert retry_at(jittered, again, ended_at=0) == retry_at(jittered, again, ended_at=0)


@pytest.mark.parametrize(
    ("state", "reason", "kind"),
    [
        (State.FAILED, "exception", RetryOn.EXCEPTION),
        (State.FAILED, "fail", RetryOn.EXCEPTION),
        (State.FAILED, "exit-code", RetryOn.EXIT_CODE),
        (State.FAILED, "signal", RetryOn.SIGNAL),
        (State.FAILED, "http-status", RetryOn.HTTP_STATUS),
        (State.FAILED, "start", RetryOn.OTHER),
        (State.FAILED, None, RetryOn.OTHER),
        (State.TIMED_OUT, "timeout", RetryOn.TIMED_OUT),
    ],
)
def test_only_the_kinds_of_ends_that_a_job_names_are_tried_again(state: State, reason: str, kind: RetryOn) -> None:
    outcome = ended(state=state, reason=reason)
    for wanted in RetryOn:
        again = retry_at(define(attempts_max=2, retry_on=[wanted]), outcome, ended_at=0)
        assert (again is not None) is (wanted is kind)
    assert retry_at(define(attempts_max=2), outcome, ended_at=0) is not None


def test_the_words_of_the_work_go_before_the_policy_and_never_beyond_the_attempts() -> None:
    only_signals = define(attempts_max=2, retry_on="signal")
    asked = ended(reason="retry", retry=True, retry_after_us=5)
    assert retry_at(only_signals, asked, ended_at=1) == 6
    assert retry_at(only_signals, asked._replace(attempt=2), ended_at=1) is None
    assert retry_at(define(attempts_max=9), ended(reason="fail", retry=False), ended_at=1) is None


def test_a_wait_of_the_far_side_takes_the_place_of_the_back_off() -> None:
    http = ended(reason="http-status", retry_after_us=7 * SECOND)
    assert retry_at(define(attempts_max=2, backoff_seconds=100), http, ended_at=0) == 7 * SECOND
    assert retry_at(define(attempts_max=2, retry_on="signal"), http, ended_at=0) is None


def test_a_retry_that_must_not_be_says_so() -> None:
    definition = define(attempts_max=2)
    assert no_more_words(definition, ended(attempt=1, retry=True)) == ""
    assert "attempts_max is 2" in no_more_words(definition, ended(attempt=2, retry=True))
    assert no_more_words(definition, ended(attempt=2)) == ""


@pytest.mark.parametrize(("on_lost", "lost_count", "rerun"), [("fail", 0, False), ("hold", 0, False)])
def test_without_rerun_a_lost_run_stays_lost(on_lost: str, lost_count: int, rerun: bool) -> None:
    verdict = decide_lost(define(on_lost=on_lost), lost_count=lost_count, instance="anna")
    assert verdict.rerun is rerun
    assert "anna" in verdict.reason


def test_the_last_loss_says_how_many_there_were() -> None:
    assert "lost 3 times" in decide_lost(define(on_lost="rerun", lost_max=2), lost_count=2, instance="a").reason
    assert not decide_lost(define(on_lost="rerun", lost_max=0), lost_count=0, instance="a").rerun


@pytest.mark.parametrize("overlap", ["skip", "queue", "replace"])
@pytest.mark.parametrize(("attempt", "scheduled"), [(2, True), (1, False)])
def test_further_attempts_and_manual_runs_wait_for_their_turn(overlap: str, attempt: int, scheduled: bool) -> None:
    candidate = Candidate(run_id=1, ready_at=10, attempt=attempt, scheduled=scheduled)
    decisions = decide_starts(define(overlap=overlap, queue_max=0), [candidate], [Running(run_id=9, started_at=1)])
    assert [(d.verdict, d.replace) for d in decisions] == [(Verdict.WAIT, ())]


@given(
    overlap=st.sampled_from(["skip", "queue", "replace", "allow"]),
    limit=st.integers(1, 5),
    ready=st.lists(st.integers(0, 100), max_size=12),
    started=st.lists(st.integers(0, 100), max_size=5),
)
def test_each_candidate_gets_one_verdict_and_no_more_start_than_may_run(
    overlap: str, limit: int, ready: list[int], started: list[int]
) -> None:
    definition = define(overlap=overlap, concurrency_max=limit)
    candidates = [Candidate(run_id=n, ready_at=at, attempt=1, scheduled=True) for n, at in enumerate(ready)]
    busy = [Running(run_id=1000 + n, started_at=at) for n, at in enumerate(started)]
    decisions = decide_starts(definition, candidates, busy)
    assert sorted(d.run_id for d in decisions) == sorted(c.run_id for c in candidates)
    starting = sum(d.verdict is Verdict.START for d in decisions)
    assert starting == min(len(candidates), max(0, definition.running_max - len(busy)))
    assert all(d.reason for d in decisions if d.verdict is Verdict.SKIP)
    assert all(d.verdict is not Verdict.SKIP for d in decisions if overlap in {"replace", "allow"})


def test_jitter_is_the_same_for_a_tick_for_ever_and_spreads_over_its_span() -> None:
    plain, spread = define(), define(jitter_seconds=10)
    assert ready_at(plain, 1, 5_000_000) == 5_000_000
    draws = [ready_at(spread, 1, n * 60_000_000) - n * 60_000_000 for n in range(1000)]
    assert draws == [ready_at(spread, 1, n * 60_000_000) - n * 60_000_000 for n in range(1000)]
    assert draws != [ready_at(spread, 2, n * 60_000_000) - n * 60_000_000 for n in range(1000)]
    assert 0 <= min(draws) < 500_000
    assert 9_500_000 < max(draws) <= 10_000_000
    assert 4_500_000 < sum(draws) / 1000 < 5_500_000
    assert ready_at(spread, 7, 60_000_000) == 60_826_043  # a version that draws anew would move planned runs


def test_a_tick_with_jitter_misfires_after_its_window_counted_from_the_latest_draw() -> None:
    assert start_by(define(jitter_seconds=10, misfire_after_seconds=60), 0) == 70_000_000
    assert start_by(define(jitter_seconds=10, misfire_after_seconds=60, deadline_seconds=20), 0) == 20_000_000
    with pytest.raises(InvalidInput, match="leaves no time"):
        define(jitter_seconds=10, deadline_seconds=10)
