"""Faults of other schedulers as steps of whole instances on a real database: rows of `tests/cases/behaviour.jsonl`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import HostClock
from tests.store.scene import HOUR, SECOND
from tests.store.stepped import Bench, eventually
from timeball.clock import parse_instant
from timeball.engine.engine import Engine
from timeball.engine.loop import BACKOFF_MAX_SECONDS, Loop
from timeball.errors import StoreError, Unavailable
from timeball.events.bus import Bus
from timeball.events.facts import LoopFailing, LoopRecovered
from timeball.service.audit import audit

MINUTE = 60 * SECOND
WEDNESDAY = "2030-06-05T12:00:30Z"
REFUSE_RUNS = {
    "sqlite": "CREATE TRIGGER refuse BEFORE INSERT ON timeball_run WHEN NEW.job_id = {job_id} "
    "BEGIN SELECT RAISE(ABORT, 'refused'); END",
    "postgresql": "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN RAISE EXCEPTION ''refused''; END'; CREATE TRIGGER refuse BEFORE INSERT ON timeball_run FOR EACH ROW "
    "WHEN (NEW.job_id = {job_id}) EXECUTE FUNCTION refuse()",
}
ALLOW_RUNS = {"sqlite": "DROP TRIGGER refuse", "postgresql": "DROP TRIGGER refuse ON timeball_run"}


@pytest.fixture
def bench(with_schema: None, database_url: str, host_clock: HostClock) -> Iterator[Bench]:
    made = Bench(database_url, host_clock)
    yield made
    made.close()


def test_lease_002_instances_of_one_host_and_name_are_different_holders_and_run_a_tick_once(bench: Bench) -> None:
    bench.set_clock("2030-06-05T06:59:50Z")
    first = [bench.instance() for _ in range(3)]
    assert len({engine.member.name for engine in first}) == 1
    bench.jobs.create("morning", bench.define("0 7 * * 1-5"))
    bench.round(*first)
    assert [engine.lease.term() is not None for engine in first] == [True, False, False]
    bench.set_clock("2030-06-05T06:59:58.500Z")
    bench.round(*first)  # one of them has the tick in hand, and all are killed
    again = [bench.instance() for _ in range(3)]
    assert len({engine.member.id for engine in first + again}) == 6
    for wait_us in (1 * SECOND, 4 * SECOND, 10 * SECOND, 10 * SECOND):
        bench.move_clock(wait_us)
        bench.round(*again)
    assert [run.state for run in bench.runs("morning")] == ["succeeded"]
    assert bench.calls == [("morning", parse_instant("2030-06-05T07:00:00Z"))]
    assert sum(engine.lease.term() is not None for engine in again) == 1
    assert bench.store.leases.read("default").epoch == 2


def test_dup_012_a_tick_fires_once_though_the_clock_passes_it_twice_and_the_leader_changes(bench: Bench) -> None:
    midnight = parse_instant("2030-06-05T00:00:00Z")
    bench.set_clock(midnight - 30 * SECOND)
    leader, other = bench.instance("a"), bench.instance("b")
    ticks = {f"job-{n:02}": midnight + n // 3 * 6 * MINUTE for n in range(60)}
    for name, tick in ticks.items():
        minutes = (tick - midnight) // MINUTE
        bench.jobs.create(name, bench.define(f"{minutes % 60} {minutes // 60} * * *"))
    bench.round(leader, other)
    for tick in sorted(set(ticks.values())):
        bench.set_clock(tick - 1 * SECOND)
        bench.round(leader, other)
        bench.set_clock(tick + SECOND // 2)
        bench.round(leader, other)
        cursors = {job.name: job.cursor_at for job in bench.jobs.list()}
        bench.hand_over(leader, other)
        bench.move_clock(-1 * SECOND)
        bench.round(leader, other)
        assert all(job.cursor_at >= cursors[job.name] for job in bench.jobs.list())
        leader, other = other, leader
    assert Counter(bench.calls) == Counter(ticks.items())
    bench.move_clock(MINUTE)
    report = audit(bench.store, "default")
    assert (report.ticks, report.duplicates, report.missed, report.violations) == (60, 0, 0, [])
    assert bench.store.leases.read("default").epoch == 21


def test_lease_005_a_standby_that_is_refused_stays_standby_and_asks_less_and_less_often(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    leader, standby = bench.instance("leader"), bench.instance("standby")
    bench.jobs.create("job", bench.define("* * * * * *"))
    bench.round(leader, standby)
    bench.move_clock(10 * SECOND + 1)  # the leader is dead: its lease has just run out
    facts: list[object] = []
    bus = Bus()
    bus.subscribe(facts.append)
    loop = Loop("lease", standby.lease.step, bus)
    pauses: list[float] = []
    with bench.refusing():
        for _ in range(8):
            pauses.append(loop._pass())
            assert standby.lease.term() is None
            assert standby.planner.step() == 1.0
    assert pauses[:5] == sorted(pauses[:5])
    assert all(BACKOFF_MAX_SECONDS / 2 <= pause <= BACKOFF_MAX_SECONDS for pause in pauses[5:])
    assert [type(fact) for fact in facts] == [LoopFailing]
    before = bench.store.leases.read("default")
    assert (before.holder, before.epoch) == (leader.member.id, 1)
    loop._pass()
    term = standby.lease.term()
    assert term is not None
    assert (term.epoch, type(facts[-1])) == (2, LoopRecovered)
    bench.move_clock(5 * SECOND)
    bench.round(standby, leader)
    assert len(bench.calls) == len(set(bench.calls)) > 0


def test_miss_006_runs_and_cursors_are_committed_together_or_not_at_all(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    leader = bench.instance("leader")
    leader.lease.step()
    for name in ("a", "b", "c"):
        bench.jobs.create(name, bench.define("*/5 * * * * *"))
    cursors = [job.cursor_at for job in bench.jobs.list()]
    kind = "postgresql" if bench.url.startswith("postgresql") else "sqlite"
    bench.administer(REFUSE_RUNS[kind].format(job_id=bench.jobs.get("b").id))
    for _ in range(3):
        with pytest.raises(StoreError, match="refused"):
            leader.planner.step()
        assert [job.cursor_at for job in bench.jobs.list()] == cursors
        assert not [run for name in ("a", "b", "c") for run in bench.runs(name)]
    bench.administer(ALLOW_RUNS[kind])
    leader.planner.step()
    assert all(job.cursor_at > cursor for job, cursor in zip(bench.jobs.list(), cursors, strict=True))
    begin = parse_instant("2030-06-05T12:00:35Z")
    for name in ("a", "b", "c"):
        dues = sorted(run.due_at for run in bench.runs(name))
        assert dues[:6] == [begin + n * 5 * SECOND for n in range(6)]


@pytest.mark.parametrize(
    ("before", "after", "next_tick"),
    [
        ("* * * * *", "0 10 * * *", "2030-06-06T10:00:00Z"),
        ("0 9 * * *", "0 10 * * *", "2030-06-06T10:00:00Z"),
        ("0 9 * * *", "*/10 10 * * *", "2030-06-06T10:00:00Z"),
    ],
)
@pytest.mark.parametrize("planned_to_the_last", [True, False])
def test_miss_009_an_edit_to_a_time_that_has_passed_today_fires_nothing_now(
    bench: Bench, before: str, after: str, next_tick: str, planned_to_the_last: bool
) -> None:
    bench.set_clock("2030-06-05T08:59:58.500Z")
    one = bench.instance("one")
    bench.jobs.create("job", bench.define(before))
    bench.round(one)
    bench.move_clock(2 * SECOND)
    bench.round(one)
    assert bench.calls == [("job", parse_instant("2030-06-05T09:00:00Z"))]
    bench.set_clock(WEDNESDAY)
    if planned_to_the_last:
        bench.round(one)
    ran = list(bench.calls)
    result = bench.jobs.edit("job", bench.define(after))
    assert result.job.next_due_at == parse_instant(next_tick)
    for _ in range(3):
        bench.round(one)
        bench.move_clock(2 * MINUTE)
    assert bench.calls == ran
    assert not [run for run in bench.runs("job") if run.state in {"planned", "claimed", "running"}]
    bench.set_clock(parse_instant(next_tick) - SECOND)
    bench.round(one)
    bench.move_clock(2 * SECOND)
    bench.round(one)
    assert bench.calls == [*ran, ("job", parse_instant(next_tick))]
    assert audit(bench.store, "default").violations == []


@pytest.mark.parametrize(
    ("before", "after", "last", "next_after_us"),
    [
        ("0 9 * * 1", "0 9 * * *", "2030-06-03T09:00:00Z", None),
        ("@weekly", "@daily", "2030-06-02T00:00:00Z", None),
        ("@every 168h", "@every 24h", None, 24 * HOUR),
    ],
)
def test_miss_014_a_new_schedule_in_the_code_and_a_restart_fire_nothing_at_once(
    bench: Bench, before: str, after: str, last: str | None, next_after_us: int | None
) -> None:
    bench.set_clock(parse_instant(last) - 2 * SECOND if last else "2030-06-01T09:00:00Z")
    old = bench.instance("old")
    bench.jobs.declare("job", bench.define(before))
    bench.round(old)
    bench.move_clock(3 * SECOND)
    bench.round(old)
    ran = list(bench.calls)
    assert len(ran) == (last is not None)
    old.lease.resign()
    old.member.leave()
    bench.set_clock(WEDNESDAY)
    bench.jobs.declare("job", bench.define(after))
    job = bench.jobs.get("job")
    expected = job.anchor_at + next_after_us if next_after_us else None
    assert job.next_due_at == (expected or bench.jobs.schedule_of(job).next_after(parse_instant(WEDNESDAY)))
    new = bench.instance("new")
    for _ in range(3):
        bench.round(new)
        bench.move_clock(2 * MINUTE)
    assert bench.calls == ran
    assert job.next_due_at is not None
    bench.set_clock(job.next_due_at - SECOND)
    bench.round(new)
    bench.move_clock(2 * SECOND)
    bench.round(new)
    assert bench.calls == [*ran, ("job", job.next_due_at)]


def test_orph_008_a_stop_of_the_schedule_leaves_a_long_manual_run_alone(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    leader, owner = bench.instance("leader", execute="none"), bench.instance("owner")
    leader.lease.step()
    bench.jobs.create("job", bench.define("*/5 * * * *", "long"))
    run_id = bench.jobs.trigger("job")
    bench.round(leader, owner)
    assert bench.begun.acquire(timeout=20)
    stopped = bench.jobs.stop("job")
    assert [(run.run_id, run.instance) for run in stopped.still_running] == [(run_id, "owner")]
    for _ in range(60):  # ten minutes, each membership renewed in time
        bench.move_clock(9 * SECOND)
        bench.round(leader, owner)
    assert bench.living[run_id] == 1
    assert bench.store.runs.get("default", run_id).state == "running"
    bench.release.set()
    eventually(lambda: owner.runner.load() == 0)
    owner.settler.step()
    run = bench.store.runs.get("default", run_id)
    assert (run.state, run.result, run.attempt, run.late) == ("succeeded", '"whole"', 1, False)
    assert [run.id for run in bench.runs("job")] == [run_id]
    assert not bench.store.events.latest("default", kind="instance.expired")


def begin_long(bench: Bench, owner: Engine, **policies: Any) -> int:
    bench.jobs.create("job", bench.define("none", "long", **policies))
    run_id = bench.jobs.trigger("job")
    bench.round(owner)
    assert bench.begun.acquire(timeout=20)
    return run_id


def end_while_read_only(bench: Bench, owner: Engine, run_id: int) -> None:
    with bench.read_only():
        bench.release.set()
        eventually(lambda: len(owner.settler) == 1)
        for _ in range(3):
            with pytest.raises(Unavailable, match=r"read-?only"):
                owner.settler.step()
        assert owner.health().unsettled == 1
        assert bench.store.runs.get("default", run_id).state == "running"


def test_orph_013_an_outcome_is_kept_while_the_database_is_read_only_and_written_then(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    owner = bench.instance("owner")
    run_id = begin_long(bench, owner)
    end_while_read_only(bench, owner, run_id)
    owner.settler.step()
    run = bench.store.runs.get("default", run_id)
    assert (run.state, run.result, run.late, run.instance) == ("succeeded", '"whole"', False, "owner")
    assert owner.health().unsettled == 0


def test_orph_013_an_outcome_whose_owner_was_given_up_meanwhile_is_attached_and_marked_late(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    owner, other = bench.instance("owner"), bench.instance("other")
    run_id = begin_long(bench, owner)
    end_while_read_only(bench, owner, run_id)
    for _ in range(6):  # the other goes on, and hears nothing of the owner
        bench.move_clock(5 * SECOND)
        bench.round(other)
    assert bench.store.runs.get("default", run_id).state == "lost"
    owner.settler.step()
    run = bench.store.runs.get("default", run_id)
    assert (run.state, run.result, run.late, run.attempt) == ("succeeded", '"whole"', True, 1)
    bench.round(owner, other)
    assert len(bench.calls) == 1


@pytest.mark.parametrize(
    ("on_lost", "first_back"),
    [
        ("fail", "owner"),
        ("fail", "other"),
        ("hold", "owner"),
        ("hold", "other"),
        ("rerun", "owner"),
        ("rerun", "other"),
    ],
)
def test_dup_013_a_run_that_lives_through_an_outage_gets_no_second_one_beside_it(
    bench: Bench, on_lost: str, first_back: str
) -> None:
    bench.set_clock(WEDNESDAY)
    owner, other = bench.instance("owner"), bench.instance("other")
    run_id = begin_long(bench, owner, on_lost=on_lost)
    bench.move_clock(30 * SECOND)
    with bench.refusing():
        for engine in (owner, other):
            for name in ("member", "lease", "claimer"):
                with pytest.raises(Unavailable):
                    getattr(engine, name).step()
    back = (owner, other) if first_back == "owner" else (other, owner)
    for _ in range(5):
        for engine in back:
            bench.round(engine)
        bench.move_clock(SECOND)
    assert not bench.two_lived
    assert bench.living[run_id] == 1
    bench.release.set()
    eventually(lambda: owner.runner.load() == 0)
    owner.settler.step()
    run = bench.store.runs.get("default", run_id)
    assert (run.state, run.result, run.attempt) == ("succeeded", '"whole"', 1)
