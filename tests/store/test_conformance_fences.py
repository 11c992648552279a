"""What every database must do when somebody comes too late: plans, starts, outcomes, verdicts and retention."""

from __future__ import annotations

import pytest

from tests.conftest import HostClock
from tests.store.scene import ANY, HOUR, SECOND, Scene
from timeball.errors import ClaimLost, NotFound
from timeball.model.cluster import Term
from timeball.model.job import Definition, Job, JobState
from timeball.model.run import Output
from timeball.store import Store
from timeball.store.changes import Change
from timeball.store.claims import Started
from timeball.store.database import sql
from timeball.store.jobs import NewTimes, Placement
from timeball.store.plans import JobPlan, PlannedTick
from timeball.store.reaps import LostRun, MisfireVerdict, OverdueJob
from timeball.store.settles import Ending


@pytest.fixture
def scene(store: Store, host_clock: HostClock) -> Scene:
    return Scene(store, host_clock)


def edit(scene: Scene, job: Job, **policies: object) -> None:
    def decide(locked: Job, _: str | None) -> Change:
        return Change(
            kind="edited",
            state=JobState.ACTIVE,
            definition=Definition.from_dict({**locked.definition.to_dict(), **policies}),
            placement=Placement(handler="function:g", requires=""),
            times=lambda boundary: NewTimes(cursor_at=boundary, next_due_at=boundary + HOUR, anchor_at=boundary),
            unplanned=lambda _: None,
            cancel_pending=False,
        )

    scene.store.changes.change("default", job.name, decide, actor="test")


def running(scene: Scene, me: str, leader: str, **policies: object) -> tuple[Term, Started]:
    term = scene.lead(leader)
    scene.plan(term, scene.job(**policies), [scene.now()])
    return term, scene.start(me, scene.claim(me)).started[0]


def ending(started: Started, **given: object) -> Ending:
    values = {"state": "succeeded", "begun_at": 1, "ended_at": 2, **given}
    return Ending(
        **{
            "run_id": started.run_id,
            "job_id": started.job_id,
            "attempt": started.attempt,
            "fence": started.fence,
            **values,
        }
    )


def settle(scene: Scene, *endings: Ending) -> frozenset[int]:
    return scene.store.settles.settle(endings, namespace="default", instance_id="")


def runs_and_cursor(scene: Scene) -> tuple[int, int]:
    count = sql("SELECT count(*) FROM timeball_run")
    return scene.store.database.read(lambda tx: tx.all(count))[0][0], scene.store.jobs.get("default", "job").cursor_at


def test_a_renewal_moves_the_end_of_the_lease_and_keeps_the_epoch(scene: Scene) -> None:
    a = scene.join("a")
    first = scene.lead(a)
    before = scene.store.leases.read("default")
    assert scene.store.leases.hold("default", a, lifetime_us=2 * HOUR).taken is False
    after = scene.store.leases.read("default")
    assert (after.epoch, after.holder) == (first.epoch, a)
    assert after.expires_at >= before.expires_at + HOUR


def test_a_lease_runs_out_by_the_clock_of_the_database(scene: Scene) -> None:
    a, b = scene.join("a"), scene.join("b")
    old = scene.lead(a)
    assert scene.store.leases.read("default").valid
    scene.pass_time(HOUR + SECOND)
    assert not scene.store.leases.read("default").valid
    assert scene.lead(b).epoch == old.epoch + 1
    assert [event.actor for event in scene.store.events.latest("default", kind="lease.taken")] == [b, a]


def test_a_lease_that_ran_out_proves_nothing_even_when_nobody_took_it(scene: Scene) -> None:
    term = scene.lead(scene.join("a"))
    with scene.store.database.transaction() as tx:
        scene.store.leases.prove(tx, term)
    scene.pass_time(HOUR + SECOND)
    with pytest.raises(ClaimLost), scene.store.database.transaction() as tx:
        scene.store.leases.prove(tx, term)


def test_a_deposed_leader_leaves_neither_runs_nor_cursors_behind(scene: Scene) -> None:
    a, b = scene.join("a"), scene.join("b")
    old, job = scene.lead(a), scene.job()
    before = runs_and_cursor(scene)
    scene.store.leases.release(old, actor="a")
    scene.lead(b)
    with pytest.raises(ClaimLost):
        scene.plan(old, job, [scene.now()])
    assert runs_and_cursor(scene) == before


