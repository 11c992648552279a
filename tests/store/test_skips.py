"""One coming tick is taken out and put back, on whole instances and a real database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import HostClock
from tests.store.scene import HOUR, SECOND
from tests.store.stepped import Bench
from timeball.clock import parse_instant
from timeball.engine.engine import Engine
from timeball.errors import Conflict, InvalidInput
from timeball.executors.registry import Registry
from timeball.service.audit import audit
from timeball.service.ticks import TickService

NOON = "2030-06-05T12:00:00Z"


@pytest.fixture
def bench(with_schema: None, database_url: str, host_clock: HostClock) -> Iterator[Bench]:
    made = Bench(database_url, host_clock)
    made.set_clock("2030-06-05T11:59:50Z")
    yield made
    made.close()


def service(bench: Bench) -> TickService:
    registry: Registry = bench.jobs._registry
    return TickService(bench.store, registry, namespace="default", actor="anna")


def run_until(bench: Bench, engine: Engine, instant: str) -> None:
    while bench.now() < parse_instant(instant):
        bench.move_clock(SECOND)
        bench.round(engine)


def ran(bench: Bench) -> list[int]:
    return [(due - parse_instant(NOON)) // SECOND for _, due in bench.calls]


def test_a_planned_tick_that_is_skipped_does_not_run_and_runs_when_it_is_put_back(bench: Bench) -> None:
    one, ticks = bench.instance("one"), service(bench)
    job = bench.jobs.create("j", bench.define("*/5 * * * * *"))
    bench.round(one)
    for second in ("00", "05"):
        change, _ = ticks.skip("j", f"2030-06-05 12:00:{second}")
        assert change.changed
        assert change.run_id is not None
    assert not ticks.skip("j", "2030-06-05T12:00:05Z")[0].changed
    assert list(ticks.skipped(job).values()) == ["skipped by anna"] * 2
    assert ticks.unskip("j", "2030-06-05T14:00:05+02:00")[0].changed
    with pytest.raises(Conflict, match="nobody has skipped"):
        ticks.unskip("j", "2030-06-05T12:00:05Z")
    run_until(bench, one, "2030-06-05T12:00:12Z")
    assert [second for second in ran(bench) if second >= 0] == [5, 10]
    run_until(bench, one, "2030-06-05T12:00:30Z")
    report = audit(bench.store, "default")
    assert report.clean, report.to_json()
    assert (report.skipped, report.missed) == (1, 0)
    with pytest.raises(Conflict, match="has passed"):
        ticks.unskip("j", NOON)


def test_a_tick_beyond_the_horizon_can_be_skipped_and_put_back_before_it_is_planned(bench: Bench) -> None:
    one, ticks = bench.instance("one"), service(bench)
    bench.jobs.create("j", bench.define("0 * * * *"))
    bench.round(one)
    assert ticks.skip("j", "2030-06-05T13:00:00Z")[0].changed
    assert ticks.skip("j", "2030-06-05T14:00:00Z")[0].changed
    assert ticks.unskip("j", "2030-06-05T14:00:00Z")[0].run_id is None
    for hour in (12, 13, 14):
        bench.set_clock(f"2030-06-05T{hour}:00:00Z")
        bench.move_clock(-5 * SECOND)
        for _ in range(3):
            run_until(bench, one, f"2030-06-05T{hour}:00:02Z")
    assert ran(bench) == [0, 2 * HOUR // SECOND]
    bench.move_clock(20 * SECOND)
    assert audit(bench.store, "default").clean


def test_a_skipped_tick_does_not_start_though_an_instance_has_claimed_it(bench: Bench) -> None:
    one, ticks = bench.instance("one"), service(bench)
    bench.jobs.create("j", bench.define("0 * * * *"))
    bench.round(one)
    bench.set_clock("2030-06-05T11:59:59Z")
    one.member.step()
    one.claimer.step()
    assert len(one.held) == 1
    assert ticks.skip("j")[1] == parse_instant(NOON)
    run_until(bench, one, "2030-06-05T12:00:03Z")
    assert bench.calls == []
    assert [run.state for run in bench.runs("j")] == ["skipped"]


def test_a_run_that_has_begun_cannot_be_skipped(bench: Bench) -> None:
    one, ticks = bench.instance("one", start_lead_max_seconds=1.0), service(bench)
    bench.jobs.create("j", bench.define("0 * * * *", "long"))
    bench.round(one)
    bench.set_clock("2030-06-05T11:59:59.200Z")
    one.member.step()
    one.claimer.step()
    one.starter._start(one.held.pop_until(bench.now() + HOUR, 10), bench.now())
    with pytest.raises(Conflict, match="is running already"):
        ticks.skip("j", NOON)
    bench.release.set()


def test_an_edit_after_a_skip_keeps_the_ticks_before_it(bench: Bench) -> None:
    one, ticks = bench.instance("one"), service(bench)
    bench.jobs.create("j", bench.define("*/5 * * * * *"))
    bench.round(one)
    ticks.skip("j", "2030-06-05T12:00:10Z")
    bench.jobs.edit("j", bench.define("*/4 * * * * *"))
    run_until(bench, one, "2030-06-05T12:00:30Z")
    assert [second for second in ran(bench) if second >= 0][:4] == [0, 4, 8, 12]
    report = audit(bench.store, "default")
    assert report.clean, report.to_json()


def test_what_cannot_be_skipped_is_said(bench: Bench) -> None:
    ticks = service(bench)
    bench.jobs.create("j", bench.define("0 12 * * *", timezone="Europe/Berlin"))
    with pytest.raises(InvalidInput, match=r"no tick at that instant .*2030-06-06 12:00:00\+02:00"):
        ticks.skip("j", "2030-06-06 11:00")
    with pytest.raises(InvalidInput, match="tick: 'tomorrow' is not an instant"):
        ticks.skip("j", "tomorrow")
    with pytest.raises(InvalidInput, match="has passed"):
        ticks.skip("j", "2030-06-04 12:00")
    bench.jobs.stop("j")
    with pytest.raises(Conflict, match="is stopped"):
        ticks.skip("j")


def test_the_next_tick_is_skipped_when_none_is_named_and_then_the_one_after_it(bench: Bench) -> None:
    ticks = service(bench)
    bench.jobs.create("j", bench.define("0 * * * *"))
    first, second = ticks.skip("j")[1], ticks.skip("j")[1]
    assert (first, second) == (parse_instant(NOON), parse_instant(NOON) + HOUR)
