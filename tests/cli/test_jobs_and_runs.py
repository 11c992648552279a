"""Commands about runs, limits, pauses and HTTP jobs, as their users meet them."""

from __future__ import annotations

import pytest

from tests.cli.terminal import Terminal, add


def test_a_run_that_waits_is_cancelled_at_once(timeball: Terminal) -> None:
    add(timeball)
    run = timeball.json("jobs", "trigger", "hello")["run"]
    answer = timeball.json("runs", "cancel", str(run))
    assert (answer["state"], answer["changed"], answer["instance"]) == ("cancelled", True, None)
    assert "it had ended, nothing changed" in timeball("runs", "cancel", str(run))
    assert "cancelled by" in timeball.json("runs", "show", str(run))["reason"]
    timeball("runs", "rerun", str(run), status=4)  # it never began: there is nothing to run again
    timeball("runs", "settle", str(run), "--as", "succeeded", status=4)
    timeball("runs", "settle", str(run), "--as", "lost", status=2)
    for verb in (("cancel",), ("rerun",), ("settle", "--as", "failed")):
        timeball("runs", verb[0], "12345", *verb[1:], status=3)


def test_a_limit_is_set_shown_and_deleted(timeball: Terminal) -> None:
    assert timeball.json("limits", "set", "mail", "--running", "5")["changed"]
    assert not timeball.json("limits", "set", "mail", "--running", "5")["changed"]
    assert "100 within 60 s" in timeball("limits", "set", "api", "--started", "100", "--per", "60")
    add(timeball)
    timeball("jobs", "edit", "hello", "--set", "limits=mail, api")
    assert timeball.json("limits", "show", "mail")["jobs"] == ["hello"]
    assert [limit["name"] for limit in timeball.json("limits", "list")] == ["api", "mail"]
    timeball("limits", "delete", "mail", status=4)
    timeball("limits", "delete", "post", status=3)
    assert "--running N" in timeball("limits", "set", "mail", status=2)
    timeball("limits", "set", "mail", "--started", "5", status=2)
    assert "there is no limit named 'post'" in timeball("jobs", "edit", "hello", "--set", "limits=post", status=2)
    timeball("jobs", "edit", "hello", "--set", "limits=")
    timeball("limits", "delete", "mail")


def test_why_says_what_became_of_a_time(timeball: Terminal) -> None:
    add(timeball)
    assert "coming: due in" in timeball("why", "hello", "2038-01-04 09:00")
    (answer,) = timeball.json("why", "hello", "2038-01-04 09:05")
    assert answer["run"] is None
    assert "no tick: definition 1 by cli:" in answer["why"]
    timeball("why", "nobody", "09:00", status=3)
    timeball("why", "hello", "soon", status=2)


def test_a_job_is_paused_resumed_and_backfilled(timeball: Terminal) -> None:
    add(timeball)
    assert "0 ticks have passed" not in timeball("jobs", "resume", "hello", status=4)
    paused = timeball.json("jobs", "pause", "hello", "--reason", "holidays", "--for", "3600")
    assert (paused["state"], paused["changed"]) == ("paused", True)
    assert timeball.json("jobs", "show", "hello")["pause"]["reason"] == "holidays"
    assert timeball.json("jobs", "list", "--state", "paused")[0]["name"] == "hello"
    timeball("jobs", "resume", "hello", "--make-up", "some", status=2)
    assert timeball.json("jobs", "resume", "hello", "--dry-run")["passed"] == 0
    assert timeball.json("jobs", "resume", "hello")["state"] == "active"
    timeball("jobs", "pause", "hello", "--for", "5", "--until", "2038-01-01T00:00:00Z", status=2)
    assert len(timeball.json("jobs", "backfill", "hello", "--since", "7d", "--dry-run")["ticks"]) == 5
    assert len(timeball.json("jobs", "backfill", "hello", "--since", "7d")["ticks"]) == 5
    assert "nothing to do" in timeball("jobs", "backfill", "hello", "--since", "7d")
    timeball("jobs", "stop", "hello")
    timeball("jobs", "resume", "hello", status=4)


def test_an_edit_names_what_changes_and_the_zone_stays(timeball: Terminal) -> None:
    """API-001."""
    add(timeball, "report", "--timezone", "Europe/Paris")
    before = timeball.json("jobs", "next", "report")["ticks"]
    timeball("jobs", "edit", "report", "--set", "description=daily")
    assert timeball.json("jobs", "show", "report")["timezone"] == "Europe/Paris"
    assert timeball.json("jobs", "next", "report")["ticks"] == before


def test_an_http_job_is_made_and_edited_field_by_field(timeball: Terminal) -> None:
    words = ("--schedule", "@every 5m", "--http", "POST", "https://api.example.org/sync", "--timeout", "60")
    more = ("--set", "target.headers.X-Key=${secret:KEY}", "--set", 'target.json={"full": false}')
    assert "secret 'KEY' could not be checked" in timeball("jobs", "add", "sync", *words, *more)
    job = timeball.json("jobs", "show", "sync")
    assert job["target"] == {
        "method": "POST",
        "url": "https://api.example.org/sync",
        "headers": {"X-Key": "${secret:KEY}"},
        "json": {"full": False},
    }
    assert (job["executor"], job["timeout_seconds"]) == ("http", 60)
    assert "POST https://api.example.org/sync" in timeball("jobs", "list")
    timeball("jobs", "edit", "sync", "--set", "target.headers.X-More=1", "--set", "target.redirects_max=2")
    target = timeball.json("jobs", "show", "sync")["target"]
    assert target["headers"] == {"X-Key": "${secret:KEY}", "X-More": "1"}
    assert target["redirects_max"] == 2
    timeball("jobs", "edit", "sync", "--http", "https://example.org/")
    assert timeball.json("jobs", "show", "sync")["target"] == {"url": "https://example.org/"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--http",), "needs a URL"),
        (("--http", "GET", "https://a.example/", "more"), "needs a URL"),
        (("--http", "ftp://a.example/"), "must begin with http://"),
        (("--http", "http://127.0.0.1/"), "http_allow_networks"),
        (("--http", "https://user:pw@a.example/"), "basic_auth"),
        (("--http", "https://a.example/", "--function", "f"), "exclude each other"),
        (("--http", "https://a.example/", "--set", "target.heders.A=1"), "no 'heders'"),
        (("--http", "https://a.example/", "--set", "target.url.A=1"), "which has no parts"),
        (("--http", "https://a.example/", "--set", "target.=1"), "names no part"),
        (("--http", "https://a.example/", "--set", "target.sign_with=plain"), "must refer to a secret"),
    ],
)
def test_an_http_job_that_cannot_work_is_refused(timeball: Terminal, words: tuple[str, ...], said: str) -> None:
    assert said in timeball("jobs", "add", "a", "--schedule", "none", *words, status=2)
