"""`@after`: each tick follows from the end of the run before it, whatever that end was, and whoever leads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.conftest import HostClock
from tests.store.scene import SECOND
from tests.store.stepped import Bench
from timeball.clock import parse_instant
from timeball.engine.engine import Engine
from timeball.service.audit import Report, audit
from timeball.store.database import sql
from timeball.store.runs import StoredRun

BEGIN = "2030-06-05T12:00:00Z"


@pytest.fixture
def bench(with_schema: None, database_url: str, host_clock: HostClock) -> Iterator[Bench]:
    made = Bench(database_url, host_clock)
    made.set_clock(BEGIN)
    yield made
    made.close()


def live(bench: Bench, seconds: int, *engines: Engine) -> None:
    for _ in range(seconds):
        bench.move_clock(SECOND)
        bench.round(*engines)


def chain(bench: Bench) -> list[StoredRun]:
    return sorted(bench.runs("j"), key=lambda run: run.due_at)


def clean(bench: Bench) -> Report:
    report = audit(bench.store, "default")
    assert report.clean, report.to_json()
    return report


def test_each_tick_lies_the_delay_after_the_end_of_the_run_before_it(bench: Bench) -> None:
    one = bench.instance("one")
    job = bench.jobs.create("j", bench.define("@after 5s"))
    live(bench, 30, one)
    runs = [run for run in chain(bench) if run.state == "succeeded"]
    assert len(runs) >= 4
    assert runs[0].due_at == job.created_at + 5 * SECOND
    for before, run in itertools.pairwise(runs):
        assert before.ended_at is not None
        assert run.due_at == before.ended_at + 5 * SECOND
    assert clean(bench).ticks >= 4


def test_nothing_is_due_while_the_run_goes_on_however_long_and_whoever_leads(bench: Bench) -> None:
    one, two = bench.instance("one"), bench.instance("two")
    bench.jobs.create("j", bench.define("@after 2s", "long"))
    live(bench, 10, one, two)
    assert len(chain(bench)) == 1
    leader, other = (one, two) if one.lease.term() is not None else (two, one)
    bench.hand_over(leader, other)
    live(bench, 30, one, two)
    assert [run.state for run in chain(bench)] == ["running"]
    bench.release.set()
    live(bench, 10, one, two)
    runs = chain(bench)
    assert len(runs) > 1
    assert runs[0].ended_at is not None
    assert runs[1].due_at == runs[0].ended_at + 2 * SECOND
    clean(bench)


def test_an_edit_in_mid_run_counts_from_the_end_of_that_run(bench: Bench) -> None:
    one = bench.instance("one")
    bench.jobs.create("j", bench.define("@after 2s", "long"))
    live(bench, 6, one)
    bench.jobs.edit("j", bench.define("@after 3s", "long", misfire_after_seconds=1))
    live(bench, 40, one)
    assert len(chain(bench)) == 1
    assert bench.jobs.next_ticks("j", 5)[1] == []
    bench.release.set()
    live(bench, 6, one)
    runs = chain(bench)
    assert runs[0].ended_at is not None
    assert runs[1].due_at == runs[0].ended_at + 3 * SECOND
    clean(bench)


def test_a_stop_ends_the_chain_and_a_start_begins_it_anew(bench: Bench) -> None:
    one = bench.instance("one")
    bench.jobs.create("j", bench.define("@after 5s"))
    live(bench, 12, one)
    bench.jobs.stop("j")
    ran = len(bench.calls)
    live(bench, 20, one)
    assert len(bench.calls) == ran
    started = bench.jobs.start("j").at
    live(bench, 8, one)
    assert len(bench.calls) == ran + 1
    assert started + 5 * SECOND <= bench.calls[-1][1] <= started + 5 * SECOND + SECOND // 100
    clean(bench)


@pytest.mark.parametrize("on_lost", ["fail", "rerun"])
def test_a_lost_run_has_an_end_too(bench: Bench, on_lost: str) -> None:
    one, two = bench.instance("one"), bench.instance("two")
    bench.jobs.create("j", bench.define("@after 5s", "long", on_lost=on_lost))
    live(bench, 8, one, two)
    (run,) = chain(bench)
    bench.release.set()
    survivor = two if run.instance == "one" else one
    live(bench, 60, survivor)
    runs = chain(bench)
    assert runs[0].state == ("lost" if on_lost == "fail" else "succeeded")
    assert len(runs) > 1
    assert runs[0].ended_at is not None
    assert runs[1].due_at == runs[0].ended_at + 5 * SECOND
    clean(bench)


@pytest.mark.parametrize(("misfire", "first"), [("run_once", "succeeded"), ("skip", "missed")])
def test_after_an_hour_without_instances_the_chain_goes_on(bench: Bench, misfire: str, first: str) -> None:
    one = bench.instance("one")
    bench.jobs.create("j", bench.define("@after 5s", misfire=misfire))
    live(bench, 8, one)
    runs = [run for run in chain(bench) if run.state == "succeeded"]
    bench.store.database.read(lambda tx: tx.one(sql("SELECT 1")))
    with bench.store.database.transaction() as tx:  # what was planned ahead is gone too: the instances died before it
        tx.count(sql("DELETE FROM timeball_run WHERE state IN ('planned', 'claimed')"))
        tx.count(sql("UPDATE timeball_job SET cursor_at = :at, next_due_at = :at + 1"), at=runs[-1].due_at)
    bench.move_clock(3600 * SECOND)
    two = bench.instance("two")
    live(bench, 40, two)
    after = [run for run in chain(bench) if run.due_at > runs[-1].due_at]
    assert after[0].state == first
    assert len([run for run in after if run.state == "succeeded"]) >= 3
    clean(bench)


def test_the_chain_ends_with_end_at(bench: Bench) -> None:
    one = bench.instance("one")
    bench.jobs.create("j", bench.define("@after 5s", end_at="2030-06-05T12:00:13Z"))
    live(bench, 40, one)
    assert {run.state for run in chain(bench)} == {"succeeded"}
    assert len(chain(bench)) == 2
    assert bench.jobs.get("j").next_due_at is None
    clean(bench)


def test_the_first_tick_is_start_at(bench: Bench) -> None:
    one = bench.instance("one")
    bench.jobs.create("j", bench.define("@after 5s", start_at="2030-06-05T12:00:10Z"))
    live(bench, 20, one)
    assert chain(bench)[0].due_at == parse_instant("2030-06-05T12:00:10Z")
    clean(bench)


def test_the_audit_sees_a_run_before_its_time_and_a_chain_that_broke(bench: Bench) -> None:
    one = bench.instance("one")
    bench.jobs.create("j", bench.define("@after 5s"))
    live(bench, 30, one)
    runs = [run for run in chain(bench) if run.state == "succeeded"]
    with bench.store.database.transaction() as tx:
        tx.count(sql("UPDATE timeball_run SET due_at = due_at - 1000000 WHERE id = :id"), id=runs[2].id)
        tx.count(sql("DELETE FROM timeball_run WHERE state IN ('planned', 'claimed')"))
    assert [v.kind for v in audit(bench.store, "default").violations] == ["too-early"]
    with bench.store.database.transaction() as tx:
        tx.count(sql("UPDATE timeball_job SET next_due_at = NULL"))
    live(bench, 100, one)
    assert {v.kind for v in audit(bench.store, "default").violations} == {"too-early", "without-fate"}


def test_the_next_tick_that_is_shown_is_the_planned_one(bench: Bench) -> None:
    one = bench.instance("one")
    bench.jobs.create("j", bench.define("@after 5s"))
    bench.jobs.create("often", bench.define("*/10 * * * * *"))
    bench.jobs.create("off", bench.define("*/10 * * * * *"), active=False)
    live(bench, 2, one)
    shown = {job.name: job.next_due_at for job in bench.jobs.with_next_tick(bench.jobs.list())}
    assert shown == {"j": chain(bench)[0].due_at, "often": parse_instant("2030-06-05T12:00:10Z"), "off": None}
    stored = bench.jobs.get("often").next_due_at
    assert stored is not None
    assert stored > parse_instant("2030-06-05T12:00:30Z")
