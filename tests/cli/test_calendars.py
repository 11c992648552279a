"""`timeball calendars`, and calendars in files and in `explain`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from timeball.clock import local_instant, wall_us
from timeball.schedule import resolve_zone

SCHOOL = Path(__file__).resolve().parents[1] / "cases" / "school.ics"
TRUE = ("--command", "--", "/bin/true")
FILE = """
[calendars.works]
exclude = ["sat,sun"]
description = "ours"

[jobs.report]
schedule = "0 9 * * *"
calendar = "works"
command = ["/bin/true"]
"""


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMEBALL_COMMAND_ALLOW", "*")


@pytest.fixture
def timeball(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capsys)


def test_a_calendar_lives_from_add_to_delete(timeball: Terminal) -> None:
    assert "2 rules" in timeball("calendars", "add", "works", "--exclude", "sat,sun", "--exclude", "12-25")
    assert "exists already" in timeball("calendars", "add", "works", "--exclude", "sun", status=4)
    assert timeball.json("calendars", "list")[0]["exclude"] == ["sat,sun", "12-25"]
    timeball("jobs", "add", "a", "--schedule", "0 9 * * *", "--calendar", "works", "--roll", "next", *TRUE)
    edited = timeball.json("calendars", "edit", "works", "--exclude", "sun", "--description", "ours")
    assert (edited["changed"], edited["jobs_changed"], edited["left"], edited["version"]) == (True, 1, {}, 2)
    assert "was so already; 0 jobs follow" in timeball("calendars", "edit", "works", "--exclude", "sun")
    assert "version 2, not 1" in timeball("calendars", "edit", "works", "--exclude", "sat", "--version", "1", status=4)
    shown = timeball.json("calendars", "show", "works")
    assert (shown["jobs"], shown["behind"], shown["description"]) == (["a"], [], "ours")
    assert "ours" in timeball("calendars", "show", "works")
    assert "in use by a" in timeball("calendars", "delete", "works", status=4)
    timeball("jobs", "edit", "a", "--calendar", "")
    timeball("calendars", "delete", "works")
    assert timeball.json("calendars", "list") == []
    timeball("calendars", "show", "works", status=3)


def test_a_job_takes_a_calendar_by_name_and_keeps_its_roll(timeball: Terminal) -> None:
    timeball("calendars", "add", "one", "--exclude", "sat")
    timeball("calendars", "add", "two", "--exclude", "sun")
    timeball("jobs", "add", "a", "--schedule", "0 9 * * *", "--calendar", "one", "--roll", "previous", *TRUE)
    assert "calendar 'one'" in timeball("jobs", "show", "a")
    timeball("jobs", "edit", "a", "--calendar", "two")
    calendar = {"exclude": ["sun"], "name": "two", "roll": "previous"}
    assert timeball.json("jobs", "show", "a")["calendar"] == calendar
    timeball("jobs", "edit", "a", "--roll", "skip")
    assert timeball.json("jobs", "show", "a")["calendar"] == {**calendar, "roll": "skip"}
    timeball("jobs", "edit", "a", "--exclude", "12-25")
    assert timeball.json("jobs", "show", "a")["calendar"] == {"exclude": ["12-25"], "roll": "skip"}
    for words in (("--calendar", "three"), ("--calendar", "one", "--exclude", "sat")):
        assert timeball.json("jobs", "edit", "a", *words, status=2)["error"]["field"] == "calendar"


def test_a_job_that_is_never_open_is_refused_with_the_true_reason(timeball: Terminal) -> None:
    words = ("jobs", "add", "a", "--schedule", "0 12 * * sat", "--exclude", "sat", *TRUE)
    assert "the calendar closes every tick" in timeball(*words, status=2)
    assert timeball.json("jobs", "list") == []


def test_imported_days_are_plain_rules_with_their_source_and_their_end(timeball: Terminal) -> None:
    year = local_instant(wall_us(), resolve_zone("UTC")).year
    words = ("calendars", "add", "by", "--country", "DE", "--subdivision", "BY", "--years", f"{year}-{year + 3}")
    assert f"known until {year + 3}-12-31" in timeball(*words, "--exclude", "sat,sun")
    shown = timeball.json("calendars", "show", "by")
    assert shown["exclude"][:2] == ["sat,sun", f"{year}-01-01"]
    assert f"DE-BY, {year}-{year + 3}" in shown["sources"][0]["what"]
    said = timeball("calendars", "edit", "by", "--country", "DE", "--years", str(year))
    assert f"note: calendar 'by' knows of days only until {year}-12-31" in said
    words = ("jobs", "add", "a", "--schedule", "0 9 * * *", "--calendar", "by", *TRUE)
    assert "knows of days only until" in timeball(*words)
    timeball("calendars", "edit", "by", "--exclude", "sat")
    assert timeball.json("calendars", "show", "by")["sources"] == []


def test_an_icalendar_file_is_taken_in(timeball: Terminal) -> None:
    words = ("calendars", "add", "school", "--ical", str(SCHOOL), "--years", "2026-2028")
    assert timeball.json(*words, status=2)["error"]["field"] == "timezone"
    made = timeball.json(*words, "--timezone", "Europe/Berlin")
    assert (made["known_until"], len(made["exclude"])) == ("2028-05-01", 6)
    assert "No such file" in timeball("calendars", "edit", "school", "--ical", "no.ics", status=2)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--exclude", ""),
        ("--exclude", "satur"),
        ("--exclude", "sat", "--timezone", "Mars"),
        ("--exclude", "sat", "--years", "2026"),
        ("--exclude", "sat", "--subdivision", "BY"),
        ("--country", "XX"),
        ("--country", "DE", "--years", "1"),
    ],
)
def test_bad_calendars_are_refused_in_words(timeball: Terminal, words: tuple[str, ...]) -> None:
    said = timeball("calendars", "add", "x", *words, status=2)
    assert said.startswith("error: ")
    assert "Traceback" not in said


def test_a_file_brings_its_calendars_along(timeball: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(FILE)
    planned = timeball.json("apply", str(file), "--dry-run", status=3)
    assert planned["error"]["code"] == "not-found"
    done = timeball.json("apply", str(file))
    assert [each["action"] for each in (*done["calendars"], *done["jobs"])] == ["create", "create"]
    timeball("jobs", "add", "guest", "--schedule", "0 9 * * *", "--calendar", "works", *TRUE)
    file.write_text(FILE.replace("sat,sun", "fri-sun"))
    timeball("apply", str(file))
    for job in ("report", "guest"):
        assert timeball.json("jobs", "show", job)["calendar"] == {"exclude": ["fri-sun"], "name": "works"}
    assert "unchanged" in timeball("apply", str(file))
    file.write_text('[calendars.works]\nexclude = ["sat"]\n')
    timeball("apply", str(file))
    assert timeball.json("calendars", "show", "works")["exclude"] == ["sat"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[calendars.x]\nexclud = []", "calendar 'x' has no 'exclud'"),
        ('[calendars.x]\nexclude = "sat"', "calendar 'x': exclude of calendar must be a list"),
        ('[calendars.x]\nexclude = ["satur"]', "calendar 'x': 'satur'"),
        ('[calendars]\nx = "sat"', "calendar 'x' must be a table"),
        ('calendars = "sat"', "no table of jobs"),
        ('[calendar.x]\nexclude = ["sat"]', "unknown table 'calendar'"),
        (FILE.replace('calendar = "works"', 'calendar = "work"'), "job 'report': there is no calendar named 'work'"),
    ],
)
def test_a_file_with_a_wrong_calendar_changes_nothing(timeball: Terminal, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(text)
    assert said in timeball("apply", str(file), status=2)
    timeball("db", "upgrade")
    assert (timeball.json("calendars", "list"), timeball.json("jobs", "list")) == ([], [])


def test_explain_takes_a_calendar_from_the_database(timeball: Terminal) -> None:
    words = ("explain", "0 9 * * *", "--calendar", "works", "--from", "2026-12-04T12:00:00Z", "--count", "1")
    assert "no database" in timeball(*words, status=3)
    timeball("calendars", "add", "works", "--exclude", "sat,sun")
    assert timeball.json(*words)["ticks"] == ["2026-12-07T09:00:00+00:00"]
    assert "calendar 'works'" in timeball(*words)
    assert timeball.json(*words, "--roll", "previous", "--previous")["ticks"] == ["2026-12-04T09:00:00+00:00"]
    timeball("explain", "0 9 * * *", "--calendar", "none", status=3)
    timeball(*words, "--exclude", "sat", status=2)
