"""Rows of `tests/cases/behaviour.jsonl` about the lease, doubled ticks and clocks, as steps of whole instances.

Asserted elsewhere: CLOCK-006 (a cursor moves only with its rows) by `test_behaviour_rows.py::test_miss_006_…` too,
CLOCK-007 by the cases DST-039 of `tests/schedule/test_real_faults.py`, DUP-017 (a skewed host is told) by
`timeball doctor`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import HostClock
from tests.store.scene import SECOND
from tests.store.stepped import Bench, eventually
from timeball.clock import Sample, parse_instant
from timeball.engine.engine import Engine
from timeball.engine.loop import Loop
from timeball.errors import ClaimLost, LeaseRowMissing
from timeball.events.bus import Bus
from timeball.events.facts import LoopFailing
from timeball.service.audit import audit
from timeball.store.migrate import upgrade_schema

MINUTE = 60 * SECOND
DAY = 86_400 * SECOND
WEDNESDAY = "2030-06-05T12:00:30Z"
PAUSE_SECONDS_MAX = 3600


@pytest.fixture
def apart(with_schema: None, postgres_url: str) -> Iterator[Bench]:
    """A database on a host of its own: what the instances' wall clocks say can differ from it."""
    made = Bench(postgres_url, HostClock())
    yield made
    made.close()


def instance_off_by(bench: Bench, seconds: int, name: str) -> Engine:
    """An instance on a host whose wall clock is wrong."""
    clock = HostClock()
    clock.move(seconds * SECOND)
    bench._host_clock = clock
    return bench.instance(name)


