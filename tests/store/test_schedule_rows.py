"""Rows of `tests/cases/behaviour.jsonl` about schedules that are stored: PARSE-001, PARSE-005, CLOCK-005, API-001."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from tests.store.stepped import Bench
from timeball.errors import ScheduleError

SECOND = 1_000_000
DAY = 86_400 * SECOND
LOOPS = ("member", "lease", "planner", "reaper", "claimer", "starter", "runner", "settler", "canceller", "janitor")


@pytest.mark.parametrize("text", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "TZ=0", "TZ=", "TZ=TZ=TZ="])
def test_nothing_is_stored_of_a_schedule_that_is_refused(bench: Bench, text: str) -> None:
    """PARSE-001, PARSE-002, PARSE-005, PARSE-006."""
    with pytest.raises(ScheduleError):
        bench.jobs.create("job", bench.define(text))
    assert bench.jobs.list() == []
    bench.jobs.create("job", bench.define("0 9 * * *"))
    with pytest.raises(ScheduleError):
        bench.jobs.edit("job", bench.define(text))
    assert bench.jobs.get("job").version == 1


def test_a_job_that_is_due_in_a_year_waits_and_no_loop_waits_for_long(bench: Bench) -> None:
    """CLOCK-005: a wait over 2^31 ms, where it becomes 1 ms, is a storm."""
    bench.set_clock("2030-01-01T12:00:00Z")
    one = bench.instance("one")
    bench.jobs.create("job", bench.define("0 12 1 1 *"))
    bench.round(one)
    for _ in range(3):
        assert all(0 <= getattr(one, loop).step() <= min(3600, threading.TIMEOUT_MAX) for loop in LOOPS)
        bench.round(one)
    assert bench.calls == []
    assert bench.runs("job") == []
    bench.set_clock("2030-12-31T23:00:00Z")
    bench.round(one)
    assert bench.calls == []


def test_an_edit_of_something_else_keeps_the_zone_and_the_next_tick(bench: Bench) -> None:
    """API-001: a partial update dropped the stored zone."""
    bench.jobs.create("job", bench.define("0 9 * * *", timezone="Europe/Paris"))
    _, before = bench.jobs.next_ticks("job", 3)
    definition = bench.jobs.get("job").definition
    bench.jobs.edit("job", dataclasses.replace(definition, description="the morning report"))
    job, after = bench.jobs.next_ticks("job", 3)
    assert (job.definition.timezone, job.version) == ("Europe/Paris", 2)
    assert after == before


def test_a_schedule_of_the_past_is_refused_and_one_whose_time_passes_stays(bench: Bench) -> None:
    bench.set_clock("2030-01-01T12:00:00Z")
    for policies in (
        {"schedule": "0 0 0 1 1 ? 2029", "dialect": "quartz"},
        {"schedule": "@at 2029-12-31 12:00"},
        {"schedule": "0 9 * * *", "end_at": "2029-12-31 12:00"},
    ):
        with pytest.raises(ScheduleError) as refused:
            bench.jobs.create("past", bench.define(**policies))
        assert refused.value.code == "in-the-past"
        with pytest.raises(ScheduleError):
            bench.jobs.apply({"past": (bench.define(**policies), True)}, prune=False, dry_run=True)
        bench.jobs.create("kept", bench.define(**policies), active=False)
        bench.jobs.delete("kept")
    coming = bench.define("@at 2030-01-02 12:00")
    bench.jobs.create("once", coming)
    bench.set_clock("2030-01-03T12:00:00Z")
    bench.jobs.edit("once", dataclasses.replace(coming, description="has been"))
    bench.jobs.stop("once")
    bench.jobs.start("once")
    with pytest.raises(ScheduleError):
        bench.jobs.edit("once", bench.define("@at 2030-01-02 13:00"))
