"""A named calendar and the jobs that carry it: whoever comes second, no job keeps rules that the calendar has left."""

from __future__ import annotations

import pytest

from tests.races.conftest import Arena
from tests.races.rivals import MEETINGS, ROLLBACK
from timeball.app.wiring import make_registry
from timeball.errors import Conflict, InvalidInput
from timeball.model.calendar import Content
from timeball.model.job import Definition
from timeball.service.calendars import CalendarService
from timeball.service.jobs import JobService
from timeball.settings import Settings
from timeball.store import Store

every_meeting = pytest.mark.parametrize("meeting", MEETINGS)
OLD, NEW = Content(exclude=("sat,sun",)), Content(exclude=("12-25",))
RULES = {"exclude": ["12-25"], "name": "works"}


def jobs_of(store: Store) -> JobService:
    return JobService(store, make_registry(Settings()), namespace="default", actor="test")


def calendars_of(store: Store) -> CalendarService:
    return CalendarService(store, jobs_of(store), namespace="default", actor="test")


def definition(**policies: object) -> Definition:
    values = {"schedule": "0 9 * * *", "executor": "function", "target": {"name": "f"}, "calendar": "works"}
    return Definition.from_dict({**values, **policies})


def carried(arena: Arena) -> object:
    return arena.mine.jobs.get("default", "job").definition.calendar


@pytest.fixture(autouse=True)
def _calendar(arena: Arena) -> None:
    calendars_of(arena.mine).create("works", OLD)


@every_meeting
def test_a_job_that_is_created_after_the_edit_of_its_calendar_has_the_new_rules(arena: Arena, meeting: str) -> None:
    arena.meet(
        lambda: jobs_of(arena.mine).create("job", definition()),
        lambda: calendars_of(arena.theirs).edit("works", NEW),
        meeting,
        before=arena.mine.jobs._holds._lock_shared,
    )
    assert carried(arena) == ({**RULES, "exclude": ["sat,sun"]} if meeting == ROLLBACK else RULES)


@every_meeting
def test_a_job_that_is_edited_after_the_edit_of_its_calendar_has_the_new_rules(arena: Arena, meeting: str) -> None:
    jobs_of(arena.mine).create("job", definition(calendar={}))
    arena.meet(
        lambda: jobs_of(arena.mine).edit("job", definition(priority=7)),
        lambda: calendars_of(arena.theirs).edit("works", NEW),
        meeting,
        before=arena.mine.changes._holds._lock_shared,
    )
    assert carried(arena) == ({**RULES, "exclude": ["sat,sun"]} if meeting == ROLLBACK else RULES)


@every_meeting
def test_the_edit_of_a_calendar_that_comes_after_a_new_job_takes_it_along(arena: Arena, meeting: str) -> None:
    change = arena.meet(
        lambda: calendars_of(arena.mine).edit("works", NEW),
        lambda: jobs_of(arena.theirs).create("job", definition()),
        meeting,
        before=arena.mine.calendars._lock,
    )
    assert change.followed == ([] if meeting == ROLLBACK else ["job"])
    if meeting != ROLLBACK:
        assert carried(arena) == RULES


@every_meeting
def test_the_edit_of_a_calendar_that_comes_after_the_edit_of_a_job_takes_it_along(arena: Arena, meeting: str) -> None:
    jobs_of(arena.mine).create("job", definition(calendar={}))
    change = arena.meet(
        lambda: calendars_of(arena.mine).edit("works", NEW),
        lambda: jobs_of(arena.theirs).edit("job", definition()),
        meeting,
        before=arena.mine.calendars._lock,
    )
    assert change.followed == ([] if meeting == ROLLBACK else ["job"])
    assert carried(arena) == ({} if meeting == ROLLBACK else RULES)


@every_meeting
def test_the_second_of_two_edits_of_one_version_of_a_calendar_is_a_conflict(arena: Arena, meeting: str) -> None:
    def second() -> str:
        try:
            return calendars_of(arena.mine).edit("works", OLD, expected_version=1).calendar.name
        except Conflict as error:
            return str(error)

    answer = arena.meet(
        second, lambda: calendars_of(arena.theirs).edit("works", NEW), meeting, before=arena.mine.calendars._lock
    )
    assert answer == "works" if meeting == ROLLBACK else "version 2, not 1" in answer


@every_meeting
def test_the_delete_of_a_calendar_that_comes_after_a_new_job_is_refused(arena: Arena, meeting: str) -> None:
    def delete() -> str:
        try:
            calendars_of(arena.mine).delete("works")
        except Conflict as error:
            return str(error)
        return ""

    answer = arena.meet(
        delete,
        lambda: jobs_of(arena.theirs).create("job", definition()),
        meeting,
        before=arena.mine.calendars._lock,
    )
    assert answer == "" if meeting == ROLLBACK else "in use by job" in answer


@every_meeting
def test_a_job_that_comes_after_the_delete_of_its_calendar_is_refused(arena: Arena, meeting: str) -> None:
    def create() -> str:
        try:
            return jobs_of(arena.mine).create("job", definition()).name
        except InvalidInput as error:
            return str(error)

    answer = arena.meet(
        create,
        lambda: calendars_of(arena.theirs).delete("works"),
        meeting,
        before=arena.mine.jobs._holds._lock_shared,
    )
    assert answer == "job" if meeting == ROLLBACK else "no calendar named 'works'" in answer


@every_meeting
def test_two_edits_of_a_calendar_leave_its_jobs_with_what_it_says_in_the_end(arena: Arena, meeting: str) -> None:
    """The one that follows first may have read before the other: the copy is compared when it is written."""
    jobs_of(arena.mine).create("job", definition())
    third = Content(exclude=("05-01",))
    arena.meet(
        lambda: calendars_of(arena.mine).edit("works", third),
        lambda: calendars_of(arena.theirs).edit("works", NEW),
        meeting,
        before=arena.mine.calendars._lock,
    )
    assert arena.mine.jobs.get("default", "job").definition.calendar["exclude"] == ["05-01"]
    assert calendars_of(arena.mine).behind(calendars_of(arena.mine).get("works")) == []


def test_a_job_that_follows_an_edit_which_another_one_has_overtaken_takes_the_newer_rules(arena: Arena) -> None:
    jobs_of(arena.mine).create("job", definition())
    arena.mine.calendars.edit("default", "works", Content(exclude=("05-01",)), actor="test")
    arena.late(
        lambda: jobs_of(arena.mine).follow("job", "works"),
        lambda: arena.theirs.calendars.edit("default", "works", NEW, actor="test"),
        before=arena.mine.changes._lock,
    )
    assert carried(arena) == RULES
