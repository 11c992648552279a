"""`start_at` and `end_at`: what lies between is as before, and nothing lies outside."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeball.clock import format_instant, parse_instant
from timeball.errors import ScheduleError
from timeball.model.job import Definition
from timeball.schedule import Schedule, schedule_of

HOUR = 3_600_000_000
BEGIN = parse_instant("2026-03-20T00:00:00Z")


def make(schedule: str, **more: Any) -> Schedule:
    definition = Definition(schedule=schedule, executor="command", target={}, **more)
    return schedule_of(definition, name="j", anchor_at=BEGIN)


@given(
    text=st.sampled_from(["0 */3 * * *", "30 2 * * *", "0 9 * * mon | 0 10 * * *", "@at 2026-03-25 09:00"]),
    first=st.integers(0, 20 * 24) | st.none(),
    length=st.integers(0, 10 * 24) | st.none(),
    at=st.integers(-100, 40 * 24),
    more=st.integers(0, 40 * 24),
)
def test_a_bounded_schedule_has_the_ticks_in_between(
    text: str, first: int | None, length: int | None, at: int, more: int
) -> None:
    ends = {
        "start_at": None if first is None else BEGIN + first * HOUR,
        "end_at": None if length is None else BEGIN + ((first or 0) + length) * HOUR,
    }
    bounds = {name: str(format_instant(end)) for name, end in ends.items() if end is not None}
    bounded = make(text, timezone="Europe/Berlin", **bounds)
    low, high = ends["start_at"] or 0, ends["end_at"] or 1 << 62
    inner = make(text, timezone="Europe/Berlin").between(BEGIN - 200 * HOUR, BEGIN + 2000 * HOUR)
    inside = [tick for tick in inner if low <= tick <= high]
    instant, until = BEGIN + at * HOUR, BEGIN + (at + more) * HOUR
    following = [tick for tick in inside if tick > instant]
    if following or ends["end_at"] is not None:
        assert bounded.next_after(instant) == next(iter(following), None)
    before = [tick for tick in inside if tick < instant]
    if before or ends["start_at"] is not None:
        assert bounded.previous_before(instant) == (before[-1] if before else None)
    assert bounded.count_between(instant, until) == sum(instant < tick <= until for tick in inside)


def test_every_begins_at_its_start() -> None:
    schedule = make("@every 1h30m", start_at="2026-05-01 09:00", timezone="Europe/Paris")
    assert [format_instant(tick) for tick in schedule.between(BEGIN, BEGIN + 5000 * HOUR, 2)] == [
        "2026-05-01T07:00:00.000000Z",
        "2026-05-01T08:30:00.000000Z",
    ]


def test_the_bounds_are_said() -> None:
    schedule = make("0 9 * * *", start_at="2026-05-01 09:00", end_at="2026-06-01T00:00:00Z", timezone="Europe/Paris")
    assert schedule.describe() == "at 09:00 every day, from 2026-05-01 09:00 on, until 2026-06-01 02:00"
    assert "2026-05-01 09:00" in schedule.describe("zh")


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"start_at": "tomorrow"}, "start_at: 'tomorrow' is not an instant"),
        ({"end_at": "2026-02-30 09:00"}, "end_at: .* not on the calendar"),
        ({"start_at": "2026-05-02 09:00", "end_at": "2026-05-01 09:00"}, "end_at: it lies before start_at"),
    ],
)
def test_wrong_bounds_are_named(bounds: dict[str, str], words: str) -> None:
    with pytest.raises(ScheduleError, match=words) as refused:
        make("0 9 * * *", **bounds)
    assert refused.value.field in bounds
    assert "@at" not in (refused.value.hint or "")


def test_a_chain_takes_no_calendar() -> None:
    with pytest.raises(ScheduleError, match="follows its runs"):
        make("@after 30s", calendar={"exclude": ["sat,sun"]})
