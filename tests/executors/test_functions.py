"""Functions: real threads and loops; a bad function hurts only itself."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.executors.bench_of_work import FunctionTable, Outcomes, Registry, make_work, output_of
from timeball.errors import InvalidInput, TargetError
from timeball.executors.function.context import RunContext
from timeball.executors.function.endings import Fail, Retry, Skip
from timeball.executors.function.executor import FunctionExecutor
from timeball.model.run import Outcome
from timeball.model.states import State

Runner = Callable[..., Outcome]


@pytest.fixture
def table() -> FunctionTable:
    return FunctionTable()


@pytest.fixture
def executor(table: FunctionTable) -> Iterator[FunctionExecutor]:
    made = FunctionExecutor(table, output_bytes_max=10_000, threads_max=4)
    yield made
    made.close(0.1)


@pytest.fixture
def run(table: FunctionTable, executor: FunctionExecutor) -> Runner:
    def call(function: Callable[..., Any], *, timeout: float | None = None, **args: Any) -> Outcome:
        name = f"{function.__name__}-{len(table.names())}"
        table.register(name, function)
        outcomes = Outcomes()
        work = make_work("function", {"name": name}, args=args, timeout=timeout)
        executor.submit([work], outcomes)
        return outcomes.wait(work)[0]

    return call


def test_a_sync_function_gets_its_arguments_and_its_result_is_kept(run: Runner) -> None:
    outcome = run(lambda a, b: {"sum": a + b}, a=1, b=2)
    assert (outcome.state, outcome.result) == (State.SUCCEEDED, '{"sum": 3}')


def test_an_async_function_gets_the_context(run: Runner) -> None:
    async def work(run: RunContext) -> str:
        run.log(f"{run.job} {run.attempt} {run.fence} {run.due_at:%Y}")
        return run.job

    outcome = run(work)
    assert outcome.result == '"a job"'
    assert output_of(outcome, "log") == "a job 1 42 2023\n"


@pytest.mark.parametrize(
    "error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseException("x")]
)
@pytest.mark.parametrize("is_async", [False, True])
def test_whatever_a_function_raises_is_a_failed_run(run: Runner, error: BaseException, is_async: bool) -> None:
    def sync_work() -> None:
        raise error

    async def async_work() -> None:
        raise error

    outcome = run(async_work if is_async else sync_work)
    assert (outcome.state, outcome.reason) == (State.FAILED, "exception")
    assert (outcome.error or "").startswith(type(error).__name__)
    assert "test_functions.py" in output_of(outcome, "traceback")
    assert run(lambda: "the next one runs").result == '"the next one runs"'


def test_a_function_that_has_nothing_to_do_says_so(run: Runner) -> None:
    def work() -> None:
        raise Skip("no new invoices")

    async def async_work() -> None:
        raise Skip("x" * 500)

    outcome = run(work)
    assert (outcome.state, outcome.reason, outcome.error) == (State.SKIPPED, "no new invoices", None)
    long = run(async_work)
    assert (long.state, long.reason, output_of(long, "log")) == (State.SKIPPED, "x" * 200, "x" * 500 + "\n")


@pytest.mark.parametrize(("after", "wait_us"), [(None, None), (1.5, 1_500_000), (dt.timedelta(minutes=2), 120_000_000)])
def test_a_function_asks_to_be_tried_again(run: Runner, after: Any, wait_us: int | None) -> None:
    def work() -> None:
        raise Retry("the bank is closed", after=after)

    outcome = run(work)
    assert (outcome.state, outcome.reason, outcome.error) == (State.FAILED, "retry", "the bank is closed")
    assert (outcome.retry, outcome.retry_after_us) == (True, wait_us)


@pytest.mark.parametrize(("retry", "told"), [(True, None), (False, False)])
def test_a_function_says_whether_trying_again_would_help(run: Runner, retry: bool, told: bool | None) -> None:
    def work() -> None:
        try:
            raise KeyError("account")
        except KeyError as error:
            raise Fail("no such account", retry=retry) from error

    outcome = run(work)
    assert (outcome.state, outcome.reason, outcome.error) == (State.FAILED, "fail", "no such account")
    assert outcome.retry is told
    assert "KeyError: 'account'" in output_of(outcome, "traceback")


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), dt.timedelta(days=-1)])
def test_a_wait_that_never_ends_is_no_wait(after: Any) -> None:
    with pytest.raises(ValueError, match="seconds from 0"):
        Retry(after=after)


def test_cancelled_error_of_its_own_is_a_failure(run: Runner) -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    assert run(work).state is State.FAILED


def test_an_async_time_out_cancels_the_function(run: Runner) -> None:
    cancelled = threading.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    outcome = run(work, timeout=0.1)
    assert (outcome.state, outcome.reason) == (State.TIMED_OUT, "timeout")
    assert cancelled.wait(5)


def test_a_sync_time_out_is_told_at_once_and_sets_the_flag(run: Runner) -> None:
    seen = threading.Event()

    def work(run: RunContext) -> None:
        if run.wait_cancelled(20):
            seen.set()

    assert run(work, timeout=0.1).state is State.TIMED_OUT
    assert seen.wait(5)


def test_threads_that_hang_past_their_time_out_do_not_eat_the_pool(run: Runner) -> None:
    release = threading.Event()
    for _ in range(4):
        assert run(lambda: release.wait(30), timeout=0.05).state is State.TIMED_OUT
    assert run(lambda: "free").result == '"free"'
    release.set()


def test_an_endless_loop_in_a_thread_lets_others_keep_their_time(run: Runner) -> None:
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            pass

    outcome = run(work, timeout=0.3)
    assert outcome.state is State.TIMED_OUT
    assert run(lambda: 1).state is State.SUCCEEDED
    ended.set()


def test_an_async_function_that_blocks_its_loop_does_not_stop_the_others(
    table: FunctionTable, executor: FunctionExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    async def blocks() -> None:
        release.wait(30)

    async def quick() -> str:
        return "done"

    table.register("blocks", blocks)
    table.register("quick", quick)
    outcomes = Outcomes()
    works = [make_work("function", {"name": name}) for name in ("blocks", "quick", "quick")]
    executor.submit(works, outcomes)
    assert [outcome.result for outcome in outcomes.wait(*works[1:])] == ['"done"', '"done"']
    assert "blocks its event loop" in caplog.text
    release.set()
    assert outcomes.wait(*works)[0].state is State.SUCCEEDED


def test_a_cancelled_async_function_ends(table: FunctionTable, executor: FunctionExecutor) -> None:
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    table.register("work", work)
    outcomes = Outcomes()
    item = make_work("function", {"name": "work"})
    executor.submit([item], outcomes)
    assert begun.wait(5)
    assert executor.cancel(item.run_id, "by anna")
    outcome = outcomes.wait(item)[0]
    assert (outcome.state, outcome.error) == (State.CANCELLED, "by anna")


def test_a_result_that_is_not_json_is_dropped_with_a_note(run: Runner) -> None:
    outcome = run(object)
    assert (outcome.state, outcome.result) == (State.SUCCEEDED, None)
    assert "not kept" in output_of(outcome, "log")


def test_a_storm_of_log_lines_stays_within_the_bound(run: Runner) -> None:
    def work(run: RunContext) -> None:
        for number in range(100_000):
            run.log(f"line {number}")

    output = run(work).outputs[0]
    assert len(output.text) < 11_000
    assert output.bytes_total > 1_000_000
    assert output.text.endswith("line 99999\n")


def test_an_unknown_function_is_refused_with_a_suggestion(table: FunctionTable, executor: FunctionExecutor) -> None:
    table.register("report", lambda: None)
    with pytest.raises(TargetError, match="did you mean 'report'"):
        executor.check({"name": "reprot"}, {})


def test_arguments_that_do_not_fit_are_refused_by_name(table: FunctionTable, executor: FunctionExecutor) -> None:
    table.register("report", lambda run, day: None)
    executor.check({"name": "report"}, {"day": 1})
    with pytest.raises(TargetError, match="'dya'"):
        executor.check({"name": "report"}, {"day": 1, "dya": 2})


def test_a_name_is_taken_once(table: FunctionTable) -> None:
    table.register("report", print)
    table.register("report", print)
    with pytest.raises(InvalidInput, match="registered already"):
        table.register("report", sys.exit)


def test_work_that_may_not_run_here_is_a_failed_outcome(executor: FunctionExecutor) -> None:
    outcomes = Outcomes()
    works = [make_work("function", {"name": "gone"}), make_work("mail", {})]
    Registry([executor]).submit(works, outcomes)
    assert [(o.state, o.reason) for o in outcomes.wait(*works)] == [(State.FAILED, "target")] * 2


def test_ten_thousand_coroutines_in_a_batch_each_report_once(table: FunctionTable, executor: FunctionExecutor) -> None:
    async def nothing() -> None:
        return None

    table.register("nothing", nothing)
    outcomes = Outcomes()
    works = [make_work("function", {"name": "nothing"}) for _ in range(10_000)]
    executor.submit(works, outcomes)
    assert {outcome.state for outcome in outcomes.wait(*works)} == {State.SUCCEEDED}


@pytest.mark.parametrize("seed", range(5))
def test_in_every_race_of_end_time_out_and_cancel_one_outcome_is_told(
    table: FunctionTable, executor: FunctionExecutor, seed: int
) -> None:
    chance = random.Random(seed)

    async def async_work(seconds: float) -> None:
        await asyncio.sleep(seconds)

    def sync_work(run: RunContext, seconds: float) -> None:
        run.wait_cancelled(seconds)

    table.register("async", async_work)
    table.register("sync", sync_work)
    outcomes = Outcomes()
    works = [
        make_work(
            "function",
            {"name": chance.choice(["async", "sync"])},
            args={"seconds": chance.uniform(0, 0.02)},
            timeout=0.01,
        )
        for _ in range(200)
    ]
    executor.submit(works, outcomes)
    for work in chance.sample(works, 100):
        executor.cancel(work.run_id, "race")
    outcomes.wait(*works)
    assert executor.running() == ()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(("code", "status"), [(None, 0), (7, 7), ("words", 1)])
def test_a_child_that_a_function_forks_ends_where_its_function_ends(run: Runner, code: Any, status: int) -> None:
    def work() -> int:
        child = os.fork()
        if child == 0:
            sys.exit(code)
        for _ in range(200):
            ended, found = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(found)
            threading.Event().wait(0.05)
        os.kill(child, signal.SIGKILL)
        raise AssertionError("the child lives on")

    assert run(work).result == str(status)