def test_a_plan_for_a_job_that_changed_meanwhile_writes_nothing_for_it(scene: Scene) -> None:
    term, job, other = scene.lead(scene.join("a")), scene.job(), scene.job("other")
    now = scene.now()
    plans = [
        JobPlan(
            job_id=each.id,
            version=each.version,
            cursor_before=each.cursor_at,
            cursor_after=now,
            next_due_at=None,
            handler="function:f",
            requires="",
            priority=0,
            exclusive=False,
            ticks=[PlannedTick(due_at=now, start_by=1 << 61)],
        )
        for each in (other, job)
    ]
    edit(scene, job)
    assert scene.store.plans.write(term, plans, tzdata="x") == 1
    assert scene.store.jobs.get("default", "other").cursor_at == now
    assert [claim.job_id for claim in scene.claim(scene.join("b"))] == [other.id]


def test_a_claim_from_before_an_edit_does_not_start(scene: Scene) -> None:
    a = scene.join("a")
    job = scene.job(overlap="allow")
    scene.plan(scene.lead(a), job, [scene.now() - SECOND])
    claims = scene.claim(a)
    edit(scene, job, priority=5)
    assert not scene.start(a, claims).started
    assert scene.state(claims[0].run_id) == "planned"


@pytest.mark.parametrize("change", ["version = version + 1", "state = 'stopped'", "state = 'deleted'"])
def test_the_job_itself_is_looked_at_by_start_take_claim_and_plan(scene: Scene, change: str) -> None:
    a = scene.join("a")
    term, job, now = scene.lead(a), scene.job(overlap="allow"), scene.now()
    scene.plan(term, job, [now - 2, now - 1])
    claims = scene.claim(a, limit=1)
    planned = JobPlan(
        job_id=job.id,
        version=job.version,
        cursor_before=scene.store.jobs.get("default", "job").cursor_at,
        cursor_after=now,
        next_due_at=None,
        handler="function:f",
        requires="",
        priority=0,
        exclusive=False,
        ticks=[PlannedTick(due_at=now, start_by=1 << 61)],
    )
    scene.execute(f"UPDATE timeball_job SET {change}")  # the guard alone: runs and cursor stay as they were
    assert not scene.start(a, claims).started
    assert not scene.claim(a)
    assert not scene.store.claims.take(a, ANY, limit=10)
    assert scene.store.plans.write(term, [planned], tzdata="x") == 0


def test_a_claim_that_was_given_back_does_not_start(scene: Scene) -> None:
    a = scene.join("a")
    scene.plan(scene.lead(a), scene.job(), [scene.now()])
    claims = scene.claim(a)
    scene.store.claims.give_back(a, [claims[0].run_id])
    assert not scene.start(a, claims).started


def test_what_is_claimed_expires_by_the_clock_and_goes_to_another(scene: Scene) -> None:
    a, b = scene.join("a", lifetime_us=9 * HOUR), scene.join("b", lifetime_us=9 * HOUR)
    scene.plan(scene.lead(a), scene.job(), [scene.now()])
    claims = scene.claim(a)
    assert not scene.claim(b)
    scene.pass_time(HOUR + SECOND)
    assert [claim.run_id for claim in scene.claim(b)] == [claims[0].run_id]


def test_take_leaves_what_competes_with_other_runs(scene: Scene) -> None:
    a = scene.join("a")
    term, free, exclusive = scene.lead(a), scene.job("free", overlap="allow"), scene.job("alone", overlap="skip")
    for job in (free, exclusive):
        scene.plan(term, job, [scene.now() - SECOND])
    assert [started.job_id for started in scene.store.claims.take(a, ANY, limit=10)] == [free.id]
    assert [claim.job_id for claim in scene.claim(a)] == [exclusive.id]


def test_only_the_leader_of_the_term_claims_with_it(scene: Scene) -> None:
    a, b = scene.join("a"), scene.join("b")
    old = scene.lead(a)
    scene.plan(old, scene.job(overlap="allow"), [scene.now()])
    scene.store.leases.release(old, actor="a")
    scene.lead(b)
    with pytest.raises(ClaimLost):
        scene.store.claims.take(a, ANY, limit=10, term=old)


def test_the_reason_of_a_skip_fits_however_long_the_names_are(scene: Scene) -> None:
    a = scene.join("x" * 200)
    term, job = scene.lead(a), scene.job(overlap="skip")
    scene.plan(term, job, [scene.now() - SECOND])
    assert scene.start(a, scene.claim(a)).started
    scene.plan(term, job, [scene.now() + SECOND])
    skipped = scene.start(a, scene.claim(a)).skipped
    reason = scene.store.runs.get("default", next(iter(skipped))).reason
    assert reason is not None
    assert reason.startswith("overlap: run")


