"""CLOCK-004: the database's clock was hours ahead for a while, and goes back. Nothing is repeated, nothing stalls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import HostClock
from tests.store.scene import HOUR, SECOND, Scene
from tests.store.stepped import Bench
from timeball.app.wiring import make_registry
from timeball.clock import ClusterClock, parse_instant
from timeball.engine.engine import Engine
from timeball.events.bus import Bus
from timeball.service.audit import audit
from timeball.settings import Settings
from timeball.store import Store

MINUTE = 60 * SECOND


class World:
    """Instances whose monotonic time and database time go on together, until the latter steps."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.mono = 1_000 * SECOND
        self.engines: list[Engine] = []
        self._all: list[Engine] = []
        bench.set_clock("2030-06-05T12:00:10Z")

    def join(self, name: str, **settings_of: float) -> Engine:
        settings = Settings(database_url=self.bench.url, name=name, **settings_of)  # type: ignore[arg-type]
        registry = make_registry(settings, self.bench.functions)
        engine = Engine(self.bench.open(), settings, registry, Bus(), clock=ClusterClock(lambda: self.mono))
        self._all.append(engine)
        self.engines.append(engine)
        engine.member.step()
        return engine

    def close(self) -> None:
        self.bench.release.set()
        for engine in self._all:
            engine.runner.close(0)
        self.bench.close()

    def live(self, seconds: int) -> None:
        for _ in range(0, seconds, 3):
            self.mono += 3 * SECOND
            self.bench.move_clock(3 * SECOND)
            self.bench.round(*self.engines)

    def leaders(self) -> list[str]:
        return [engine.member.name for engine in self.engines if engine.lease.term() is not None]


@pytest.fixture
def world(with_schema: None, database_url: str, host_clock: HostClock) -> Iterator[World]:
    made = World(Bench(database_url, host_clock))
    yield made
    made.close()


def test_clock_004_jobs_go_on_at_their_real_times_and_nothing_is_repeated(world: World) -> None:
    bench = world.bench
    world.join("one")
    world.join("two")
    bench.jobs.create("minutely", bench.define("* * * * *"))
    bench.jobs.create("hourly", bench.define("0 * * * *"))
    bench.jobs.create("young", bench.define("@every 40s"))
    world.live(60)
    bench.move_clock(8 * HOUR)
    world.live(60)
    wrong = bench.now()
    bench.jobs.edit("young", bench.define("@every 45s"))
    bench.move_clock(-8 * HOUR)
    began = bench.now()
    world.live(190)
    assert len(bench.calls) == len(set(bench.calls)), "no tick runs twice"
    later = {due for job, due in bench.calls if job == "minutely" and began < due < wrong - 7 * HOUR}
    assert later == {parse_instant(f"2030-06-05T12:0{minute}:00Z") for minute in (3, 4, 5)}
    assert [due for job, due in bench.calls if job == "young" and began < due < wrong - 7 * HOUR]
    assert {job.next_due_at for job in bench.jobs.list() if job.name == "hourly"} == {
        parse_instant("2030-06-05T13:00:00Z")
    }
    assert not [run.due_at for run in bench.runs("hourly") if run.state == "missed" and run.due_at > bench.now()]
    assert world.leaders() == ["one"]
    report = audit(bench.store, "default")
    assert report.clean, report.to_json()


def test_a_leader_that_died_while_the_clock_was_ahead_is_followed_and_its_run_is_lost(world: World) -> None:
    bench = world.bench
    world.join("one")
    bench.jobs.create("work", bench.define("none", "long"))
    bench.move_clock(8 * HOUR)
    world.live(9)
    bench.jobs.trigger("work")
    world.live(6)
    assert [run.state for run in bench.runs("work")] == ["running"]
    world.engines.clear()
    bench.move_clock(-8 * HOUR)
    world.join("two")
    world.live(9)
    assert world.leaders() == []
    world.live(90)
    assert world.leaders() == ["two"]
    assert {run.state for run in bench.runs("work")} == {"lost"}


def test_a_leader_with_a_longer_lease_than_ours_is_not_taken_for_dead_until_it_is(world: World) -> None:
    world.join("one", lease_seconds=60, lease_renew_seconds=20, horizon_seconds=120)
    world.join("two")
    world.live(90)
    assert world.leaders() == ["one"]
    assert world.bench.store.leases.read("default").epoch == 1
    del world.engines[0]
    world.bench.move_clock(-8 * HOUR)
    world.live(30)
    assert world.leaders() == [], "nobody knows yet that it is not renewed any more"
    world.live(60)
    assert world.leaders() == ["two"]


def test_a_lease_that_was_renewed_after_the_last_look_is_not_abandoned(store: Store) -> None:
    scene = Scene(store)
    me, other = scene.join("me"), scene.join("other")
    store.leases.hold("default", other, lifetime_us=HOUR)
    seen = store.leases.hold("default", me, lifetime_us=SECOND).lease
    store.leases.hold("default", other, lifetime_us=HOUR)
    assert store.leases.hold("default", me, lifetime_us=SECOND, dead=seen).term is None
    again = store.leases.read("default")
    assert store.leases.hold("default", me, lifetime_us=SECOND, dead=again).term is not None
