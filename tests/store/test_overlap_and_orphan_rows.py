"""Rows of `tests/cases/behaviour.jsonl` about overlapping and orphaned runs, as steps of whole instances."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.store.scene import HOUR, SECOND
from tests.store.stepped import Bench, eventually
from timeball.clock import parse_instant
from timeball.engine.engine import Engine
from timeball.events.facts import RunSkipped
from timeball.service.audit import audit

MINUTE = 60 * SECOND
WEDNESDAY = "2030-06-05T12:00:30Z"


class Turns:
    """A function named `turn` whose runs end one by one, when the test says so; how many lived at once."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._lock = threading.Lock()
        self.ending = threading.Semaphore(0)
        self.began: list[int] = []
        self.live = 0
        self.most = 0
        bench.functions.register("turn", self._turn)

    def _turn(self, run: Any) -> None:
        with self._lock:
            self.live += 1
            self.most = max(self.most, self.live)
            self._bench.living[run.id] += 1
            self.began.append(run.due_at_us)
        while not self.ending.acquire(timeout=0.01) and not self._bench.release.is_set():
            pass
        with self._lock:
            self.live -= 1
            self._bench.living[run.id] -= 1

    def end_one(self, *engines: Engine) -> None:
        assert self.live
        left = self.live - 1
        self.ending.release()
        eventually(lambda: self.live == left and sum(engine.runner.load() for engine in engines) == left)
        for engine in engines:
            engine.settler.step()


