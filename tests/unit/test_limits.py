"""Permits of named limits: who gets one, who keeps a claim, and a window that slides."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timeball.errors import InvalidInput
from timeball.model.job import Definition
from timeball.model.limit import LimitRule
from timeball.policy.limits import SLOTS, TURN_US, Permits, Wanting, share

SECOND = 1_000_000
NOW = 1_900_000_000 * SECOND


def wanting(run_id: int, *limits: str, priority: int = 0, ready_at: int = NOW) -> Wanting:
    return Wanting(run_id=run_id, limits=limits, priority=priority, ready_at=ready_at)


def test_permits_go_by_priority_then_by_age() -> None:
    permits = {"a": Permits(name="a", running=1, running_max=3)}
    runs = [wanting(1), wanting(2, "a"), wanting(3, "a", ready_at=NOW - 1), wanting(4, "a", priority=1)]
    shares = share(runs, permits, NOW)
    assert shares.started == {1, 3, 4}
    assert shares.turn == {2}


def test_as_many_keep_their_claims_as_may_run_and_the_others_give_them_back() -> None:
    permits = {"a": Permits(name="a", running=2, running_max=2)}
    shares = share([wanting(n, "a") for n in range(5)], permits, NOW)
    assert (shares.started, shares.turn) == (frozenset(), {0, 1})
    assert list(shares.parked) == [2, 3, 4]
    assert list(shares.parked.values()) == [NOW + TURN_US + n * TURN_US // 50 for n in range(3)]


def test_a_long_line_asks_again_one_after_the_other_and_not_too_late() -> None:
    permit = Permits(name="a", running=1, running_max=1)
    first = [permit.park(NOW) for _ in range(100)]
    assert first == sorted(set(first))
    assert first[-1] < NOW + 4 * TURN_US
    assert max(permit.park(NOW) for _ in range(5000)) == NOW + 31 * TURN_US
    assert permit.park(NOW + 3600 * SECOND) == NOW + 3601 * SECOND


def test_a_run_needs_all_of_its_permits_and_takes_none_while_it_waits() -> None:
    permits = {
        "a": Permits(name="a", running=0, running_max=1),
        "b": Permits(name="b", running=1, running_max=1),
    }
    shares = share([wanting(1, "a", "b"), wanting(2, "a")], permits, NOW)
    assert (shares.started, shares.turn) == ({2}, {1})


def test_a_limit_that_is_not_there_lets_nothing_start() -> None:
    shares = share([wanting(1, "gone")], {}, NOW)
    assert (shares.started, shares.turn, set(shares.parked)) == (frozenset(), frozenset(), {1})


def test_who_waits_for_a_window_gives_the_claim_back_until_it_has_moved_on() -> None:
    permit = Permits(name="a", running=0, started_max=2, window_us=60 * SECOND)
    permit.charge(2, NOW)
    later = NOW + 10 * SECOND
    permit.forget(later)
    shares = share([wanting(1, "a")], {"a": permit}, later)
    assert NOW + 60 * SECOND <= shares.parked[1] <= NOW + 61 * SECOND


def test_a_clock_that_went_back_does_not_hold_a_window_shut() -> None:
    permit = Permits(name="a", running=0, started_max=1, window_us=10 * SECOND)
    permit.charge(1, NOW + 3600 * SECOND)
    permit.forget(NOW)
    assert permit.free() == 1


@settings(deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 20))
def test_no_window_wherever_it_begins_has_more_starts_than_its_bound(
    draw: random.Random, most: int, window_seconds: int
) -> None:
    window = window_seconds * SECOND
    permit = Permits(name="a", running=0, started_max=most, window_us=window)
    now, starts = NOW, list[int]()
    for _ in range(100):
        now += draw.randrange(window // 2)
        permit.forget(now)
        count = min(permit.free() or 0, draw.randrange(1, 4))
        permit.charge(count, now)
        starts += [now] * count
        assert len(permit.recent) <= SLOTS + 2
    for begin in starts:
        assert sum(begin <= at < begin + window for at in starts) <= most


@settings(deadline=None)
@given(st.integers(1, 5))
def test_a_permit_of_a_window_comes_back_a_hundredth_late_at_most(most: int) -> None:
    permit = Permits(name="a", running=0, started_max=most, window_us=SECOND)
    permit.charge(most, NOW)
    permit.forget(NOW + SECOND + SECOND // SLOTS)
    assert permit.free() == most


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({}, "running_max"),
        ({"running_max": 0}, "running_max"),
        ({"running_max": True}, "running_max"),
        ({"started_max": 5}, "window_seconds"),
        ({"running_max": 5, "window_seconds": 5}, "window_seconds"),
        ({"started_max": 5, "window_seconds": 0}, "window_seconds"),
        ({"started_max": 5, "window_seconds": float("nan")}, "window_seconds"),
        ({"started_max": 1.5, "window_seconds": 5}, "started_max"),
        ({"running_max": 1, "description": "x" * 2000}, "description"),
    ],
)
def test_a_limit_that_bounds_nothing_or_cannot_be_is_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        LimitRule(**values)
    assert refused.value.field == field


def definition(**fields: Any) -> Definition:
    return Definition.from_dict({"schedule": "none", "executor": "function", "target": {"name": "f"}, **fields})


@pytest.mark.parametrize("limits", ["mail", 5, [5], ["a", "a"], [""], [str(n) for n in range(11)]])
def test_limits_of_a_job_are_a_list_of_different_names(limits: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        definition(limits=limits)
    assert refused.value.field == "limits"


def test_limits_of_a_job_are_kept_in_order_and_left_out_where_there_are_none() -> None:
    job = definition().with_text("limits", "b, a")
    assert job.limits == ("a", "b")
    assert Definition.from_json(job.to_json()) == job == definition().with_text("limits", '["a","b"]')
    assert "limits" not in job.with_text("limits", "").to_json()
    assert job.exclusive
    assert definition(overlap="allow", limits=["a"]).running_max > 1000
