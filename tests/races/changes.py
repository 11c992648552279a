"""Changes to a job as a service would ask for them, for either side of a race."""

from __future__ import annotations

from tests.store.scene import HOUR, Scene
from timeball.model.cluster import Term
from timeball.model.job import Definition, Job, JobState
from timeball.store.changes import Change, ChangeResult
from timeball.store.jobs import NewTimes, Placement
from timeball.store.plans import DueJob


def change(
    scene: Scene, job: Job, state: JobState, *, keep_cursor: bool = False, kind: str = "changed", **policies: object
) -> ChangeResult:
    """`keep_cursor`: the new version goes on from where planning stood."""

    def decide(locked: Job, _: str | None) -> Change:
        definition = Definition.from_dict({**locked.definition.to_dict(), **policies})
        scene.definitions[locked.id, locked.version + 1] = definition
        return Change(
            kind=kind,
            state=state,
            definition=definition,
            placement=Placement(handler="function:f", requires="") if state is JobState.ACTIVE else None,
            times=lambda boundary: NewTimes(
                cursor_at=locked.cursor_at if keep_cursor else boundary,
                next_due_at=boundary + HOUR,
                anchor_at=boundary,
            ),
            unplanned=lambda _: None,
            cancel_pending=state is not JobState.ACTIVE,
        )

    return scene.store.changes.change("default", job.name, decide, actor="test")


def edit(scene: Scene, job: Job, **policies: object) -> ChangeResult:
    return change(scene, job, JobState.ACTIVE, **policies)


def stop(scene: Scene, job: Job) -> ChangeResult:
    return change(scene, job, JobState.STOPPED, kind="stopped")


def delete(scene: Scene, job: Job) -> ChangeResult:
    return change(scene, job, JobState.DELETED, kind="deleted")


def trigger(scene: Scene, job: Job, key: str | None = None) -> int:
    return scene.store.jobs.trigger(
        "default",
        job.name,
        place=lambda _: Placement(handler="function:f", requires=""),
        args=None,
        idempotency_key=key,
        actor="test",
    )


def break_job(scene: Scene, term: Term, job: Job) -> None:
    """What the planner does with a definition that it cannot read."""
    due = DueJob(
        id=job.id,
        name=job.name,
        version=scene.store.jobs.get("default", job.name).version,
        definition="",
        cursor_at=0,
        next_due_at=0,
        anchor_at=0,
    )
    scene.store.plans.mark_broken(term, due, "broken")
