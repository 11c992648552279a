"""Jitter on whole instances: the tick stays, its run waits for the instant that was drawn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import HostClock
from tests.store.scene import SECOND
from tests.store.stepped import Bench
from timeball.policy.jitter import ready_at
from timeball.service.audit import audit


@pytest.fixture
def bench(with_schema: None, database_url: str, host_clock: HostClock) -> Iterator[Bench]:
    made = Bench(database_url, host_clock)
    yield made
    made.close()


def test_a_run_starts_at_the_instant_that_jitter_chose_and_its_tick_stays(bench: Bench) -> None:
    bench.set_clock("2030-06-05T12:00:50Z")
    one = bench.instance("one")
    job = bench.jobs.create("j", bench.define("* * * * *", jitter_seconds=8, misfire_after_seconds=1))
    bench.round(one)
    (run,) = bench.runs("j")
    chosen = ready_at(job.definition, job.id, run.due_at)
    assert run.ready_at == chosen
    assert run.due_at < chosen <= run.due_at + 8 * SECOND
    bench.set_clock(chosen - SECOND // 2)
    bench.round(one)
    assert bench.calls == []
    bench.set_clock(chosen + SECOND // 100)
    bench.round(one)
    assert bench.calls == [("j", run.due_at)]
    bench.set_clock(run.due_at + 15 * SECOND)
    bench.round(one)
    report = audit(bench.store, "default")
    assert report.clean, report.to_json()
    assert (report.ticks, report.missed) == (1, 0)
