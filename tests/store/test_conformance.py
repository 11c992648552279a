"""What every database must do, through the store's contract. A bug found on one becomes a case for all."""

from __future__ import annotations

import threading

import pytest

from tests.store.scene import ANY, HOUR, SECOND, Scene
from timeball.errors import ClaimLost, Conflict, LeaseRowMissing, NotFound
from timeball.model.job import Definition, Job, JobState
from timeball.store import Store, open_store
from timeball.store.changes import Change, ChangeResult
from timeball.store.claims import Capability
from timeball.store.jobs import NewTimes, Placement
from timeball.store.migrate import upgrade_schema
from timeball.store.reaps import LostRun
from timeball.store.revision import HEAD, current_revision


@pytest.fixture
def scene(store: Store) -> Scene:
    return Scene(store)


def change(scene: Scene, job: Job, state: JobState, *, expected_version: int | None = None) -> ChangeResult:
    def decide(locked: Job, _: str | None) -> Change:
        return Change(
            kind="changed",
            state=state,
            definition=locked.definition,
            placement=Placement(handler="function:f", requires=""),
            times=lambda boundary: NewTimes(cursor_at=boundary, next_due_at=boundary + HOUR, anchor_at=boundary),
            unplanned=lambda _: None,
            cancel_pending=state is not JobState.ACTIVE,
        )

    return scene.store.changes.change("default", job.name, decide, actor="test", expected_version=expected_version)