def fire(bench: Bench, tick: int, *engines: Engine) -> None:
    """Let a tick come: a round shortly before it, and one right after it."""
    bench.set_clock(tick - SECOND)
    bench.round(*engines)
    bench.set_clock(tick + SECOND // 2)
    bench.round(*engines)


def test_lease_004_a_leader_that_was_cut_off_cannot_extend_and_plans_nothing_after_the_takeover(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    a, b = bench.instance("a"), bench.instance("b")
    a.lease.step()
    bench.move_clock(11 * SECOND)  # nothing of a reaches the database, and its own clock has not moved
    b.member.step()
    b.lease.step()
    taken = bench.store.leases.read("default")
    assert (taken.holder, taken.epoch) == (b.member.id, 2)
    bench.jobs.create("job", bench.define("* * * * * *"))
    assert a.lease.term() is not None  # healed: it believes, and the database does not
    with pytest.raises(ClaimLost):
        a.planner.step()
    assert bench.runs("job") == []
    a.lease.step()
    assert a.lease.term() is None
    a.planner.step()
    assert bench.runs("job") == []
    assert bench.store.leases.read("default").holder == b.member.id
    for _ in range(3):
        bench.round(b, a)
        bench.move_clock(2 * SECOND)
    bench.round(b, a)
    assert len(bench.calls) == len(set(bench.calls)) > 0
    assert audit(bench.store, "default").duplicates == 0


def test_lease_007_a_host_whose_clock_is_ahead_declares_nobody_dead(apart: Bench) -> None:
    apart.set_clock(WEDNESDAY)
    ahead = instance_off_by(apart, 30, "ahead")
    owner = instance_off_by(apart, 0, "owner")
    ahead.lease.step()
    apart.jobs.create("job", apart.define("none", "long"))
    run_id = apart.jobs.trigger("job")
    apart.round(owner)
    assert apart.begun.acquire(timeout=20)
    for _ in range(4):
        apart.move_clock(2 * SECOND)
        apart.round(ahead)  # the owner is silent, and within its time
    assert apart.store.runs.get("default", run_id).state == "running"
    assert not apart.store.events.latest("default", kind="instance.expired")
    apart.move_clock(4 * SECOND)  # by the database's clock its time is over now
    apart.round(ahead)
    assert apart.store.runs.get("default", run_id).state == "lost"
    assert [event.instance_id for event in apart.store.events.latest("default", kind="instance.expired")] == [
        owner.member.id
    ]
    assert len(apart.calls) == 1


def test_dup_003_three_instances_run_ten_thousand_due_ticks_once_each(bench: Bench) -> None:
    bench.set_clock("2030-06-05T12:00:00Z")
    names = [f"job-{number}" for number in range(10)]
    for name in names:
        bench.jobs.create(
            name,
            bench.define(
                "* * * * * *", misfire="run_all", catchup_max=1000, overlap="allow", end_at="2030-06-05T12:16:40Z"
            ),
        )
    bench.set_clock("2030-06-05T12:17:00Z")
    first = {job.cursor_at // SECOND for job in bench.jobs.list()}
    assert len(first) == 1
    wanted = sum(bench.jobs.schedule_of(job).count_between(job.cursor_at, bench.now()) for job in bench.jobs.list())
    engines = [bench.instance(f"instance-{number}", runs_max=400) for number in range(3)]
    for engine in engines:
        engine.start()
    try:
        eventually(lambda: len(bench.calls) >= wanted or bool(bench.two_lived), 90)
    finally:
        stops = [threading.Thread(target=engine.stop, args=(20,)) for engine in engines]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join(60)
    assert wanted >= 9_900
    assert Counter(bench.calls).most_common(1)[0][1] == 1
    assert len(bench.calls) == wanted
    report = audit(bench.store, "default")
    assert (report.duplicates, report.missed, report.violations) == (0, 0, [])


def test_dup_004_without_the_lease_row_nobody_leads_everybody_says_so_and_nothing_runs_twice(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    a, b = bench.instance("a"), bench.instance("b")
    bench.jobs.create("job", bench.define("* * * * * *"))
    bench.round(a, b)
    planned = len(bench.runs("job"))
    bench.administer("DELETE FROM timeball_lease")
    with pytest.raises(ClaimLost):  # before its next renewal too
        for _ in range(10):
            bench.move_clock(8 * SECOND)
            for engine in (a, b):
                engine.member.step()
            a.planner.step()
    facts: list[Any] = []
    bus = Bus()
    bus.subscribe(facts.append)
    for engine in (a, b):
        with pytest.raises(LeaseRowMissing, match="the lease row of namespace 'default' is missing"):
            engine.lease.step()
        Loop("lease", engine.lease.step, bus)._pass()
        assert engine.lease.term() is None
        engine.planner.step()
        engine.reaper.step()
        engine.claimer.step()
        engine.starter.step()
    assert [(type(fact), "is missing" in fact.error) for fact in facts] == [(LoopFailing, True)] * 2
    assert len(bench.runs("job")) == planned
    upgrade_schema(bench.store.database, "default", reseed=True)
    for _ in range(4):
        bench.round(a, b)
        bench.move_clock(2 * SECOND)
    assert [engine.lease.term() is not None for engine in (a, b)].count(True) == 1
    assert len(bench.runs("job")) > planned
    assert len(bench.calls) == len(set(bench.calls)) > 0


def test_dup_006_an_instance_that_is_late_does_not_run_a_short_tick_again(bench: Bench) -> None:
    tick = parse_instant("2030-06-05T12:01:00Z")
    bench.set_clock(WEDNESDAY)
    a, b = bench.instance("a"), bench.instance("b")
    bench.jobs.create("job", bench.define("* * * * *"))
    bench.round(a, b)
    fire(bench, tick, a)
    assert [run.state for run in bench.runs("job") if run.due_at == tick] == ["succeeded"]
    bench.hand_over(a, b)
    for behind in range(4):
        at = b.clock.monotonic()
        b.clock.adopt(Sample(database_us=tick + SECOND // 2 - 3 * SECOND + behind * SECOND, sent_us=at, received_us=at))
        for part in (b.planner, b.reaper, b.claimer, b.starter, b.runner):
            part.step()
    bench.move_clock(3 * SECOND)
    bench.round(a, b)
    eventually(lambda: not b.runner.load())
    assert bench.calls == [("job", tick)]
    runs = [run for run in bench.runs("job") if run.due_at <= tick]
    assert [(run.state, run.attempt, run.instance) for run in runs] == [("succeeded", 1, "a")]


def test_dup_017_four_hosts_whose_clocks_differ_run_a_minutely_job_once_a_minute(apart: Bench) -> None:
    begin = parse_instant("2030-06-05T12:00:00Z")
    apart.set_clock(begin + 30 * SECOND)
    engines = [instance_off_by(apart, off, f"off-{off}") for off in (0, 20, 45, -30)]
    apart.jobs.create("job", apart.define("* * * * *"))
    apart.round(*engines)
    ticks = [begin + minute * MINUTE for minute in range(1, 11)]
    for number, tick in enumerate(ticks):
        fire(apart, tick, *engines[number % 4 :], *engines[: number % 4])
    assert apart.calls == [("job", tick) for tick in ticks]
    runs = [run for run in apart.runs("job") if run.due_at <= ticks[-1]]
    assert all(0 <= (run.started_at or 0) - run.due_at < 30 * SECOND for run in runs)
    assert len({run.instance for run in runs}) > 1
    report = audit(apart.store, "default")
    assert (report.ticks, report.duplicates, report.missed, report.violations) == (10, 0, 0, [])


def test_clock_005_a_wait_of_a_year_neither_storms_nor_overflows(bench: Bench) -> None:
    tick = parse_instant("2031-01-01T00:00:00Z")
    bench.set_clock("2030-01-02T00:00:00Z")
    one = bench.instance("one")
    bench.jobs.create("yearly", bench.define("0 0 1 1 *", timeout_seconds=364 * 86_400))
    for _ in range(15):  # 2^31 ms are 24.9 days
        for loop in one._loops.values():
            for _ in range(20):
                pause = loop._step()
                assert 0 <= pause <= PAUSE_SECONDS_MAX < threading.TIMEOUT_MAX, loop.name
                if pause > 0:
                    break
        bench.move_clock(24 * DAY)
    assert bench.calls == []
    assert bench.runs("yearly") == []
    fire(bench, tick, one)
    assert bench.calls == [("yearly", tick)]
    assert bench.runs("yearly")[-1].state == "succeeded"


def test_clock_006_a_daily_job_beside_a_monthly_one_runs_each_day(bench: Bench) -> None:
    begin = parse_instant("2030-06-05T09:00:00Z")
    bench.set_clock(begin - 30 * SECOND)
    one = bench.instance("one")
    bench.jobs.create("monthly", bench.define("0 9 4 * *"))
    bench.jobs.create("daily", bench.define("0 9 * * *"))
    created = {job.name: job.cursor_at for job in bench.jobs.list()}
    bench.round(one)
    days = [begin + day * DAY for day in range(4)]
    for tick in days:
        fire(bench, tick, one)
        for hours in (6, 12, 18):
            bench.set_clock(tick + hours * 60 * MINUTE)
            bench.round(one)
            for job in bench.jobs.list():
                passed = bench.jobs.schedule_of(job).count_between(created[job.name], job.cursor_at)
                assert len(bench.runs(job.name)) == passed
    assert bench.calls == [("daily", tick) for tick in days]
    assert bench.jobs.get("monthly").next_due_at == parse_instant("2030-07-04T09:00:00Z")