def fire(bench: Bench, tick: int, *engines: Engine) -> None:
    bench.set_clock(tick - SECOND)
    bench.round(*engines)
    bench.set_clock(tick + SECOND // 2)
    bench.round(*engines)


def test_over_003_a_tick_whose_job_still_runs_on_another_instance_is_skipped_and_says_so(bench: Bench) -> None:
    begin = parse_instant("2030-06-05T12:05:00Z")
    bench.set_clock(begin - 10 * SECOND)
    engines = [bench.instance(name) for name in "abc"]
    facts: list[Any] = []
    for engine in engines:
        engine._bus.subscribe(facts.append)
    turns = Turns(bench)
    bench.jobs.create("job", bench.define("*/5 * * * *", "turn", overlap="skip"))
    bench.round(*engines)
    ticks = [begin + number * 5 * MINUTE for number in range(9)]
    for number, tick in enumerate(ticks):
        fire(bench, tick, *engines[number % 3 :], *engines[: number % 3])
        eventually(lambda: turns.live == 1)
        if number % 3 == 2:  # 15 minutes less a little
            bench.set_clock(tick + 4 * MINUTE)
            turns.end_one(*engines)
    assert turns.most == 1
    assert turns.began == ticks[::3]
    runs = sorted((run for run in bench.runs("job") if run.due_at <= ticks[-1]), key=lambda run: run.due_at)
    assert [run.state for run in runs] == ["succeeded", "skipped", "skipped"] * 3
    told = {fact.run_id: (fact.job, fact.reason) for fact in facts if isinstance(fact, RunSkipped)}
    for number, run in enumerate(runs):
        if run.state == "skipped":
            running = runs[number // 3 * 3]
            assert run.reason == f"overlap: run {running.id} on {running.instance}"
            assert told[run.id] == ("job", run.reason)


@pytest.mark.parametrize(("rule", "states"), [("vixie", ["succeeded"]), ("literal", ["succeeded", "skipped"])])
def test_over_004_the_repeated_hour_of_autumn_starts_no_second_run_beside_a_long_one(
    bench: Bench, rule: str, states: list[str]
) -> None:
    first, second = parse_instant("2030-10-27T00:00:00Z"), parse_instant("2030-10-27T01:00:00Z")
    bench.set_clock(first - MINUTE)
    a, b = bench.instance("a"), bench.instance("b")
    turns = Turns(bench)
    bench.jobs.create("restore", bench.define("0 2 * * *", "turn", timezone="Europe/Berlin", dst=rule))
    bench.round(a, b)
    fire(bench, first, a, b)
    fire(bench, second, b, a)
    bench.set_clock(first + 3 * HOUR)
    bench.round(a, b)
    turns.end_one(a, b)
    bench.round(a, b)
    assert (turns.began, turns.most) == ([first], 1)
    runs = sorted(bench.runs("restore"), key=lambda run: run.due_at)
    assert [run.state for run in runs] == states
    assert all((run.reason or "overlap").startswith("overlap") for run in runs)


def test_over_005_a_run_that_is_longer_than_a_lease_stays_the_only_one(bench: Bench) -> None:
    begin = parse_instant("2030-06-05T12:01:00Z")
    bench.set_clock(begin - 10 * SECOND)
    spans: dict[str, Any] = {
        "lease_seconds": 45,
        "lease_renew_seconds": 15,
        "membership_seconds": 45,
        "heartbeat_seconds": 15,
        "horizon_seconds": 90,
    }
    engines = [bench.instance(name, **spans) for name in "abc"]
    turns = Turns(bench)
    bench.jobs.create("job", bench.define("* * * * *", "turn"))
    bench.round(*engines)
    fire(bench, begin, *engines)
    assert turns.live == 1
    for _ in range(20):
        bench.move_clock(15 * SECOND)
        for engine in engines:
            assert engine.member.step() <= 15
            assert engine.lease.step() <= 15
        assert {member.name for member in bench.store.members.live("default")} == {"a", "b", "c"}
        bench.round(*engines)
        assert (turns.live, turns.most) == (1, 1)
    turns.end_one(*engines)
    assert turns.began == [begin]
    assert bench.store.leases.read("default").epoch == 1
    assert not bench.store.events.latest("default", kind="instance.expired")


@pytest.mark.parametrize(("on_lost", "after"), [("fail", "lost"), ("hold", "lost"), ("rerun", "running")])
def test_orph_001_no_run_stays_running_after_its_owner_died(bench: Bench, on_lost: str, after: str) -> None:
    bench.set_clock(WEDNESDAY)
    owner, other = bench.instance("owner"), bench.instance("other")
    other.lease.step()
    bench.jobs.create("job", bench.define("none", "long", on_lost=on_lost))
    run_id = bench.jobs.trigger("job")
    bench.round(owner)
    assert bench.begun.acquire(timeout=20)
    for _ in range(2):  # the owner is dead: it steps no more
        bench.move_clock(4 * SECOND)
        bench.round(other)
        assert bench.store.runs.get("default", run_id).instance == "owner"
    bench.move_clock(3 * SECOND)  # a membership and one pass of the reaper
    bench.round(other)
    run = bench.store.runs.get("default", run_id)
    assert run.state == after
    assert (run.state, run.instance) != ("running", "owner")
    assert len(bench.runs("job")) == 1


def test_orph_011_a_run_whose_owner_was_killed_is_lost_and_gets_its_second_attempt_elsewhere(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    owner, other = bench.instance("owner"), bench.instance("other")
    other.lease.step()
    turns = Turns(bench)
    bench.jobs.create("job", bench.define("none", "turn", on_lost="rerun", lost_max=1))
    run_id = bench.jobs.trigger("job")
    bench.round(owner)
    eventually(lambda: turns.live == 1)
    for _ in range(3):
        bench.move_clock(4 * SECOND)
        bench.round(other)
    eventually(lambda: len(turns.began) == 2)
    turns.ending.release(2)
    eventually(lambda: not other.runner.load())
    other.settler.step()
    run = bench.store.runs.get("default", run_id)
    assert (run.state, run.attempt, run.instance) == ("succeeded", 2, "other")
    earlier = bench.store.runs.attempts(run_id)
    assert [(attempt.attempt, attempt.state, attempt.instance) for attempt in earlier] == [(1, "lost", "owner")]


@pytest.mark.parametrize("on_lost", ["fail", "rerun"])
def test_orph_014_a_run_without_a_time_out_is_left_alone_while_its_owner_lives(bench: Bench, on_lost: str) -> None:
    bench.set_clock(WEDNESDAY)
    leader, owner = bench.instance("leader", execute="none"), bench.instance("owner")
    leader.lease.step()
    bench.jobs.create("job", bench.define("none", "long", on_lost=on_lost))
    assert bench.jobs.get("job").definition.timeout_seconds is None
    run_id = bench.jobs.trigger("job")
    bench.round(leader, owner)
    assert bench.begun.acquire(timeout=20)
    for _ in range(30):
        bench.move_clock(9 * SECOND)
        bench.round(leader, owner)
        run = bench.store.runs.get("default", run_id)
        assert (run.state, run.attempt, run.instance) == ("running", 1, "owner")
    bench.release.set()
    eventually(lambda: not owner.runner.load())
    owner.settler.step()
    run = bench.store.runs.get("default", run_id)
    assert (run.state, run.result, run.late) == ("succeeded", '"whole"', False)
    assert audit(bench.store, "default").violations == []


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_over_001_runs_that_are_caught_up_take_turns_in_the_order_of_their_ticks(bench: Bench, overlap: str) -> None:
    begin = parse_instant("2030-06-05T13:00:00Z")
    bench.set_clock(begin - 30 * MINUTE)
    turns = Turns(bench)
    bench.jobs.create(
        "job", bench.define("0 * * * *", "turn", misfire="run_all", catchup_max=6, overlap=overlap, queue_max=10)
    )
    ticks = [begin + number * HOUR for number in range(6)]
    bench.set_clock(ticks[-1] + 5 * MINUTE)
    engines = [bench.instance(name, claim_batch_max=2) for name in "ab"]  # neither has them all in its hand
    bench.round(*engines)

    def one_lives() -> bool:
        bench.round(*reversed(engines))
        return turns.live == 1

    for _ in ticks:
        eventually(one_lives)
        turns.end_one(*engines)
    assert turns.most == 1
    assert turns.began == ticks
    caught_up = [run for run in bench.runs("job") if run.due_at <= ticks[-1]]
    assert [run.state for run in caught_up] == ["succeeded"] * 6
    assert audit(bench.store, "default").violations == []
