"""What happens when the time zone database changes under planned jobs, and when a leader cannot do its work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.instances import eventually
from tests.store.scene import SECOND, Scene
from timeball.app.wiring import connect
from timeball.clock import ClusterClock, Sample
from timeball.engine.replanner import Replanner
from timeball.events.bus import Bus
from timeball.events.facts import Fact, JobReplanned, LeaseEnded, LeaseTaken
from timeball.model.job import Definition
from timeball.schedule import Schedule, schedule_of
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.migrate import upgrade_schema

HOUR = 3600 * SECOND


class Cluster:
    """A leader with one job whose ticks are planned by what its time zone database says."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.term = scene.lead(scene.join("leader"))
        self.facts: list[Fact] = []

    def planned(self, name: str, *, shift_us: int) -> list[int]:
        """Create a job and plan three ticks, moved against the right ones as other rules would have them."""
        scene = self.scene
        job = scene.job(name, schedule="0 * * * *", timezone="America/Santiago")
        now = scene.now()
        right = self.schedule(job.definition).between(now, now + 100 * HOUR, 3)
        dues = [due + shift_us for due in right]
        scene.execute("UPDATE timeball_job SET cursor_at = :now WHERE id = :id", now=now, id=job.id)
        scene.plan(self.term, job, dues)
        scene.execute(
            "UPDATE timeball_job SET next_due_at = :next, tzdata = 'old' WHERE id = :id",
            next=right[-1] + HOUR + shift_us,
            id=job.id,
        )
        return right

    def schedule(self, definition: Definition) -> Schedule:
        return schedule_of(definition, name="job", anchor_at=0)

    def replan(self, tzdata: str = "new") -> int:
        clock = ClusterClock(lambda: 0)
        clock.adopt(Sample(sent_us=0, received_us=0, database_us=self.scene.now()))
        bus = Bus()
        bus.subscribe(self.facts.append)
        return Replanner(self.scene.store, clock, bus, lambda _: "function:f", tzdata).run(self.term)

    def coming(self, name: str) -> list[int]:
        job = self.scene.store.jobs.get("default", name)
        return self.scene.store.plans.coming([job.id], after=self.scene.now())[job.id]


@pytest.fixture
def cluster(store: Store) -> Cluster:
    return Cluster(Scene(store))


def test_ticks_that_new_rules_move_are_planned_anew_and_the_difference_is_told(cluster: Cluster) -> None:
    right = cluster.planned("moved", shift_us=600 * SECOND)
    before = cluster.scene.store.jobs.get("default", "moved")
    assert cluster.replan() == 1
    assert cluster.coming("moved") == []
    after = cluster.scene.store.jobs.get("default", "moved")
    assert (after.version, after.next_due_at) == (before.version + 1, right[0])
    told = [fact for fact in cluster.facts if isinstance(fact, JobReplanned)]
    assert [(fact.job, fact.before[0] - fact.after[0]) for fact in told] == [("moved", 600 * SECOND)]


def test_ticks_that_new_rules_leave_alone_keep_their_runs(cluster: Cluster) -> None:
    right = cluster.planned("same", shift_us=0)
    before = cluster.scene.store.jobs.get("default", "same")
    assert cluster.replan() == 0
    assert cluster.coming("same") == right
    assert cluster.scene.store.jobs.get("default", "same").version == before.version
    assert cluster.scene.store.jobs.planned_with_other_tzdata("default", "new") == []


def test_an_overdue_tick_is_left_to_the_misfire_policy(cluster: Cluster) -> None:
    cluster.planned("late", shift_us=600 * SECOND)
    cluster.scene.execute("UPDATE timeball_job SET next_due_at = :at", at=cluster.scene.now() - HOUR)
    before = cluster.scene.store.jobs.get("default", "late")
    assert cluster.replan() == 0
    assert cluster.scene.store.jobs.get("default", "late") == before


def test_lease_009_a_leader_that_cannot_plan_gives_the_lease_up_and_takes_it_again_later(tmp_path: Path) -> None:
    settings = Settings(
        database_url=f"sqlite:///{tmp_path}/t.db",
        lease_seconds=2,
        lease_renew_seconds=0.5,
        plan_interval_seconds=0.1,
        coordination_timeout_seconds=0.5,
    )
    parts = connect(settings)
    facts: list[Fact] = []
    parts.bus.subscribe(facts.append)
    upgrade_schema(parts.store.database, "default")
    scene = Scene(parts.store)
    engine = parts.engine()
    engine.start()
    try:
        eventually(lambda: any(isinstance(f, LeaseTaken) for f in facts))
        scene.execute("ALTER TABLE timeball_run RENAME TO timeball_away")
        scene.job("poison")
        eventually(lambda: any(isinstance(f, LeaseEnded) and "duty fails" in f.reason for f in facts))
        eventually(lambda: parts.store.leases.read("default").holder is None)
        scene.execute("ALTER TABLE timeball_away RENAME TO timeball_run")
        eventually(lambda: sum(isinstance(f, LeaseTaken) for f in facts) == 2)
        eventually(lambda: engine.health().problems == ())
    finally:
        engine.stop(1)
        parts.store.close()


@pytest.mark.parametrize("number", [1, 50])
def test_a_tick_that_a_person_skipped_is_no_reason_to_plan_anew(store: Store, number: int) -> None:
    cluster = Cluster(Scene(store))
    right = cluster.planned("job", shift_us=0)
    tick = right[0] + number * HOUR
    store.skips.skip("default", "job", lambda _job, _now, _out: tick, actor="anna")
    assert cluster.replan() == 0
    assert cluster.facts == []