def test_ten_migrations_at_once_leave_one_schema(database_url: str) -> None:
    troubles: list[BaseException] = []

    def migrate() -> None:
        store = open_store(database_url)
        try:
            upgrade_schema(store.database, "default")
        except BaseException as error:
            troubles.append(error)
        finally:
            store.close()

    threads = [threading.Thread(target=migrate) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not troubles
    store = open_store(database_url)
    assert current_revision(store.database) == HEAD
    assert store.leases.read("default").epoch == 0
    store.close()


def test_one_holder_at_a_time_and_every_change_raises_the_epoch(scene: Scene) -> None:
    a, b = scene.join("a"), scene.join("b")
    leases = scene.store.leases
    first = scene.lead(a)
    assert leases.hold("default", b, lifetime_us=HOUR).term is None
    assert leases.hold("default", a, lifetime_us=HOUR).term == first
    scene.execute("UPDATE timeball_lease SET expires_at = 1")
    second = scene.lead(b)
    assert second.epoch == first.epoch + 1
    assert leases.hold("default", a, lifetime_us=HOUR).term is None
    assert not leases.release(first, actor="a")
    assert leases.release(second, actor="b")
    assert scene.lead(a).epoch == second.epoch + 1


def test_two_takeovers_at_once_make_one_leader(scene: Scene) -> None:
    ids = [scene.join(f"i{n}") for n in range(8)]
    terms: list[object] = []
    barrier = threading.Barrier(len(ids))

    def take(instance_id: str) -> None:
        barrier.wait()
        terms.append(scene.store.leases.hold("default", instance_id, lifetime_us=HOUR).term)

    threads = [threading.Thread(target=take, args=(i,)) for i in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len([term for term in terms if term is not None]) == 1
    assert len(terms) == len(ids)


def test_a_missing_lease_row_makes_nobody_leader(scene: Scene) -> None:
    a = scene.join("a")
    scene.execute("DELETE FROM timeball_lease")
    with pytest.raises(LeaseRowMissing):
        scene.store.leases.hold("default", a, lifetime_us=HOUR)


def test_an_instance_that_was_given_up_cannot_lead(scene: Scene) -> None:
    a = scene.join("a")
    scene.execute("UPDATE timeball_instance SET state = 'expired'")
    assert scene.store.leases.hold("default", a, lifetime_us=HOUR).term is None
    assert not scene.store.members.heartbeat(a, lifetime_us=HOUR, handlers=())


def test_a_tick_becomes_a_run_once(scene: Scene) -> None:
    term, job = scene.lead(scene.join("a")), scene.job()
    due = scene.now()
    assert scene.plan(term, job, [due, due + SECOND]) == 2
    scene.execute("UPDATE timeball_job SET cursor_at = 5")
    assert scene.plan(term, job, [due, due + SECOND, due + 2 * SECOND]) == 1
    assert scene.store.jobs.get("default", "job").cursor_at == due + 2 * SECOND


def test_a_deposed_leader_plans_nothing(scene: Scene) -> None:
    a, b = scene.join("a"), scene.join("b")
    old, job = scene.lead(a), scene.job()
    scene.execute("UPDATE timeball_lease SET expires_at = 1")
    with pytest.raises(ClaimLost):
        scene.plan(old, job, [scene.now()])
    scene.lead(b)
    with pytest.raises(ClaimLost):
        scene.plan(old, job, [scene.now()])


def test_two_instances_never_get_the_same_run(scene: Scene) -> None:
    a, b = scene.join("a"), scene.join("b")
    term, job = scene.lead(a), scene.job(overlap="allow")
    now = scene.now()
    scene.plan(term, job, [now + n for n in range(300)])
    got: dict[str, list[int]] = {a: [], b: []}

    def claim(me: str) -> None:
        while claims := scene.claim(me, limit=7):
            got[me] += [c.run_id for c in claims]

    threads = [threading.Thread(target=claim, args=(me,)) for me in (a, b)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(got[a]) + len(got[b]) == len({*got[a], *got[b]}) == 300


def test_a_claim_that_ran_out_is_anybodys_and_the_old_owner_cannot_start_it(scene: Scene) -> None:
    a, b = scene.join("a"), scene.join("b")
    scene.plan(scene.lead(a), scene.job(), [scene.now() - SECOND])
    old = scene.claim(a, slack_us=-SECOND)
    new = scene.claim(b)
    assert [c.run_id for c in new] == [c.run_id for c in old]
    assert not scene.start(a, old).started
    assert len(scene.start(b, new).started) == 1


def test_what_was_given_back_is_planned_again(scene: Scene) -> None:
    a, b = scene.join("a"), scene.join("b")
    scene.plan(scene.lead(a), scene.job(), [scene.now()])
    claims = scene.claim(a)
    assert not scene.claim(b)
    assert scene.store.claims.give_back(a, [c.run_id for c in claims]) == 1
    assert len(scene.claim(b)) == 1


def test_work_goes_only_to_instances_that_can_do_it(scene: Scene) -> None:
    a = scene.join("a")
    scene.plan(scene.lead(a), scene.job(), [scene.now()], requires="gpu=1")
    assert not scene.claim(a)
    assert not scene.claim(a, can=Capability(handlers=["function:g"], requires=["", "gpu=1"]))
    assert len(scene.claim(a, can=Capability(handlers=["function:f"], requires=["", "gpu=1"]))) == 1


def test_an_expired_instance_claims_and_starts_nothing(scene: Scene) -> None:
    a = scene.join("a")
    scene.plan(scene.lead(a), scene.job(overlap="allow"), [scene.now(), scene.now() + 1])
    claims = scene.claim(a, limit=1)
    scene.expire(a)
    assert not scene.start(a, claims).started
    assert not scene.claim(a)
    assert not scene.store.claims.take(a, ANY, limit=10)


def test_an_attempt_starts_once(scene: Scene) -> None:
    a = scene.join("a")
    scene.plan(scene.lead(a), scene.job(), [scene.now()])
    claims = scene.claim(a)
    assert len(scene.start(a, claims).started) == 1
    assert not scene.start(a, claims).started


def test_nothing_starts_after_a_stop(scene: Scene) -> None:
    a = scene.join("a")
    term, job = scene.lead(a), scene.job(overlap="allow")
    scene.plan(term, job, [scene.now(), scene.now() + SECOND])
    claims = scene.claim(a)
    result = change(scene, job, JobState.STOPPED)
    assert (result.changed, result.removed_runs) == (True, 2)
    assert not scene.start(a, claims).started
    assert not scene.store.claims.take(a, ANY, limit=10)
    assert scene.plan(term, job, [scene.now() + 5 * SECOND]) == 0


def test_a_stop_lists_what_still_runs(scene: Scene) -> None:
    a = scene.join("anna")
    job = scene.job()
    scene.plan(scene.lead(a), job, [scene.now()])
    started = scene.start(a, scene.claim(a)).started
    still = change(scene, job, JobState.STOPPED).still_running
    assert [(run.run_id, run.instance) for run in still] == [(started[0].run_id, "anna")]


def test_a_tick_whose_job_still_runs_is_skipped(scene: Scene) -> None:
    a = scene.join("a")
    term, job = scene.lead(a), scene.job(overlap="skip")
    scene.plan(term, job, [scene.now() - SECOND])
    assert len(scene.start(a, scene.claim(a)).started) == 1
    scene.plan(term, job, [scene.now() + SECOND])
    claims = scene.claim(a)
    assert scene.start(a, claims).skipped.keys() == {claims[0].run_id}
    assert scene.state(claims[0].run_id) == "skipped"


def test_fences_rise(scene: Scene) -> None:
    a = scene.join("a")
    scene.plan(scene.lead(a), scene.job(), [scene.now()])
    first = scene.start(a, scene.claim(a)).started[0]
    assert scene.settle(first, "failed", retry_at=scene.now())
    second = scene.start(a, scene.claim(a)).started[0]
    assert (second.run_id, second.attempt) == (first.run_id, 2)
    assert second.fence > first.fence


def test_a_stale_outcome_is_refused_and_told(scene: Scene) -> None:
    a = scene.join("a")
    scene.plan(scene.lead(a), scene.job(), [scene.now()])
    first = scene.start(a, scene.claim(a)).started[0]
    scene.settle(first, "failed", retry_at=scene.now())
    second = scene.start(a, scene.claim(a)).started[0]
    assert not scene.settle(first, "succeeded", me=a)
    assert scene.state(second.run_id) == "running"
    assert scene.store.events.latest("default", kind="run.superseded")
    assert scene.settle(second)


def test_settling_again_after_an_unknown_commit_is_harmless(scene: Scene) -> None:
    a = scene.join("a")
    scene.plan(scene.lead(a), scene.job(), [scene.now()])
    started = scene.start(a, scene.claim(a)).started[0]
    at = scene.now()
    assert scene.settle(started, at=at)
    assert scene.settle(started, at=at)
    assert not scene.store.events.latest("default", kind="run.superseded")


@pytest.mark.parametrize("rerun", [False, True])
def test_the_runs_of_a_dead_instance_are_lost_or_planned_again(scene: Scene, rerun: bool) -> None:
    a, b = scene.join("a"), scene.join("b")
    scene.plan(scene.lead(b), scene.job(), [scene.now()])
    started = scene.start(a, scene.claim(a)).started[0]
    term = scene.lead(b)
    assert scene.store.reaps.expire_members(term) == []
    scene.expire(a)
    assert scene.store.reaps.expire_members(term) == ["a"]
    orphans = scene.store.reaps.orphans(term)
    assert [o.run_id for o in orphans] == [started.run_id]
    losses = [LostRun(orphan=orphan, rerun=rerun, reason="gone") for orphan in orphans]
    assert scene.store.reaps.lose(term, losses) == 1
    assert scene.store.reaps.lose(term, losses) == 0
    assert scene.state(started.run_id) == ("planned" if rerun else "lost")
    # Late, and nobody has taken its place: accepted. After another attempt was planned: refused.
    assert scene.settle(started) is not rerun
    assert scene.state(started.run_id) == ("planned" if rerun else "succeeded")


def test_the_loser_of_settle_against_lose_does_nothing(scene: Scene) -> None:
    a, b = scene.join("a"), scene.join("b")
    scene.plan(scene.lead(b), scene.job(), [scene.now()])
    started = scene.start(a, scene.claim(a)).started[0]
    term = scene.lead(b)
    scene.expire(a)
    scene.store.reaps.expire_members(term)
    orphans = scene.store.reaps.orphans(term)
    assert scene.settle(started)
    assert scene.store.reaps.lose(term, [LostRun(orphan=orphans[0], rerun=True, reason="gone")]) == 0
    assert scene.state(started.run_id) == "succeeded"


def test_a_lost_race_between_two_edits_is_a_conflict(scene: Scene) -> None:
    job = scene.job()
    change(scene, job, JobState.ACTIVE, expected_version=1)
    with pytest.raises(Conflict, match="version 2, not 1"):
        change(scene, job, JobState.ACTIVE, expected_version=1)


def test_delete_frees_the_name_and_keeps_the_history(scene: Scene) -> None:
    a = scene.join("a")
    job = scene.job()
    scene.plan(scene.lead(a), job, [scene.now()])
    scene.settle(scene.start(a, scene.claim(a)).started[0])
    change(scene, job, JobState.DELETED)
    with pytest.raises(NotFound):
        scene.store.jobs.get("default", "job")
    assert scene.job().id != job.id
    assert len(scene.store.audits.versions("default", "job")) == 3
    assert len(list(scene.store.audits.ledger(job.id, after=0, until=scene.now() + HOUR))) == 1


def test_a_taken_name_is_a_conflict(scene: Scene) -> None:
    scene.job()
    with pytest.raises(Conflict, match="exists already"):
        scene.job()


def test_the_same_key_triggers_one_run(scene: Scene) -> None:
    scene.job()
    runs: list[int] = []

    def place(_: Definition) -> Placement:
        return Placement(handler="function:f", requires="")

    def trigger() -> None:
        runs.append(
            scene.store.jobs.trigger("default", "job", place=place, args=None, idempotency_key="k", actor="test")
        )

    threads = [threading.Thread(target=trigger) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(runs) == 4
    assert len(set(runs)) == 1


def test_retention_removes_what_is_old_and_only_that(scene: Scene) -> None:
    a = scene.join("a")
    term, job = scene.lead(a), scene.job(overlap="allow")
    now = scene.now()
    scene.plan(term, job, [now - 3, now - 2, now - 1])
    for started in scene.start(a, scene.claim(a, limit=2)).started:
        scene.settle(started)
    scene.execute("UPDATE timeball_run SET due_at = due_at - :back, ended_at = 5 WHERE state = 'succeeded'", back=HOUR)
    after: int | None = 0
    while after is not None:
        after = scene.store.purges.runs_by_age(term, before=now - HOUR // 2, after_id=after)
    left = list(scene.store.audits.ledger(job.id, after=0, until=now + HOUR))
    assert [row.state for row in left] == ["planned"]
