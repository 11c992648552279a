"""Named calendars: their rows, the jobs that follow them, and the schema that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config

from tests.conftest import HostClock
from tests.store.stepped import Bench
from timeball.clock import parse_instant
from timeball.errors import Conflict, InvalidInput, NotFound, ScheduleError, SchemaMismatch
from timeball.model.calendar import Content
from timeball.model.job import Definition
from timeball.service.audit import audit
from timeball.service.calendars import CalendarService
from timeball.service.files import Wanted
from timeball.service.rollout import roll_out
from timeball.store import Store, open_store
from timeball.store import migrate as migrate_module
from timeball.store.database import sql
from timeball.store.migrate import upgrade_schema
from timeball.store.revision import check_schema, current_revision

MINUTE = 60_000_000
WEEKEND = Content(exclude=("sat,sun",))


@pytest.fixture
def bench(database_url: str, host_clock: HostClock) -> Iterator[Bench]:
    made = Bench(database_url, host_clock)
    yield made
    made.close()


@pytest.fixture
def calendars(bench: Bench) -> CalendarService:
    return CalendarService(bench.store, bench.jobs, namespace="default", actor="anna")


def carrying(bench: Bench, name: str = "works", schedule: str = "0 9 * * *", **policies: object) -> Definition:
    return Definition.from_dict({**bench.define(schedule).to_dict(), "calendar": name, **policies})


def kinds(store: Store) -> list[str]:
    return [event.kind for event in reversed(store.events.latest("default")) if event.kind.startswith(("cal", "job"))]


def migrated(store: Store, act: Callable[[Config, str], None], revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrate_module.__file__).parent / "migrations"))
    with store.database.transaction() as tx, tx.migration_lock() as connection:
        config.attributes["connection"] = connection
        act(config, revision)


def test_the_schema_of_before_is_refused_until_it_is_upgraded_and_jobs_survive_the_way_back(database_url: str) -> None:
    store = open_store(database_url)
    migrated(store, command.upgrade, "0001")
    assert current_revision(store.database) == "0001"
    with pytest.raises(SchemaMismatch) as raised:
        check_schema(store.database, "default")
    assert raised.value.hint == "timeball db upgrade"
    assert upgrade_schema(store.database, "default") == "0001"
    check_schema(store.database, "default")
    store.calendars.create("default", "works", WEEKEND, actor="anna")
    migrated(store, command.downgrade, "0001")
    assert current_revision(store.database) == "0001"
    upgrade_schema(store.database, "default")
    assert store.calendars.all("default") == []
    store.close()


def test_a_calendar_lives_from_create_to_delete_and_the_trail_has_it_all(calendars: CalendarService) -> None:
    made = calendars.create("works", WEEKEND)
    assert (made.version, made.content) == (1, WEEKEND)
    with pytest.raises(Conflict):
        calendars.create("works", WEEKEND)
    assert not calendars.edit("works", WEEKEND).changed
    told = Content(exclude=("sat",), timezone="Europe/Paris", description="ours")
    assert calendars.edit("works", told).calendar.version == 2
    assert calendars.get("works").content == told
    with pytest.raises(Conflict):
        calendars.edit("works", WEEKEND, expected_version=1)
    calendars.delete("works")
    for act in (calendars.get, calendars.delete, lambda name: calendars.edit(name, WEEKEND)):
        with pytest.raises(NotFound):
            act("works")
    assert kinds(calendars._store) == ["calendar.created", "calendar.edited", "calendar.deleted"]
    assert calendars._store.events.latest("default", kind="calendar.edited")[0].data == {"name": "works", "version": 2}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("", WEEKEND),
        ("x", Content(exclude=())),
        ("x", Content(exclude=("satur",))),
        ("x", Content(exclude=("sat",), timezone="Mars")),
        ("x", Content(exclude=("mon-fri", "sat,sun"))),
        ("x", Content(exclude=("sat",), description="\x00")),
    ],
)
def test_what_is_no_calendar_is_refused(calendars: CalendarService, name: str, content: Content) -> None:
    with pytest.raises(InvalidInput):
        calendars.create(name, content)
    assert calendars.list() == []


def test_a_calendar_too_long_for_a_job_is_refused() -> None:
    with pytest.raises(InvalidInput) as raised:
        Content(exclude=tuple(f"{year}-12-25" for year in range(1000, 6000)))
    assert "longer than 59000" in str(raised.value)


def test_an_edit_makes_a_new_version_of_each_job_that_carries_the_calendar_and_of_no_other(
    bench: Bench, calendars: CalendarService
) -> None:
    bench.functions.register("works", bench._note)
    for name in ("works", "w%rks", "Works"):
        calendars.create(name, WEEKEND)
    bench.jobs.create("a", carrying(bench, calendar={"name": "works", "roll": "next"}))
    bench.jobs.create("b", carrying(bench), active=False)
    bench.jobs.create("other", carrying(bench, "w%rks"))
    bench.jobs.create("another", carrying(bench, "Works"))
    bench.jobs.create("own", bench.define("0 9 * * *", calendar={"exclude": ["sat,sun"]}))
    bench.jobs.create("target", bench.define("0 9 * * *", function="works", calendar={"exclude": ["sat"]}))
    change = calendars.edit("works", Content(exclude=("12-25",), timezone="Europe/Paris"))
    assert change.followed == ["a", "b"]
    found = {job.name: (job.version, job.state.value, job.definition.calendar) for job in bench.jobs.list()}
    rules = {"exclude": ["12-25"], "name": "works", "timezone": "Europe/Paris"}
    assert found["a"] == (2, "active", {**rules, "roll": "next"})
    assert found["b"] == (2, "stopped", rules)
    assert {name for name, (version, _, _) in found.items() if version == 1} == {"another", "other", "own", "target"}


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a%_!b", "ü 日", "a'b"])
def test_a_calendar_of_any_name_finds_its_jobs(bench: Bench, calendars: CalendarService, name: str) -> None:
    calendars.create(name, WEEKEND)
    bench.jobs.create("job", carrying(bench, name))
    assert [job.name for job in calendars.users(name)] == ["job"]


def test_the_phase_of_every_goes_on_over_an_edit_of_the_calendar(bench: Bench, calendars: CalendarService) -> None:
    calendars.create("works", WEEKEND)
    job = bench.jobs.create("job", carrying(bench, schedule="@every 70m"))
    bench.move_clock(MINUTE)
    calendars.edit("works", Content(exclude=("12-25",)))
    assert bench.jobs.get("job").anchor_at == job.anchor_at


def test_planned_ticks_that_the_new_rules_close_do_not_run_and_the_audit_is_clean(
    bench: Bench, calendars: CalendarService
) -> None:
    bench.set_clock("2031-03-03T11:58:30Z")
    calendars.create("works", Content(exclude=("12:00-12:03",)))
    bench.jobs.create("job", carrying(bench, schedule="* * * * *"))
    one = bench.instance("one")

    def go_to(text: str) -> None:
        while bench.now() < parse_instant(text):
            bench.move_clock(10_000_000)
            bench.round(one)

    go_to("2031-03-03T12:04:40Z")
    assert calendars.edit("works", Content(exclude=("12:05-12:08",))).followed == ["job"]
    go_to("2031-03-03T12:09:30Z")
    start = parse_instant("2031-03-03T12:00:00Z")
    minutes = sorted({(run.due_at - start) // MINUTE for run in bench.runs("job") if run.due_at < start + 9 * MINUTE})
    assert minutes == [-1, 3, 4, 8]
    report = audit(bench.store, "default", until=start + 8 * MINUTE)
    assert (report.clean, report.ticks) == (True, 4)


def test_rules_that_one_job_cannot_have_change_nothing(bench: Bench, calendars: CalendarService) -> None:
    calendars.create("works", WEEKEND)
    bench.jobs.create("a", carrying(bench))
    bench.jobs.create("b", carrying(bench, calendar={"name": "works", "roll": "next"}))
    with pytest.raises(ScheduleError) as raised:
        calendars.edit("works", Content(exclude=("12:00-13:00",)))
    assert "job 'b', which has the calendar 'works'" in str(raised.value)
    assert [job.version for job in bench.jobs.list()] == [1, 1]
    assert calendars.get("works").version == 1


def test_a_job_that_was_left_behind_follows_when_the_edit_is_repeated(bench: Bench, calendars: CalendarService) -> None:
    calendars.create("works", WEEKEND)
    bench.jobs.create("job", carrying(bench))
    new = Content(exclude=("12-25",))
    calendar, _ = bench.store.calendars.edit("default", "works", new, actor="anna")  # and then whoever edited died
    assert calendars.behind(calendar) == ["job"]
    assert bench.jobs.stop("job").changed
    change = calendars.edit("works", new)
    assert (change.changed, change.followed) == (False, ["job"])
    assert calendars.behind(calendar) == []


def test_a_job_that_became_unable_to_follow_after_the_check_is_named_and_the_others_follow(
    bench: Bench, calendars: CalendarService
) -> None:
    calendars.create("works", WEEKEND)
    bench.jobs.create("a", carrying(bench, calendar={"name": "works", "roll": "next"}))
    bench.jobs.create("b", carrying(bench))
    hours = Content(exclude=("12:00-13:00",))
    calendar, _ = bench.store.calendars.edit("default", "works", hours, actor="anna")
    change = calendars._followed(calendar, True, ())
    assert change.followed == ["b"]
    assert "only a calendar of whole days can roll" in change.left["a"]
    assert bench.jobs.get("a").version == 1


def test_a_broken_job_is_left_and_gets_the_rules_when_it_is_mended(bench: Bench, calendars: CalendarService) -> None:
    calendars.create("works", WEEKEND)
    bench.jobs.create("job", carrying(bench))
    bench.administer("UPDATE timeball_job SET state = 'broken', problem = 'in a test'")
    change = calendars.edit("works", Content(exclude=("12-25",)))
    assert (change.followed, change.left) == ([], {})
    assert bench.jobs.follow("job", "works") is None
    assert bench.jobs.get("job").state.value == "broken"
    bench.jobs.edit("job", carrying(bench))
    assert bench.jobs.get("job").definition.calendar["exclude"] == ["12-25"]


def test_a_calendar_in_use_is_not_deleted_and_some_of_its_jobs_are_named(
    bench: Bench, calendars: CalendarService
) -> None:
    calendars.create("works", WEEKEND)
    for number in range(12):
        bench.jobs.create(f"job{number:02}", carrying(bench))
    with pytest.raises(Conflict) as raised:
        calendars.delete("works")
    assert "job00, job01" in str(raised.value)
    assert "job09 and 2 more" in str(raised.value)
    for number in range(12):
        bench.jobs.delete(f"job{number:02}")
    calendars.delete("works")


def test_a_job_with_an_unknown_calendar_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidInput) as raised:
        bench.jobs.create("job", carrying(bench))
    assert (raised.value.field, raised.value.hint is not None) == ("calendar", True)
    assert bench.jobs.list() == []


def test_a_job_whose_ticks_are_all_closed_is_refused_with_the_reason(bench: Bench, calendars: CalendarService) -> None:
    calendars.create("works", WEEKEND)
    bench.set_clock("2031-03-03T12:00:00Z")
    ending = {"start_at": "2031-03-08 00:00", "end_at": "2031-03-09 23:00"}
    for policies in ({"schedule": "0 9 * * sat"}, {"schedule": "@at 2031-03-08 09:00"}, ending):
        with pytest.raises(ScheduleError) as raised:
            bench.jobs.create("job", carrying(bench, **policies))
        assert (raised.value.code, raised.value.field) == ("never-fires", "calendar")
        assert "the calendar closes every tick" in str(raised.value)
    with pytest.raises(ScheduleError) as raised:
        bench.jobs.create("over", carrying(bench, end_at="2031-03-01 00:00"))
    assert (raised.value.code, raised.value.field) == ("in-the-past", "end_at")
    bench.jobs.create("job", carrying(bench))
    with pytest.raises(ScheduleError):
        bench.jobs.edit("job", carrying(bench, schedule="0 9 * * sun"))
    with pytest.raises(ScheduleError) as raised:
        bench.jobs.apply({"new": (carrying(bench, schedule="0 9 * * sun"), True)}, prune=False, dry_run=True)
    assert "job 'new'" in str(raised.value)
    assert bench.jobs.get("job").version == 1


def test_an_edit_that_closes_all_ticks_of_a_job_is_done_and_says_so(bench: Bench, calendars: CalendarService) -> None:
    calendars.create("works", WEEKEND)
    definition = carrying(bench, schedule="0 9 * * fri")
    bench.jobs.create("job", definition)
    assert calendars.edit("works", Content(exclude=("fri",))).followed == ["job"]
    assert calendars.notes == ["the calendar leaves no coming tick to job 'job'"]
    assert bench.jobs.get("job").next_due_at is None
    assert bench.jobs.apply({"job": (definition, True)}, prune=False, dry_run=False)[0].action == "unchanged"
    bench.jobs.edit("job", carrying(bench, schedule="0 9 * * fri", description="as before, in other words"))


def test_what_code_declares_with_a_calendar_is_declared_again_only_when_the_code_changes(
    bench: Bench, calendars: CalendarService
) -> None:
    calendars.create("works", WEEKEND)
    bench.jobs.declare("job", carrying(bench))
    calendars.edit("works", Content(exclude=("12-25",)))
    bench.jobs.declare("job", carrying(bench))
    assert bench.jobs.get("job").version == 2
    bench.jobs.declare("job", carrying(bench, priority=1))
    assert bench.jobs.get("job").definition.calendar == {"exclude": ["12-25"], "name": "works"}


def test_a_file_rolls_out_calendars_before_the_jobs_and_saves_each_job_once(
    bench: Bench, calendars: CalendarService
) -> None:
    def apply(rule: str, priority: int, *, dry_run: bool = False) -> list[str]:
        wanted = Wanted(
            calendars={"works": Content(exclude=(rule,))}, jobs={"job": (carrying(bench, priority=priority), True)}
        )
        done = roll_out(calendars, bench.jobs, wanted, prune=False, dry_run=dry_run)
        return [each.action for each in (*done.calendars, *done.jobs)]

    assert apply("sat", 0, dry_run=True) == ["create", "create"]
    assert (calendars.list(), bench.jobs.list()) == ([], [])
    assert apply("sat", 0) == ["create", "create"]
    bench.jobs.create("guest", carrying(bench))
    assert apply("sat", 0) == ["unchanged", "unchanged"]
    assert apply("sun", 1, dry_run=True) == ["edit", "edit"]
    assert apply("sun", 1) == ["edit", "edit"]
    assert {job.name: job.version for job in bench.jobs.list()} == {"job": 2, "guest": 2}
    with pytest.raises(ScheduleError):
        apply("satur", 1)
    versions = "SELECT count(*) FROM timeball_job_version"
    assert bench.store.database.read(lambda tx: tx.all(sql(versions)))[0][0] == 4
