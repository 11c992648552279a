"""What the command line says when it is given too little, or something that is not there."""

from __future__ import annotations

import logging
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.test_command_line import Terminal, add
from timeball.cli.context import table
from timeball.events.facts import RunSkipped, RunsLost
from timeball.observe.logs import log_facts


@pytest.fixture
def timeball(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    monkeypatch.setenv("TIMEBALL_COMMAND_ALLOW", "*")
    return Terminal(monkeypatch, capsys)


def test_an_edit_of_nothing_is_told_and_makes_no_version(timeball: Terminal) -> None:
    add(timeball)
    answer = timeball("jobs", "edit", "hello", status=2)
    assert "nothing to change about job 'hello'" in answer
    assert "--schedule" in answer
    assert timeball.json("jobs", "show", "hello")["version"] == 1
    timeball("jobs", "edit", "hello", "--timezone", "Europe/Paris")
    assert timeball.json("jobs", "show", "hello")["version"] == 2


def test_a_job_that_follows_its_runs_has_no_tick_to_skip(timeball: Terminal) -> None:
    timeball("jobs", "add", "loop", "--schedule", "@after 30s", "--command", "--", "/bin/true")
    answer = timeball("jobs", "skip", "loop", status=4)
    assert "follows its own runs" in answer
    assert "hint:" in answer


def test_a_namespace_that_is_not_there_is_not_found_and_the_others_are_named(timeball: Terminal) -> None:
    add(timeball)
    answer = timeball("cluster", "status", "--namespace", "nope", status=3)
    assert "no namespace 'nope'" in answer
    assert "there is default" in answer
    timeball("db", "upgrade", "--namespace", "nope")
    timeball("cluster", "status", "--namespace", "nope")


def test_what_is_no_runs_number_is_told(timeball: Terminal) -> None:
    add(timeball)
    for wrong in ("abc", "0", "9" * 30):
        assert "is not the number of a run; timeball runs list" in timeball("runs", "show", wrong, status=2)


def test_a_port_in_use_ends_serve_with_words(timeball: Terminal) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        answer = timeball("serve", "--port", port, status=1)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in answer
    assert "--port 0" in answer


def test_tables_without_a_record_of_their_version_are_left_alone(timeball: Terminal) -> None:
    with closing(sqlite3.connect("timeball.db")) as by_hand:
        by_hand.execute("CREATE TABLE timeball_job (id INTEGER)")
    for words in (("db", "upgrade"), ("db", "check"), ("jobs", "list"), ("serve", "--no-http")):
        answer = timeball(*words, status=1)
        assert "has tables of Timeball (timeball_job), and no record of the version" in answer
        assert "backup" in answer
    Path("timeball.db").unlink()
    add(timeball)
    with closing(sqlite3.connect("timeball.db")) as emptied:
        emptied.execute("DELETE FROM timeball_schema")
        emptied.commit()
    assert "timeball_schema is missing or empty" in timeball("db", "upgrade", status=1)


def test_the_doctor_tells_what_the_file_shows_when_it_cannot_be_opened(timeball: Terminal) -> None:
    Path("timeball.db").write_text("no database at all, but a text that is long enough to be looked at" * 20)
    Path("timeball.db").chmod(0o666)
    checks = {check["check"]: check["verdict"] for check in timeball.json("doctor", status=1)["checks"]}
    assert (checks["answers"], checks["permissions"]) == ("fail", "warn")


def test_a_cell_of_several_lines_stays_in_its_column(capsys: pytest.CaptureFixture[str]) -> None:
    table(("A", "B", "C"), [("a", "one\ntwo", "c"), ("x", "", "y")], empty="")
    assert capsys.readouterr().out.splitlines() == ["A  B    C", "a  one  c", "   two", "x       y"]


def test_log_lines_name_the_job_and_what_blocked_it_and_count_rightly(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "timeball"):
        log_facts(RunSkipped(run_id=7, job="report", reason="overlap: run 3 on one"))
        log_facts(RunsLost(run_ids=(4,), rerun=0))
        log_facts(RunsLost(run_ids=tuple(range(12)), rerun=2))
    assert caplog.messages == [
        "run 7 of report skipped by its overlap policy: overlap: run 3 on one",
        "1 run lost with the instance, 0 to run again: 4",
        "12 runs lost with the instance, 2 to run again: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more",
    ]
