"""Backfills, pauses and what a resume makes up for, on whole instances and a real database."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.store.scene import SECOND
from tests.store.stepped import Bench
from timeball.clock import parse_instant
from timeball.engine.engine import Engine
from timeball.errors import Conflict, InvalidInput, NotFound
from timeball.model.job import JobState
from timeball.service.audit import audit
from timeball.service.backfills import BackfillService

NOON = "2030-06-05T12:00:00Z"


@pytest.fixture
def past(bench: Bench) -> BackfillService:
    bench.set_clock(NOON)
    return BackfillService(bench.store, bench.jobs, namespace="default", actor="anna")


def at(time: str) -> int:
    return parse_instant(f"2030-06-05T{time}Z")


def let_pass(bench: Bench, seconds: int, *engines: Engine, step: int = 1) -> None:
    for _ in range(seconds // step):
        bench.move_clock(step * SECOND)
        bench.round(*engines)


def made(bench: Bench, name: str = "job") -> list[int]:
    """Ticks of the backfilled runs that succeeded, in the order of their begin."""
    runs = [r for r in bench.runs(name) if r.kind == "backfill" and r.state == "succeeded"]
    return [run.due_at for run in sorted(runs, key=lambda run: run.begun_at or 0)]


def test_the_ticks_of_a_range_run_once_each_oldest_first(bench: Bench, past: BackfillService) -> None:
    bench.jobs.create("job", bench.define("0 * * * *"))
    a = bench.instance("a")
    assert len(past.preview("job", since=at("06:00:00"))) == 7
    answer = past.backfill("job", since=at("06:00:00"), until=at("10:00:00"))
    assert len(answer.ticks) == 5
    again = past.backfill("job", since=at("05:00:00"), until=at("10:00:00"))
    assert list(again.ticks) == [at("05:00:00")]
    let_pass(bench, 12, a)
    ticks = made(bench)
    assert Counter(ticks) == Counter(at(f"{hour:02}:00:00") for hour in range(5, 11))
    assert [tick for tick in ticks if tick != at("05:00:00")] == sorted(answer.ticks)
    assert [due for _, due in bench.calls] == ticks
    assert past.backfill("job", since=at("06:00:00"), until=at("10:00:00")).id is None
    assert len(past.backfill("job", since=at("06:00:00"), until=at("07:00:00"), again=True).ticks) == 2
    let_pass(bench, 6, a)
    assert Counter(made(bench))[at("06:00:00")] == 2
    assert audit(bench.store, "default").violations == []
    assert "job.backfilled" in [event.kind for event in bench.store.events.latest("default")]


def test_no_more_of_a_backfill_run_at_once_than_was_asked(bench: Bench, past: BackfillService) -> None:
    bench.jobs.create("job", bench.define("* * * * *", "long", overlap="allow"))
    a, b = bench.instance("a"), bench.instance("b")
    past.backfill("job", since=at("11:00:00"), until=at("11:09:00"), at_once=3)
    for _ in range(4):
        bench.move_clock(SECOND // 4)
        bench.round(a, b)
    assert sum(run.state == "running" for run in bench.runs("job")) == 3
    bench.release.set()
    most = 0
    for _ in range(60):
        bench.move_clock(SECOND // 4)
        bench.round(a, b)
        most = max(most, sum(run.kind == "backfill" and run.state == "running" for run in bench.runs("job")))
        if len(made(bench)) == 10:
            break
    assert (len(made(bench)), most <= 3) == (10, True)
    bench.move_clock(SECOND)
    bench.round(a)
    assert not bench.store.backfills.pump(a.lease.term())  # type: ignore[arg-type]


def test_a_stop_ends_a_backfill_and_an_edit_takes_it_along(bench: Bench, past: BackfillService) -> None:
    bench.jobs.create("job", bench.define("0 * * * *", "long", overlap="allow"))
    a = bench.instance("a")
    past.backfill("job", since=at("06:00:00"), until=at("09:00:00"))
    bench.round(a)
    bench.jobs.edit("job", bench.define("0 * * * *", "note", overlap="allow"))
    bench.round(a)
    states = Counter(run.state for run in bench.runs("job") if run.kind == "backfill")
    assert states == {"running": 1, "planned": 3}  # still one after the other
    answer = bench.jobs.stop("job")
    assert (answer.removed_runs, len(answer.still_running)) == (3, 1)
    bench.release.set()
    let_pass(bench, 4, a)
    states = Counter(run.state for run in bench.runs("job") if run.kind == "backfill")
    assert states == {"succeeded": 1, "cancelled": 3}


def test_a_backfill_that_cannot_be_is_refused(bench: Bench, past: BackfillService) -> None:
    bench.jobs.create("job", bench.define("* * * * * *"))
    bench.jobs.create("chain", bench.define("@after 5s"))
    for since, until, words in (
        ("10:00:00", "13:00:00", "a backfill is for the past"),
        ("11:00:00", "10:00:00", "the range is empty"),
        ("00:00:00", "11:00:00", "39601 ticks; at most 10000"),
    ):
        with pytest.raises(InvalidInput, match=words):
            past.backfill("job", since=at(since), until=at(until))
    with pytest.raises(InvalidInput, match="at_once must lie between"):
        past.backfill("job", since=at("11:00:00"), at_once=0)
    with pytest.raises(InvalidInput, match="the ticks of @after follow its runs"):
        past.backfill("chain", since=at("11:00:00"))
    with pytest.raises(NotFound):
        past.backfill("nobody", since=at("11:00:00"))


def test_a_pause_is_a_stop_with_a_reason_and_a_resume_makes_up_for_what_was_chosen(
    bench: Bench, past: BackfillService
) -> None:
    bench.jobs.create("job", bench.define("*/10 * * * * *"))
    a = bench.instance("a")
    let_pass(bench, 12, a)
    answer = past.pause("job", reason="the bank is closed")
    assert (answer.changed, answer.job.state) == (True, JobState.PAUSED)
    pause = answer.job.pause
    assert pause is not None
    assert (pause.reason, pause.actor, pause.resume_at) == ("the bank is closed", "anna", None)
    assert not past.pause("job", reason="the bank is closed").changed
    assert past.pause("job", reason="the bank has moved").job.pause.since == pause.since  # type: ignore[union-attr]
    before = len(bench.calls)
    let_pass(bench, 60, a, step=5)
    assert len(bench.calls) == before
    passed = past.passed("job")
    assert passed.count == 6
    result = past.resume("job", make_up="2")
    assert (result.changed, result.job.state, result.job.pause) == (True, JobState.ACTIVE, None)
    assert not past.resume("job").changed
    let_pass(bench, 4, a)
    assert len(made(bench)) == 2
    assert made(bench)[-1] == passed.last
    let_pass(bench, 12, a)
    assert audit(bench.store, "default").violations == []


@pytest.mark.parametrize(("make_up", "count"), [("none", 0), ("latest", 1), ("all", 5)])
def test_what_a_resume_makes_up_for(bench: Bench, past: BackfillService, make_up: str, count: int) -> None:
    bench.jobs.create("job", bench.define("* * * * *"))
    a = bench.instance("a")
    bench.round(a)
    past.pause("job")
    bench.move_clock(5 * 60 * SECOND)
    past.resume("job", make_up=make_up)
    let_pass(bench, 14, a)
    assert len(made(bench)) == count


def test_a_pause_ends_by_itself_at_its_hour_and_survives_an_edit_until_then(
    bench: Bench, past: BackfillService
) -> None:
    bench.jobs.create("job", bench.define("*/10 * * * * *"))
    a = bench.instance("a")
    bench.round(a)
    past.pause("job", resume_at=bench.now() + 30 * SECOND)
    edited = bench.jobs.edit("job", bench.define("*/5 * * * * *")).job
    assert (edited.state, edited.pause is not None) == (JobState.PAUSED, True)
    let_pass(bench, 20, a, step=5)
    assert bench.jobs.get("job").state is JobState.PAUSED
    let_pass(bench, 30, a, step=2)
    assert bench.jobs.get("job").state is JobState.ACTIVE
    assert bench.calls
    kinds = [event.kind for event in bench.store.events.latest("default") if event.kind.startswith("job.")]
    assert kinds == ["job.resumed", "job.edited", "job.paused", "job.created"]
    assert audit(bench.store, "default").violations == []


def test_a_paused_job_can_be_triggered_started_and_stopped(bench: Bench, past: BackfillService) -> None:
    bench.jobs.create("job", bench.define("0 9 * * *"))
    a = bench.instance("a")
    past.pause("job")
    run_id = bench.jobs.trigger("job")
    bench.round(a)
    assert bench.store.runs.get("default", run_id).state == "succeeded"
    assert bench.jobs.start("job").job.state is JobState.ACTIVE
    past.pause("job")
    assert bench.jobs.stop("job").job.pause is None
    assert not past.pause("job").changed
    with pytest.raises(Conflict, match="is stopped, not paused"):
        past.resume("job")
    with pytest.raises(Conflict, match="is stopped, not paused"):
        past.passed("job")
    bench.jobs.start("job")
    for words, given in (
        ("one line", {"reason": "a\nb"}),
        ("has passed", {"resume_at": 1}),
    ):
        with pytest.raises(InvalidInput, match=words):
            past.pause("job", **given)  # type: ignore[arg-type]
    past.pause("job")
    for make_up in ("some", "-1", "1.5", "9999999999"):
        with pytest.raises(InvalidInput, match="make_up cannot be"):
            past.resume("job", make_up=make_up)
