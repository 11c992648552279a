"""Limits that jobs share: across jobs, instances and time, as steps of whole instances."""

from __future__ import annotations

import threading

import pytest

from tests.conftest import HostClock
from tests.store.scene import SECOND, Scene
from tests.store.stepped import Bench
from timeball.errors import Conflict, InvalidInput, NotFound
from timeball.model.limit import LimitRule
from timeball.service.limits import LimitService
from timeball.store import Store
from timeball.store.database import sql

WEDNESDAY = "2030-06-05T12:00:30Z"


@pytest.fixture
def scene(store: Store, host_clock: HostClock) -> Scene:
    return Scene(store, host_clock)


def people(bench: Bench) -> LimitService:
    return LimitService(bench.store, namespace="default", actor="anna")


def triggered(bench: Bench, count: int, *, jobs: int = 1) -> list[int]:
    return [bench.jobs.trigger(f"job-{number % jobs}") for number in range(count)]


def running(bench: Bench) -> int:
    return sum(run.state == "running" for n in range(9) for run in bench.runs(f"job-{n}"))


def test_jobs_that_share_a_limit_run_so_many_at_once_in_the_whole_cluster(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    people(bench).set("mail", LimitRule(running_max=3))
    for number in range(4):
        bench.jobs.create(f"job-{number}", bench.define("none", "long", overlap="allow", limits=["mail"]))
    bench.jobs.create("job-8", bench.define("none", "long"))
    a, b = bench.instance("a"), bench.instance("b")
    triggered(bench, 12, jobs=4)
    bench.jobs.trigger("job-8")
    for _ in range(3):
        bench.round(a)
        bench.round(b)
        bench.move_clock(SECOND // 10)
    assert running(bench) == 4  # three, and the one that names no limit
    assert people(bench).use(people(bench).get("mail")).running == 3
    bench.release.set()
    most = 0
    for _ in range(80):
        bench.move_clock(SECOND // 2)
        bench.round(a)
        bench.round(b)
        most = max(most, running(bench))
        if len(bench.calls) == 13 and not running(bench):
            break
    assert len(bench.calls) == 13
    assert most <= 3
    assert people(bench).use(people(bench).get("mail")).running == 0


def test_what_waits_for_a_limit_holds_up_no_other_work(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    people(bench).set("one", LimitRule(running_max=1))
    bench.jobs.create("job-0", bench.define("none", "long", overlap="allow", limits=["one"], priority=10))
    bench.jobs.create("job-1", bench.define("none", "note"))
    a = bench.instance("a", runs_max=5)
    triggered(bench, 8)
    for _ in range(4):
        bench.round(a)
        bench.move_clock(SECOND // 10)
    assert running(bench) == 1
    bench.jobs.trigger("job-1")
    for _ in range(60):
        bench.round(a)
        if len(bench.calls) == 2:
            break
    assert [name for name, _ in bench.calls] == ["job-0", "job-1"]


def test_so_many_starts_within_a_window_and_the_rest_when_it_has_moved_on(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    people(bench).set("api", LimitRule(started_max=4, window_seconds=60))
    bench.jobs.create("job-0", bench.define("none", "note", overlap="allow", limits=["api"]))
    a, b = bench.instance("a"), bench.instance("b")
    triggered(bench, 10)
    for _ in range(80):
        bench.round(a)
        bench.round(b)
        bench.move_clock(2 * SECOND)
        if len(bench.calls) == 10:
            break
    begun = sorted(run.started_at or 0 for run in bench.runs("job-0"))
    assert len(bench.calls) == 10
    assert begun[4] - begun[0] >= 60 * SECOND
    assert all(later - earlier >= 60 * SECOND for earlier, later in zip(begun, begun[4:], strict=False))


def test_a_tick_that_waits_too_long_for_its_limit_has_misfired(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    people(bench).set("one", LimitRule(running_max=1))
    bench.jobs.create("job-0", bench.define("none", "long", limits=["one"]))
    bench.jobs.create("job-1", bench.define("*/10 * * * * *", "note", limits=["one"], misfire="skip"))
    a = bench.instance("a")
    triggered(bench, 1)
    bench.round(a)
    assert bench.begun.acquire(timeout=20)
    for _ in range(90):
        bench.move_clock(SECOND)
        bench.round(a)
    states = [run.state for run in bench.runs("job-1")]
    assert "missed" in states
    assert not {"succeeded", "running"} & set(states)


def test_the_permit_of_a_run_that_is_lost_is_free_again(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    people(bench).set("one", LimitRule(running_max=1))
    bench.jobs.create("job-0", bench.define("none", "long", overlap="allow", limits=["one"]))
    gone, b = bench.instance("gone"), bench.instance("b")
    first, second = triggered(bench, 2)
    bench.round(gone)
    assert bench.begun.acquire(timeout=20)
    for _ in range(8):
        bench.move_clock(3 * SECOND)
        bench.round(b)
    assert bench.store.runs.get("default", first).state == "lost"
    assert bench.store.runs.get("default", second).state == "running"


def test_a_limit_is_made_changed_and_deleted_and_the_trail_says_so(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    service = people(bench)
    with pytest.raises(InvalidInput, match="there is no limit named 'mail'"):
        bench.jobs.create("job-0", bench.define("none", limits=["mail"]))
    made, changed = service.set("mail", LimitRule(running_max=3), expected_version=0)
    assert (made.version, changed) == (1, True)
    assert not service.set("mail", LimitRule(running_max=3))[1]
    with pytest.raises(Conflict, match="is at version 1, not 0"):
        service.set("mail", LimitRule(running_max=5), expected_version=0)
    assert service.set("mail", LimitRule(running_max=5), expected_version=1)[0].version == 2
    assert service.ensure("mail", LimitRule(running_max=9)).rule.running_max == 5
    bench.jobs.create("job-0", bench.define("none", limits=["mail"]))
    with pytest.raises(Conflict, match="is named by job-0"):
        service.delete("mail")
    with pytest.raises(InvalidInput, match="there is no limit named 'post'"):
        bench.jobs.edit("job-0", bench.define("none", limits=["mail", "post"]))
    bench.jobs.delete("job-0")
    service.delete("mail")
    with pytest.raises(NotFound):
        service.get("mail")
    kinds = [event.kind for event in bench.store.events.latest("default") if event.kind.startswith("limit.")]
    assert kinds == ["limit.deleted", "limit.edited", "limit.created"]


def test_limits_of_another_namespace_are_other_limits(scene: Scene) -> None:
    other = LimitService(scene.store, namespace="elsewhere", actor="anna")
    other.set("mail", LimitRule(running_max=1))
    mine = LimitService(scene.store, namespace="default", actor="anna")
    assert mine.list() == []
    mine.set("mail", LimitRule(running_max=2))
    a = scene.join("a")
    job = scene.job(overlap="allow", limits=["mail"])
    scene.plan(scene.lead(a), job, [scene.now() - n * SECOND for n in range(4)])
    assert len(scene.start(a, scene.claim(a)).started) == 2
    assert mine.use(mine.get("mail")).running == 2
    assert other.use(other.get("mail")).running == 0


def test_two_people_who_make_one_limit_at_once_make_one(scene: Scene) -> None:
    services = [LimitService(scene.store, namespace="default", actor=name) for name in ("anna", "ben")]
    threads = [threading.Thread(target=service.set, args=("mail", LimitRule(running_max=3))) for service in services]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [limit.name for limit in services[0].list()] == ["mail"]


def test_a_limit_whose_row_was_removed_by_hand_lets_nothing_start(scene: Scene) -> None:
    service = LimitService(scene.store, namespace="default", actor="anna")
    service.set("mail", LimitRule(running_max=3))
    a = scene.join("a")
    scene.plan(scene.lead(a), scene.job(limits=["mail"]), [scene.now()])
    with scene.store.database.transaction() as tx:
        tx.count(sql("DELETE FROM timeball_limit"))
    result = scene.start(a, scene.claim(a))
    assert (list(result.started), len(result.parked)) == ([], 1)
