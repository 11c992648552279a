"""Typed arguments at save and at trigger, in a program that has the function and in one that has not."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.store.stepped import Bench, eventually
from timeball.app.wiring import make_registry
from timeball.errors import TargetError
from timeball.executors.registry import FunctionTable
from timeball.service.jobs import JobService
from timeball.settings import Settings


def test_the_wrong_argument_is_refused_at_save_and_at_trigger(bench: Bench) -> None:
    seen: list[object] = []

    def report(day: dt.date, count: int = 1) -> None:
        seen.append((day, count))

    bench.functions.register("report", report)
    with pytest.raises(TargetError) as caught:
        bench.jobs.create("job", bench.define("none", "report", args={"day": "soon"}))
    assert caught.value.field == "args.day"
    bench.jobs.create("job", bench.define("none", "report", args={"day": "2026-12-01"}))
    with pytest.raises(TargetError) as caught:
        bench.jobs.trigger("job", args={"count": "many"})
    assert caught.value.field == "args.count"
    assert bench.runs("job") == []
    one = bench.instance("one")
    bench.jobs.trigger("job", args={"count": 2})

    def ended() -> bool:
        bench.round(one)
        return bench.runs("job")[0].state == "succeeded"

    eventually(ended)
    assert seen == [(dt.date(2026, 12, 1), 2)]


def test_a_program_without_the_function_says_that_its_arguments_were_not_checked(bench: Bench) -> None:
    bench.functions.register("report", lambda day: None)
    bench.instance("one")
    registry = make_registry(Settings(database_url=bench.url), FunctionTable())
    elsewhere = JobService(bench.store, registry, namespace="default", actor="test")
    elsewhere.create("job", bench.define("none", "report", args={"dya": 1}))
    assert elsewhere.notes == [
        "this program does not have function 'report', so its arguments are checked when it runs"
    ]
    with pytest.raises(TargetError, match="unknown argument 'dya'"):
        bench.jobs.create("other", bench.define("none", "report", args={"dya": 1}))
