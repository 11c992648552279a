"""Why something ran, or did not: a sentence from the ledger and the history, on whole instances."""

from __future__ import annotations

import dataclasses

import pytest

from tests.store.scene import SECOND
from tests.store.stepped import Bench
from timeball.engine.engine import Engine
from timeball.errors import InvalidInput, NotFound
from timeball.model.limit import LimitRule
from timeball.service.limits import LimitService
from timeball.service.ticks import TickService
from timeball.service.why import Because, why
from timeball.store.runs import RunFilter

NOON = "2030-06-05T12:00:00Z"


def ask(bench: Bench, time: str, name: str = "job") -> list[Because]:
    registry = bench.jobs._registry
    return why(bench.store, "default", name, time, handler_of=lambda d: registry.handler_of(d.executor, d.target))


def said(bench: Bench, time: str, name: str = "job") -> str:
    return "; ".join(because.sentence for because in ask(bench, time, name))


def let_pass(bench: Bench, seconds: int, *engines: Engine) -> None:
    for _ in range(seconds):
        bench.move_clock(SECOND)
        for engine in engines:
            bench.round(engine)


def test_a_run_that_was_and_a_time_that_is_no_tick(bench: Bench) -> None:
    bench.set_clock(NOON)
    bench.jobs.create("job", bench.define("*/10 * * * * *", timezone="Europe/Paris"))
    a = bench.instance("a")
    let_pass(bench, 25, a)
    (ran,) = ask(bench, "2030-06-05T12:00:10Z")
    assert (ran.state, ran.version, ran.run_id is not None) == ("succeeded", 1, True)
    assert ran.sentence.startswith("2030-06-05 14:00:10+02:00 succeeded: on a, ")
    assert "definition 1 by test" in ran.sentence
    words = said(bench, "14:00:15")
    assert "no tick: definition 1 by test: '*/10 * * * * *' in Europe/Paris" in words
    assert "the one before is 2030-06-05 14:00:10+02:00, the next one 2030-06-05 14:00:20+02:00" in words
    assert len(ask(bench, "14:00")) >= 2  # the whole minute
    assert "coming: due in " in said(bench, "2030-06-05 15:00:00")
    assert "only created at 2030-06-05T12:00:0" in said(bench, "2030-06-05T11:00:00Z")


def test_a_tick_that_was_skipped_for_overlap_by_a_person_or_by_a_calendar(bench: Bench) -> None:
    bench.set_clock(NOON)
    bench.jobs.create("job", bench.define("*/10 * * * * *", "long"))
    a = bench.instance("a")
    let_pass(bench, 22, a)
    running = next(r for r in bench.runs("job") if r.state == "running")
    assert f"skipped: overlap: run {running.id} on a; policy skip" in said(bench, "2030-06-05T12:00:20Z")
    assert "running: on a since 2030-06-05T12:00:1" in said(bench, "2030-06-05T12:00:10Z")
    TickService(bench.store, bench.jobs._registry, namespace="default", actor="anna").skip(
        "job", "2030-06-05T12:10:00Z"
    )
    assert "skipped: it never began: skipped by anna" in said(bench, "2030-06-05T12:10:00Z")
    bench.jobs.create("closed", bench.define("0 9 * * *", calendar={"exclude": ["06-06"]}))
    assert "no tick (closed by its calendar)" in said(bench, "2030-06-06 09:00", "closed")
    bench.jobs.create("ended", bench.define("0 9 * * *", end_at="2030-06-10T00:00:00Z"))
    assert "no tick (after end_at)" in said(bench, "2030-06-11 09:00", "ended")


def test_what_was_missed_says_who_was_up(bench: Bench) -> None:
    bench.set_clock(NOON)
    bench.jobs.create("job", bench.define("* * * * *", misfire_after_seconds=5))
    a = bench.instance("a")
    let_pass(bench, 3, a)
    a.member.leave()
    bench.move_clock(600 * SECOND)
    b = bench.instance("b")
    let_pass(bench, 3, b)
    words = said(bench, "2030-06-05T12:04:00Z")
    assert " missed: no instance was up since 2030-06-05T12:00:0" in words
    assert " until 2030-06-05T12:10:0" in words
    assert "other ticks, up to" in words


def test_what_waits_says_for_what(bench: Bench) -> None:
    bench.set_clock(NOON)
    LimitService(bench.store, namespace="default", actor="anna").set("one", LimitRule(running_max=1))
    bench.jobs.create("first", bench.define("none", "long", limits=["one"]))
    bench.jobs.create("second", bench.define("none", "note", limits=["one"]))
    bench.jobs.create("labelled", bench.define("none", "note", requires={"gpu": "1"}))
    bench.jobs.create("turn", bench.define("none", "long"))
    a = bench.instance("a")
    for name in ("first", "second", "labelled", "turn", "turn"):
        bench.jobs.trigger(name)
        bench.round(a)
    minute = "2030-06-05 12:00"
    assert "manual planned: it waits for limit 'one': 1 of 1 run" in said(bench, minute, "second").replace(
        "claimed", "planned"
    )
    assert "no instance is up that can run it (function:note, gpu=1)" in said(bench, minute, "labelled")
    assert "it waits for its turn; policy skip" in said(bench, minute, "turn")


def test_a_stop_an_edit_and_a_failure_are_told(bench: Bench) -> None:
    bench.set_clock(NOON)
    bench.functions.register("fail", lambda: 1 // 0)
    bench.jobs.create("job", bench.define("*/10 * * * * *", "fail"))
    a = bench.instance("a")
    let_pass(bench, 12, a)
    assert "failed: on a, on time" in said(bench, "2030-06-05T12:00:10Z")
    assert "ZeroDivisionError" in said(bench, "2030-06-05T12:00:10Z")
    bench.jobs.edit("job", dataclasses.replace(bench.jobs.get("job").definition, schedule="0 9 * * *"))
    assert "no tick: definition 2 by test: '0 9 * * *'" in said(bench, "2030-06-05T12:00:40Z")
    bench.jobs.stop("job")
    assert "no tick: the job was stopped at 2030-06-05T12:00:1" in said(bench, "2030-06-06 09:00")
    assert bench.store.runs.list("default", RunFilter(job="job"))


def test_what_cannot_be_answered_is_refused(bench: Bench) -> None:
    bench.set_clock(NOON)
    with pytest.raises(NotFound, match="never was a job named 'nobody'"):
        ask(bench, "09:00", "nobody")
    bench.jobs.create("job", bench.define("none"))
    for time in ("nine", "25:00", "2030-02-30 09:00", "2030-06-05T09", ""):
        with pytest.raises(InvalidInput, match="is no time"):
            ask(bench, time)
    assert "no tick" in said(bench, "2030-06-06T09:00")
