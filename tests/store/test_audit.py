"""What the audit calls broken, and what only waits for a leader."""

from __future__ import annotations

import pytest

from tests.store.scene import SECOND, Scene
from timeball.model.cluster import Term
from timeball.model.job import Job
from timeball.service.audit import audit
from timeball.store import Store

MINUTE = 60 * SECOND


@pytest.fixture
def scene(store: Store) -> Scene:
    return Scene(store)


def planned(scene: Scene, *, leave_out: int | None = None) -> tuple[Term, Job, list[int]]:
    """A job of one tick a second, active for ten minutes; five old ticks are planned, one of them left out."""
    term = scene.lead(scene.join("a"))
    job = scene.job(overlap="allow")
    begin = (scene.now() - 10 * MINUTE) // SECOND * SECOND
    scene.execute("UPDATE timeball_job_version SET from_at = :at", at=begin)
    scene.execute("UPDATE timeball_job SET cursor_at = :at", at=begin)
    dues = [begin + n * SECOND for n in range(1, 6)]
    scene.plan(term, job, [due for number, due in enumerate(dues) if number != leave_out])
    scene.execute("UPDATE timeball_run SET state = 'succeeded', started_at = due_at, ended_at = due_at")
    return term, job, dues


def test_ticks_behind_the_cursor_wait_for_the_next_leader_and_are_no_violation(scene: Scene) -> None:
    planned(scene)
    scene.execute("UPDATE timeball_lease SET expires_at = 1")
    report = audit(scene.store, "default")
    assert (report.clean, report.led) == (True, False)
    assert report.open > 500
    scene.execute("UPDATE timeball_lease SET expires_at = :at, acquired_at = 1", at=scene.now() + MINUTE)
    report = audit(scene.store, "default")
    assert (report.clean, report.led) == (False, True)
    assert report.without_fate > 500


def test_the_worst_gap_names_its_job(scene: Scene) -> None:
    planned(scene, leave_out=2)
    report = audit(scene.store, "default")
    assert (report.worst_gap_us, report.worst_gap_job) == (2 * SECOND, "job")
    assert report.to_json()["worst_gap_job"] == "job"


def test_a_tick_before_the_cursor_without_a_row_is_a_violation_whoever_leads(scene: Scene) -> None:
    _, _, dues = planned(scene, leave_out=2)
    scene.execute("UPDATE timeball_lease SET expires_at = 1")
    report = audit(scene.store, "default")
    assert [(v.kind, v.due_at) for v in report.violations] == [("without-fate", dues[2])]


def test_a_planned_run_that_nobody_started_waits_too(scene: Scene) -> None:
    planned(scene)
    scene.execute("UPDATE timeball_run SET state = 'planned', started_at = NULL, ended_at = NULL")
    scene.execute("UPDATE timeball_lease SET expires_at = 1")
    assert audit(scene.store, "default").clean
