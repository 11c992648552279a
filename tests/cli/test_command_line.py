"""The command line as its users meet it: answers, JSON, exit statuses; and the crontab of a real server."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal, add

CRONTAB = Path(__file__).resolve().parents[1] / "cases" / "server.crontab"


def test_the_parts_of_a_target_are_set_one_by_one_and_stay_when_the_command_is_edited(timeball: Terminal) -> None:
    add(timeball, "limited", "--set", "target.umask=027", "--set", "target.limits.cpu_seconds=60")
    timeball("jobs", "edit", "limited", "--set", "target.cwd=/srv", "--command", "--", "/bin/date")
    assert timeball.json("jobs", "show", "limited")["target"] == {
        "argv": ["/bin/date"],
        "cwd": "/srv",
        "limits": {"cpu_seconds": 60},
        "umask": "027",
    }
    refusal = timeball("jobs", "edit", "limited", "--set", "target.umask=999", status=2)
    assert "umask must be three octal digits" in refusal
    refusal = timeball("jobs", "edit", "limited", "--set", "target.shell=true", status=2)
    assert "command_shell_allow" in refusal


def test_a_job_lives_from_add_to_delete(timeball: Terminal) -> None:
    add(timeball)
    assert timeball.json("jobs", "list")[0]["name"] == "hello"
    assert timeball.json("jobs", "show", "hello")["state"] == "active"
    stopped = timeball.json("jobs", "stop", "hello")
    assert (stopped["changed"], stopped["still_running"]) == (True, [])
    assert not timeball.json("jobs", "stop", "hello")["changed"]
    assert timeball.json("jobs", "start", "hello")["changed"]
    assert len(timeball.json("jobs", "next", "hello", "--count", "3")["ticks"]) == 3
    run = timeball.json("jobs", "trigger", "hello", "--key", "k")["run"]
    assert timeball.json("jobs", "trigger", "hello", "--key", "k")["run"] == run
    assert timeball.json("runs", "show", str(run))["state"] == "planned"
    timeball("jobs", "delete", "hello")
    assert timeball.json("jobs", "list") == []
    timeball.json("audit")


def test_exit_statuses(timeball: Terminal) -> None:
    add(timeball)
    assert "exists already" in timeball(
        "jobs", "add", "hello", "--schedule", "none", "--command", "--", "/bin/true", status=4
    )
    assert "no job named 'nobody'" in timeball("jobs", "stop", "nobody", status=3)
    assert "no minute 61" in timeball(
        "jobs", "add", "bad", "--schedule", "61 * * * *", "--command", "--", "/bin/true", status=2
    )
    timeball("jobs", "unknown-command", status=2)


def test_an_error_in_json_has_its_place(timeball: Terminal) -> None:
    error = timeball.json("explain", "0 61 * * *", status=2)["error"]
    assert (error["code"], error["position"]) == ("out-of-range", 2)
    assert error["hint"]


def test_commands_are_off_until_allowed(timeball: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIMEBALL_COMMAND_ALLOW")
    said = timeball("jobs", "add", "x", "--schedule", "none", "--command", "--", "/bin/true", status=2)
    assert "command_allow" in said


def test_a_celery_task_is_a_job_where_celery_is_set_up(timeball: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    job = ("jobs", "add", "report", "--schedule", "none", "--celery", "reports.send", "--queue", "slow", "--once")
    assert "celery_broker_url" in timeball(*job, status=2)
    monkeypatch.setenv("TIMEBALL_CELERY_BROKER_URL", "amqp://host//")
    monkeypatch.setenv("TIMEBALL_CELERY_RESULT_BACKEND", "redis://host/0")
    assert "--function and --celery exclude each other" in timeball(*job, "--function", "f", status=2)
    timeball(*job, "--args", '{"to": "all"}')
    shown = timeball.json("jobs", "show", "report")
    assert (shown["executor"], shown["args"]) == ("celery", {"to": "all"})
    assert shown["target"] == {"task": "reports.send", "queue": "slow", "once": True}
    assert "celery reports.send" in timeball("jobs", "list")


def test_explain_needs_no_database(timeball: Terminal) -> None:
    answer = timeball.json("explain", "0 9 * * mon-fri", "--timezone", "Europe/Paris", "--from", "2026-12-01T00:00:00Z")
    assert answer["ticks"][0] == "2026-12-01T09:00:00+01:00"
    assert "09:00" in answer["text"]
    assert not Path("timeball.db").exists()


def test_apply_is_all_or_nothing(timeball: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    good = '[jobs.a]\nschedule = "@hourly"\nexecutor = "command"\ntarget = { argv = ["/bin/true"] }\n'
    file.write_text(good + good.replace("jobs.a", "jobs.b").replace("@hourly", "61 * * * *"))
    timeball("apply", str(file), status=2)
    assert timeball.json("jobs", "list") == []
    file.write_text(good)
    timeball("apply", str(file))
    assert [job["name"] for job in timeball.json("jobs", "list")] == ["a"]
    assert "unchanged" in timeball("apply", str(file))


def test_db_upgrade_and_check(timeball: Terminal) -> None:
    timeball("db", "check", status=3)
    timeball("db", "upgrade")
    timeball("db", "check")


def test_a_dry_run_shows_each_job_in_words_and_changes_nothing(timeball: Terminal) -> None:
    found = timeball.json("import", "crontab", str(CRONTAB), "--dry-run")
    assert found["format"] == "system"
    assert all(job["text"] and len(job["ticks"]) <= 3 for job in found["jobs"])
    assert timeball.json("jobs", "list", status=3)["error"]["code"] == "not-found"


def test_looking_makes_no_database(timeball: Terminal) -> None:
    for words in (("jobs", "list"), ("runs", "list"), ("audit",), ("cluster", "status"), ("db", "check")):
        assert "no database" in timeball(*words, status=3)
    assert list(Path.cwd().iterdir()) == []
    Path("timeball.db").touch()
    for words in (("jobs", "list"), ("runs", "list"), ("audit",), ("cluster", "status"), ("db", "check")):
        assert "no Timeball schema" in timeball(*words, status=1)


def test_runs_that_are_planned_ahead_do_not_hide_those_that_ran(timeball: Terminal) -> None:
    add(timeball)
    run = timeball.json("jobs", "trigger", "hello")["run"]
    assert [found["id"] for found in timeball.json("runs", "list")] == [run]
    assert timeball.json("runs", "list", "--until", "2020-01-01T00:00:00Z") == []


def test_a_deleted_jobs_runs_are_still_listed(timeball: Terminal) -> None:
    add(timeball)
    run = timeball.json("jobs", "trigger", "hello")["run"]
    timeball("jobs", "delete", "hello")
    assert [found["id"] for found in timeball.json("runs", "list", "--job", "hello")] == [run]
    timeball("runs", "list", "--job", "nobody", status=3)


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "show", "\udcff"),
        ("jobs", "add", "x", "--schedule", "none", "--command", "--", "/bin/echo", "\udcff"),
        ("jobs", "add", "x", "--schedule", "", "--command", "--", "/bin/echo"),
        ("jobs", "add", "x", "--schedule", "none", "--function", "f", "--args", '{"a": "\\ud800"}'),
        ("jobs", "add", "x", "--schedule", "none", "--function", "f", "--args", "[" * 100_000),
        ("jobs", "add", "x", "--schedule", "none", "--function", "f" * 300),
        ("runs", "show", "9" * 30),
        ("runs", "list", "--since", "99999999999d"),
        ("audit", "--since", "1m", "--until", "2m"),
    ],
)
def test_bad_input_is_refused_in_words(timeball: Terminal, words: tuple[str, ...]) -> None:
    add(timeball)
    assert "Traceback" not in timeball(*words, status=2)


def test_a_wrong_schedule_is_shown_with_a_caret_where_the_trouble_begins(timeball: Terminal) -> None:
    lines = timeball("explain", "0 9 * * mno", status=2).splitlines()
    assert lines[1:3] == ["       0 9 * * mno", "               ^"]
    lines = timeball("explain", "0 9 * * mon|" * 7 + "61 * * * *", status=2).splitlines()
    assert lines[1][lines[2].index("^") :] == "61 * * * *"


def test_apply_says_which_job_is_wrong(timeball: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    good = {"schedule": "none", "command": ["/bin/echo"]}
    for bad in ({"schedule": "none", "command": []}, {**good, "timezone": "Mars"}, {**good, "description": "\ud800"}):
        file.write_text(json.dumps({"jobs": {"good": good, "bad": bad}}))
        assert "job 'bad'" in timeball("apply", str(file), status=2)
    file.write_text("[" * 100_000)
    assert "cannot be read" in timeball("apply", str(file), status=2)


def test_every_line_of_a_real_crontab_is_taken_over_or_answered(timeball: Terminal) -> None:
    found = timeball.json("import", "crontab", str(CRONTAB))
    told = {job["line"] for job in found["jobs"]} | {note["line"] for note in found["notes"]}
    for number, line in enumerate(CRONTAB.read_text().splitlines(), start=1):
        entry = line.strip()
        if entry and not entry.startswith("#") and "=" not in entry.split()[0]:
            assert number in told, line
    jobs = timeball.json("jobs", "list")
    assert len(jobs) == len(found["jobs"])
    assert {job["state"] for job in jobs} == {"stopped"}


def test_a_plain_user_crontab_keeps_percent_signs_and_zones(timeball: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_text(
        "CRON_TZ=Europe/Paris\nGREETING=hello\n30 2 * * * /bin/date +\\%F%first line%second\n@reboot /bin/start\n"
    )
    found = timeball.json("import", "crontab", str(file))
    job = found["jobs"][0]
    assert job["timezone"] == "Europe/Paris"
    assert job["target"]["argv"][-1] == "/bin/date +%F"
    assert job["target"]["stdin"] == "first line\nsecond\n"
    assert job["target"]["env"]["GREETING"] == "hello"
    assert found["jobs"][1]["schedule"] == "@reboot"
    assert found["jobs"][1]["notes"] == [
        "runs once when the cluster starts, on one instance; not whenever a host boots"
    ]


def test_a_schema_of_a_newer_version_is_left_alone(timeball: Terminal) -> None:
    add(timeball)
    with sqlite3.connect("timeball.db") as database:
        database.execute("UPDATE timeball_schema SET version_num = '9999'")
    for words in (("db", "upgrade"), ("db", "check"), ("jobs", "list"), ("serve", "--no-http")):
        assert "made by a newer version" in timeball(*words, status=1)


def test_apply_that_fails_half_way_says_how_far_it_came(timeball: Terminal, tmp_path: Path) -> None:
    add(timeball, "z")
    with sqlite3.connect("timeball.db") as database:
        database.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON timeball_job WHEN NEW.name = 'b' "
            "BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    file = tmp_path / "jobs.toml"
    file.write_text("".join(f'[jobs.{name}]\nschedule = "@hourly"\ncommand = ["/bin/true"]\n' for name in "abc"))
    answer = timeball("apply", str(file), status=1)
    assert "after 1 of 3 jobs" in answer
    assert "apply it again" in answer
    assert [job["name"] for job in timeball.json("jobs", "list")] == ["a", "z"]


def test_a_file_that_is_not_there_is_named_once(timeball: Terminal) -> None:
    for words in (("apply", "x.toml"), ("import", "crontab", "x.toml")):
        answer = timeball(*words, status=2)
        assert answer.count("x.toml") == 1
        assert "No such file" in answer


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_in_words() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "timeball", "explain", "* * * * *"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "error: cannot write: No space left on device\n"


def test_ticks_around_a_change_of_the_clocks_say_so(timeball: Terminal) -> None:
    words = ("explain", "30 2 * * *", "--timezone", "Europe/Berlin", "--from", "2026-03-27T12:00:00Z", "--count", "3")
    lines = timeball(*words).splitlines()
    assert ["forward 1:00 in between" in line for line in lines] == [False, False, False, True, False]
    back = timeball.json(
        "explain", "0 12 * * *", "--timezone", "Europe/Berlin", "--from", "2026-10-26T00:00:00Z", "--previous"
    )
    assert back["clock_changes"][1].startswith("clocks went back 1:00")
    assert "NOTE" not in timeball("explain", "0 12 * * *", "--from", "2026-10-26T00:00:00Z")


def test_the_words_come_in_chinese_too(timeball: Terminal) -> None:
    assert "每天" in timeball("explain", "0 9 * * *", "--language", "zh")


def test_a_coming_tick_is_taken_out_and_put_back(timeball: Terminal) -> None:
    add(timeball)
    tick = timeball.json("jobs", "next", "hello")["ticks"][0]
    assert "is out" in timeball("jobs", "skip", "hello")
    assert timeball.json("jobs", "next", "hello")["skipped"] == [tick]
    assert "skipped by cli:" in timeball("jobs", "next", "hello")
    assert "is back" in timeball("jobs", "unskip", "hello", tick)
    assert timeball.json("jobs", "next", "hello")["skipped"] == []


def test_a_job_takes_rules_of_a_calendar_and_an_empty_one_takes_them_off(timeball: Terminal) -> None:
    words = ("jobs", "add", "a", "--schedule", "0 9 * * *", "--exclude", "sat,sun", "--exclude", "12-25")
    timeball(*words, "--roll", "next", "--command", "--", "/bin/true")
    assert timeball.json("jobs", "show", "a")["calendar"] == {"exclude": ["sat,sun", "12-25"], "roll": "next"}
    assert "moved to the next open day" in timeball("jobs", "show", "a")
    timeball("jobs", "edit", "a", "--exclude", "sun")
    assert timeball.json("jobs", "show", "a")["calendar"] == {"exclude": ["sun"], "roll": "next"}
    timeball("jobs", "edit", "a", "--exclude", "")
    assert timeball.json("jobs", "show", "a")["calendar"] == {}
    assert timeball.json("jobs", "edit", "a", "--roll", "next", status=2)["error"]["field"] == "calendar"
    assert timeball.json("jobs", "edit", "a", "--exclude", "satur", status=2)["error"]["code"] == "bad-exclusion"


def test_explain_tries_a_calendar_out(timeball: Terminal) -> None:
    words = ("explain", "0 9 * * *", "--exclude", "sat,sun", "--from", "2026-12-04T12:00:00Z", "--count", "1")
    assert timeball.json(*words)["ticks"] == ["2026-12-07T09:00:00+00:00"]