def test_the_fence_alone_decides_whose_outcome_counts(scene: Scene) -> None:
    a = scene.join("a")
    _, started = running(scene, a, a)
    for stale in ({"fence": started.fence - 1}, {"fence": started.fence + 1}, {"attempt": started.attempt + 1}):
        assert not settle(scene, ending(started, **stale))
    assert scene.state(started.run_id) == "running"
    assert settle(scene, ending(started, outputs=[Output(stream="stdout", text="x", bytes_total=1)]))
    assert [output.text for output in scene.store.runs.outputs(started.run_id, 1)] == ["x"]


def test_one_stale_outcome_does_not_hold_up_the_others_of_its_batch(scene: Scene) -> None:
    a = scene.join("a")
    term, job = scene.lead(a), scene.job(overlap="allow")
    now = scene.now()
    scene.plan(term, job, [now - 2, now - 1])
    first, second = scene.start(a, scene.claim(a)).started
    stale = ending(first)._replace(fence=first.fence + 99)
    assert settle(scene, stale, ending(second)) == {second.run_id}


def test_the_outcome_of_a_lost_attempt_is_marked_late(scene: Scene) -> None:
    a, b = scene.join("a"), scene.join("b")
    term, started = running(scene, a, b)
    scene.expire(a)
    scene.store.reaps.expire_members(term)
    orphan = scene.store.reaps.orphans(term)[0]
    scene.store.reaps.lose(term, [LostRun(orphan=orphan, rerun=False, reason="gone")])
    assert settle(scene, ending(started))
    run = scene.store.runs.get("default", started.run_id)
    assert (run.state, run.late) == ("succeeded", True)
    assert not settle(scene, ending(started, state="failed"))


def test_a_run_that_is_planned_again_keeps_the_record_of_the_lost_attempt(scene: Scene) -> None:
    a, b = scene.join("a"), scene.join("b")
    term, started = running(scene, a, b)
    scene.expire(a)
    scene.store.reaps.expire_members(term)
    orphan = scene.store.reaps.orphans(term)[0]
    scene.store.reaps.lose(term, [LostRun(orphan=orphan, rerun=True, reason="gone")])
    records = [(r.attempt, r.state, r.reason, r.instance) for r in scene.store.runs.attempts(started.run_id)]
    assert records == [(1, "lost", "gone", "a")]
    again = scene.start(b, scene.claim(b)).started[0]
    assert (again.run_id, again.attempt) == (started.run_id, 2)


def test_a_job_that_was_edited_gets_no_further_attempt(scene: Scene) -> None:
    a = scene.join("a")
    _, started = running(scene, a, a)
    edit(scene, scene.store.jobs.get("default", "job"))
    assert settle(scene, ending(started, state="failed", retry_at=scene.now()))
    assert scene.state(started.run_id) == "failed"


def test_the_claims_of_an_expired_instance_are_free_at_once(scene: Scene) -> None:
    a, b = scene.join("a"), scene.join("b")
    term = scene.lead(b)
    scene.plan(term, scene.job(), [scene.now()])
    assert scene.claim(a)
    scene.expire(a)
    scene.store.reaps.expire_members(term)
    assert len(scene.claim(b)) == 1
    assert [m.name for m in scene.store.members.live("default")] == ["b"]


def test_a_misfired_tick_is_missed_or_may_start_after_all(scene: Scene) -> None:
    a = scene.join("a")
    term, job, now = scene.lead(a), scene.job(overlap="allow"), scene.now()
    scene.plan(term, job, [now - 30 * SECOND, now - 20 * SECOND], start_by=now - 10 * SECOND)
    scene.execute("UPDATE timeball_job SET next_due_at = :later", later=now + HOUR)
    assert not scene.claim(a)

    def decide(overdue: OverdueJob) -> MisfireVerdict:
        first, second = (row[0] for row in overdue.rows)
        return MisfireVerdict(missed=[first], kept=[(second, now + HOUR)], reason="misfire")

    assert scene.store.reaps.resolve_misfires(term, decide) == 2
    assert scene.store.reaps.resolve_misfires(term, decide) == 0
    states = [row.state for row in scene.store.audits.ledger(job.id, after=0, until=now)]
    assert states == ["missed", "planned"]
    assert len(scene.claim(a)) == 1


