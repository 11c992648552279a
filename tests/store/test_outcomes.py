"""What a function raises, from the call to the ledger: skipped, tried again, never again."""

from __future__ import annotations

import pytest

from tests.store.stepped import Bench, eventually
from timeball.engine.engine import Engine
from timeball.executors.function.endings import Fail, Retry, Skip
from timeball.model.job import Definition
from timeball.service.audit import audit
from timeball.store.runs import StoredRun

SECOND = 1_000_000


def made(bench: Bench, error: BaseException, **policies: object) -> Engine:
    """One instance, and a job whose only tick has come; its function raises."""

    def raises() -> None:
        raise error

    bench.functions.register("raises", raises)
    one = bench.instance("one")
    one.lease.step()
    bench.jobs.create("job", Definition.from_dict({**bench.define("none", "raises").to_dict(), **policies}))
    bench.jobs.trigger("job")
    return one


def ended(bench: Bench, *engines: Engine, state: str) -> StoredRun:
    def there() -> bool:
        bench.round(*engines)
        return bench.runs("job")[0].state == state

    eventually(there)
    return bench.runs("job")[0]


def test_a_skip_ends_the_run_as_skipped_with_its_words_and_is_not_tried_again(bench: Bench) -> None:
    one = made(bench, Skip("no new invoices \x00\ud800"), attempts_max=5, backoff_seconds=0)
    run = ended(bench, one, state="skipped")
    assert (run.reason, run.error, run.attempt) == ("no new invoices \\x00\\ud800", None, 1)
    assert run.begun_at is not None
    assert audit(bench.store, "default").clean


def test_a_scheduled_tick_that_its_function_skips_has_its_fate_and_cannot_be_put_back(bench: Bench) -> None:
    def raises() -> None:
        raise Skip("nothing to do")

    bench.functions.register("raises", raises)
    one = bench.instance("one")
    one.lease.step()
    bench.jobs.create("job", bench.define("@every 1s", "raises"))
    bench.round(one)
    bench.move_clock(2 * SECOND)

    def there() -> bool:
        bench.round(one)
        return any(run.state == "skipped" for run in bench.runs("job"))

    eventually(there)
    skipped = [run for run in bench.runs("job") if run.state == "skipped"]
    report = audit(bench.store, "default")
    assert report.clean
    assert report.skipped == len(skipped) > 0
    assert bench.store.skips.coming(bench.jobs.get("job").id, after=0) == {}


def test_a_retry_waits_as_the_function_says_and_ends_with_the_attempts(bench: Bench) -> None:
    one = made(bench, Retry("not yet", after=60), attempts_max=2, retry_on="signal")
    run = ended(bench, one, state="planned")
    first = bench.store.runs.attempts(run.id)[0]
    assert (run.attempt, first.state, first.reason, first.error) == (2, "failed", "retry", "not yet")
    assert run.ready_at - (first.ended_at or 0) == 60 * SECOND
    bench.move_clock(61 * SECOND)
    one.member.step()
    run = ended(bench, one, state="failed")
    assert (run.attempt, run.error) == (2, "not yet; it is not tried again: attempts_max is 2")


@pytest.mark.parametrize(("error", "attempts"), [(Fail("gone", retry=False), 1), (Fail("gone"), 2), (ValueError(), 2)])
def test_a_failure_that_trying_again_would_not_help_is_the_last(
    bench: Bench, error: BaseException, attempts: int
) -> None:
    one = made(bench, error, attempts_max=2, backoff_seconds=0)
    assert ended(bench, one, state="failed").attempt == attempts


def test_a_kind_of_end_that_the_job_does_not_name_is_the_last(bench: Bench) -> None:
    one = made(bench, ValueError(), attempts_max=2, backoff_seconds=0, retry_on=["signal", "timed_out"])
    assert ended(bench, one, state="failed").attempt == 1
