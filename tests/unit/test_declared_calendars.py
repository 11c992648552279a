"""A program's jobs may name a calendar: it is looked up when the program starts, not when it is imported."""

from __future__ import annotations

import pytest

from timeball import Scheduler
from timeball.errors import InvalidInput, ScheduleError
from timeball.model.calendar import Content


def test_a_program_names_a_calendar_that_is_in_the_database() -> None:
    scheduler = Scheduler("sqlite:///timeball.db")
    scheduler.job("report", "0 9 * * *", calendar={"name": "works", "roll": "next"})(lambda: None)
    with pytest.raises(InvalidInput) as raised:
        scheduler.start()
    assert "no calendar named 'works'" in str(raised.value)
    scheduler.calendars.create("works", Content(exclude=("sat,sun",)))
    with scheduler.running():
        calendar = scheduler.jobs.get("report").definition.calendar
        assert calendar == {"exclude": ["sat,sun"], "name": "works", "roll": "next"}
        scheduler.calendars.edit("works", Content(exclude=("12-25",)))
    scheduler.start()
    assert scheduler.jobs.get("report").definition.calendar["exclude"] == ["12-25"]
    assert scheduler.jobs.get("report").version == 2
    scheduler.stop()


def test_a_programs_own_rules_are_read_at_once() -> None:
    scheduler = Scheduler("sqlite:///timeball.db")
    with pytest.raises(ScheduleError):
        scheduler.job("report", "0 9 * * *", calendar={"exclude": ["satur"]})(lambda: None)
    with pytest.raises(ScheduleError):
        scheduler.job("other", "0 61 * * *", calendar="works")(lambda: None)