def test_misfires_wait_for_the_planner_where_ticks_are_not_planned_yet(scene: Scene) -> None:
    term, job, now = scene.lead(scene.join("a")), scene.job(), scene.now()
    scene.plan(term, job, [now - 30 * SECOND], start_by=now - 10 * SECOND)
    called: list[OverdueJob] = []

    def decide(overdue: OverdueJob) -> MisfireVerdict:
        called.append(overdue)
        return MisfireVerdict(missed=(), kept=(), reason="")

    assert scene.store.reaps.resolve_misfires(term, decide) == 0
    assert not called


def test_retention_by_count_keeps_the_newest_and_what_lives(scene: Scene) -> None:
    a = scene.join("a")
    term, job, now = scene.lead(a), scene.job(overlap="allow"), scene.now()
    dues = [now - n * SECOND for n in range(6, 0, -1)]
    scene.plan(term, job, dues)
    for started in scene.start(a, scene.claim(a, limit=5)).started:
        settle(scene, ending(started))
    assert scene.store.purges.runs_by_count(term, keep=2, until=now, after_job=0) is None
    left = [(row.due_at, row.state) for row in scene.store.audits.ledger(job.id, after=0, until=now)]
    assert left == [(dues[3], "succeeded"), (dues[4], "succeeded"), (dues[5], "planned")]
    assert scene.store.audits.versions("default", "job")[0].purged_until == dues[2]


def test_retention_by_count_leaves_what_is_younger_than_any_catch_up(scene: Scene) -> None:
    a = scene.join("a")
    term, job, now = scene.lead(a), scene.job(overlap="allow"), scene.now()
    dues = [now - 2 * SECOND, now - SECOND]
    scene.plan(term, job, dues)
    for started in scene.start(a, scene.claim(a)).started:
        settle(scene, ending(started))
    scene.store.purges.runs_by_count(term, keep=0, until=dues[0], after_job=0)
    assert [row.due_at for row in scene.store.audits.ledger(job.id, after=0, until=now)] == [dues[1]]


def test_retention_by_age_keeps_a_tick_that_its_job_could_plan_again(scene: Scene) -> None:
    """As after the clock went back: the cursor stands before what has run."""
    a = scene.join("a")
    term, job, now = scene.lead(a), scene.job(), scene.now()
    scene.plan(term, job, [now - 2 * SECOND])
    for started in scene.start(a, scene.claim(a)).started:
        settle(scene, ending(started))
    scene.execute("UPDATE timeball_run SET ended_at = 5")
    for cursor, left in ((now - 2 * SECOND, 1), (now - SECOND, 0)):
        scene.execute("UPDATE timeball_job SET cursor_at = :cursor", cursor=cursor)
        scene.store.purges.runs_by_age(term, before=now, after_id=0)
        assert len(list(scene.store.audits.ledger(job.id, after=0, until=now))) == left


def test_retention_forgets_no_instance_that_has_a_run_in_hand(scene: Scene) -> None:
    busy, here = scene.join("busy"), scene.join("here")
    term, job, now = scene.lead(here), scene.job(), scene.now()
    scene.plan(term, job, [now - SECOND])
    scene.start(busy, scene.claim(busy))
    scene.execute("UPDATE timeball_instance SET heartbeat_at = 5")
    scene.execute("UPDATE timeball_instance SET state = 'expired' WHERE id = :id", id=busy)
    assert scene.store.purges.instances(term, before=now) == 0
    scene.execute("UPDATE timeball_run SET state = 'lost'")
    assert scene.store.purges.instances(term, before=now) == 1
    assert [m.id for m in scene.store.members.all("default")] == [here]


def test_retention_forgets_old_events_and_gone_instances_only(scene: Scene) -> None:
    gone, here = scene.join("gone"), scene.join("here")
    term = scene.lead(here)
    scene.execute("UPDATE timeball_instance SET state = 'stopped', heartbeat_at = 5 WHERE id = :id", id=gone)
    scene.execute("UPDATE timeball_event SET at = 5 WHERE instance_id = :id", id=gone)
    assert scene.store.purges.instances(term, before=scene.now() - HOUR) == 1
    assert scene.store.purges.events(term, before=scene.now() - HOUR) == 1
    assert [m.id for m in scene.store.members.all("default")] == [here]
    assert scene.store.events.latest("default")


def test_verbs_about_a_job_that_is_not_there_say_so(scene: Scene) -> None:
    with pytest.raises(NotFound):
        scene.store.jobs.get("default", "none")
    with pytest.raises(NotFound):
        scene.store.runs.get("default", 1)
    with pytest.raises(NotFound):
        scene.store.changes.change("default", "none", lambda *_: None, actor="test")
