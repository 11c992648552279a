"""An owner that says itself that its work is lost: what follows is the job's `on_lost`, as for the leader's verdict."""

from __future__ import annotations

import pytest

from tests.store.scene import Scene
from tests.store.test_bad_outcomes import settle_all
from timeball.engine.settler import _next_at
from timeball.model.job import Definition
from timeball.model.run import Outcome
from timeball.model.states import State
from timeball.policy.lost import lost_again_at
from timeball.store import Store
from timeball.store.reaps import LostRun


def define(**policies: object) -> Definition:
    return Definition.from_dict({"schedule": "none", "executor": "function", "target": {"name": "f"}, **policies})


def test_a_lost_outcome_leaves_the_run_lost_in_words(store: Store, database_url: str) -> None:
    ids = settle_all(
        store,
        database_url,
        lambda o: o._replace(state=State.LOST, reason="no-result", error="no result after 5 s"),
    )
    run = store.runs.get("default", ids[1])
    assert (run.state, run.reason, run.error, run.late) == ("lost", "no-result", "no result after 5 s", False)


def test_under_rerun_another_attempt_follows_and_the_lost_one_keeps_its_record(store: Store) -> None:
    scene = Scene(store)
    me = scene.join("a")
    job = scene.job(on_lost="rerun")
    scene.plan(scene.lead(me), job, [scene.now()])
    (started,) = scene.start(me, scene.claim(me)).started
    outcome = Outcome(started.run_id, started.attempt, started.fence, State.LOST, 1, 2)
    again_at = _next_at(job.definition, outcome, scene.now())
    assert again_at is not None
    assert scene.settle(started, "lost", retry_at=again_at)
    run = store.runs.get("default", started.run_id)
    assert (run.state, run.attempt) == ("planned", 2)
    assert [attempt.state for attempt in store.runs.attempts(started.run_id)] == ["lost"]


def test_what_the_leader_has_declared_lost_is_not_lost_once_more_by_its_owner(store: Store) -> None:
    scene = Scene(store)
    me, leader = scene.join("a"), scene.join("b")
    scene.plan(scene.lead(leader), scene.job(), [scene.now()])
    (started,) = scene.start(me, scene.claim(me)).started
    scene.expire(me)
    term = scene.lead(leader)
    store.reaps.expire_members(term)
    orphans = store.reaps.orphans(term, limit=10)
    assert store.reaps.lose(term, [LostRun(orphan=orphan, rerun=False, reason="gone") for orphan in orphans])
    assert not scene.settle(started, "lost")
    run = store.runs.get("default", started.run_id)
    assert (run.state, run.reason, run.late) == ("lost", "gone", False)
    assert scene.settle(started, "succeeded")


@pytest.mark.parametrize(("on_lost", "attempt", "again"), [("fail", 1, False), ("hold", 1, False), ("rerun", 4, False)])
def test_no_attempt_follows_where_the_job_does_not_rerun_or_its_losses_are_spent(
    on_lost: str, attempt: int, again: bool
) -> None:
    definition = define(on_lost=on_lost, lost_max=3)
    assert (lost_again_at(definition, attempt=attempt, ended_at=7) is not None) is again
    assert lost_again_at(define(on_lost="rerun", lost_max=3), attempt=3, ended_at=7) == 7
