"""What a job is: people who change it, leaders who plan it, and the tick that must become a run once."""

from __future__ import annotations

import pytest

from tests.races.changes import break_job, delete, edit, stop, trigger
from tests.races.conftest import Arena
from tests.races.rivals import COMMIT, LATE, MEETINGS, ROLLBACK
from tests.store.scene import HOUR, SECOND, Scene
from timeball.errors import Conflict
from timeball.model.job import Job
from timeball.store.database import sql
from timeball.store.plans import JobPlan, PlannedTick

every_meeting = pytest.mark.parametrize("meeting", MEETINGS)


def plan_of(job: Job, dues: list[int], *, cursor: int | None = None) -> JobPlan:
    """What a planner decided after it had read this version of the job."""
    return JobPlan(
        job_id=job.id,
        version=job.version,
        cursor_before=job.cursor_at if cursor is None else cursor,
        cursor_after=max(dues),
        next_due_at=max(dues) + 1,
        handler="function:f",
        requires="",
        priority=0,
        exclusive=False,
        ticks=[PlannedTick(due_at=due, start_by=1 << 61) for due in dues],
    )


def write(arena: Arena, scene: Scene, plan: JobPlan) -> int:
    return scene.store.plans.write(arena.term, [plan], tzdata="x")


def ticks(scene: Scene) -> list[int]:
    query = sql("SELECT due_at FROM timeball_run WHERE kind = 'scheduled' ORDER BY due_at")
    return [row[0] for row in scene.store.database.read(lambda tx: tx.all(query))]


@every_meeting
def test_the_stop_that_comes_after_the_start_lists_the_run_as_running(arena: Arena, meeting: str) -> None:
    job = arena.planned(overlap="allow")
    claims = arena.one.claim(arena.a)
    answer = arena.meet(
        lambda: stop(arena.one, job),
        lambda: arena.two.start(arena.a, claims),
        meeting,
        before=arena.mine.changes._live_runs,
    )
    listed = [run.run_id for run in answer.still_running]
    assert listed == ([] if meeting == ROLLBACK else [claims[0].run_id])
    assert answer.removed_runs == (meeting == ROLLBACK)


@every_meeting
def test_the_delete_that_comes_after_the_start_lists_the_run_as_running(arena: Arena, meeting: str) -> None:
    job = arena.planned(overlap="allow")
    claims = arena.one.claim(arena.a)
    answer = arena.meet(
        lambda: delete(arena.one, job),
        lambda: arena.two.start(arena.a, claims),
        meeting,
        before=arena.mine.changes._live_runs,
    )
    assert len(answer.still_running) == (meeting != ROLLBACK)


@every_meeting
def test_the_edit_that_comes_after_the_start_leaves_the_run_to_its_old_version(arena: Arena, meeting: str) -> None:
    job = arena.planned(overlap="allow")
    claims = arena.one.claim(arena.a)
    answer = arena.meet(
        lambda: edit(arena.one, job, priority=7),
        lambda: arena.two.start(arena.a, claims),
        meeting,
        before=arena.mine.changes._live_runs,
    )
    assert len(answer.still_running) == (meeting != ROLLBACK)
    assert arena.one.state(claims[0].run_id) == ("planned" if meeting == ROLLBACK else "running")


@every_meeting
def test_the_second_of_two_edits_of_one_version_is_a_conflict(arena: Arena, meeting: str) -> None:
    job = arena.planned()

    def edit_first() -> int:
        return arena.mine.changes.change("default", "job", lambda *_: None, actor="me", expected_version=1).job.version

    def second() -> int | str:
        try:
            return edit_first()
        except Conflict as error:
            return str(error)

    answer = arena.meet(second, lambda: edit(arena.two, job, priority=7), meeting, before=arena.mine.changes._lock)
    assert answer == 1 if meeting == ROLLBACK else "version 2, not 1" in str(answer)


@every_meeting
def test_a_plan_that_comes_after_the_edit_writes_nothing(arena: Arena, meeting: str) -> None:
    """The edit leaves the cursor where it was: the version alone tells that the plan is by an old definition."""
    job = arena.one.job()
    plan = plan_of(job, [arena.one.now() + HOUR])
    inserted = arena.meet(
        lambda: write(arena, arena.one, plan),
        lambda: edit(arena.two, job, keep_cursor=True, priority=7),
        meeting,
        before=arena.mine.plans._lock,
    )
    assert inserted == (meeting == ROLLBACK)
    assert len(ticks(arena.one)) == inserted


@every_meeting
def test_a_plan_that_comes_after_the_stop_writes_nothing(arena: Arena, meeting: str) -> None:
    job = arena.one.job()
    plan = plan_of(job, [arena.one.now() + HOUR])
    inserted = arena.meet(
        lambda: write(arena, arena.one, plan), lambda: stop(arena.two, job), meeting, before=arena.mine.plans._lock
    )
    assert inserted == (meeting == ROLLBACK)


@every_meeting
def test_a_plan_that_comes_after_its_job_was_set_aside_writes_nothing(arena: Arena, meeting: str) -> None:
    """Setting aside makes no version: the state alone tells."""
    job = arena.one.job()
    plan = plan_of(job, [arena.one.now() + HOUR])
    inserted = arena.meet(
        lambda: write(arena, arena.one, plan),
        lambda: break_job(arena.two, arena.term, job),
        meeting,
        before=arena.mine.plans._lock,
    )
    assert inserted == (meeting == ROLLBACK)


@every_meeting
def test_the_edit_that_comes_after_the_plan_removes_what_it_planned(arena: Arena, meeting: str) -> None:
    job = arena.one.job()
    plan = plan_of(job, [arena.one.now() + HOUR, arena.one.now() + 2 * HOUR])
    answer = arena.meet(
        lambda: edit(arena.one, job, priority=7),
        lambda: write(arena, arena.two, plan),
        meeting,
        before=arena.mine.changes._lock,
    )
    assert answer.removed_runs == (0 if meeting == ROLLBACK else 2)
    assert ticks(arena.one) == []


@every_meeting
def test_the_second_plan_from_one_cursor_neither_adds_ticks_nor_moves_the_cursor_back(
    arena: Arena, meeting: str
) -> None:
    """The answer of the first was lost, or a planner's thread hung and was replaced: the term is the same."""
    job = arena.one.job()
    due = arena.one.now() + HOUR
    short, long = plan_of(job, [due]), plan_of(job, [due, due + SECOND, due + 2 * SECOND])
    inserted = arena.meet(
        lambda: write(arena, arena.one, short),
        lambda: write(arena, arena.two, long),
        meeting,
        before=arena.mine.plans._lock,
    )
    won = meeting != ROLLBACK
    assert inserted == (0 if won else 1)
    assert len(ticks(arena.one)) == (3 if won else 1)
    assert arena.mine.jobs.get("default", "job").cursor_at == max(ticks(arena.one))


@every_meeting
def test_a_plan_that_comes_after_the_skip_of_its_tick_leaves_the_tick_skipped(arena: Arena, meeting: str) -> None:
    """The skip has made the row already: the plan's own insert of that tick is no error, and no second run."""
    job = arena.one.job()
    due = arena.one.now() + HOUR
    inserted = arena.meet(
        lambda: write(arena, arena.one, plan_of(job, [due, due + SECOND])),
        lambda: arena.theirs.skips.skip("default", "job", lambda *_: due, actor="anna"),
        meeting,
        before=arena.mine.plans._lock,
    )
    assert inserted == (2 if meeting == ROLLBACK else 1)
    assert ticks(arena.one) == [due, due + SECOND]


def test_a_tick_that_is_a_run_already_is_no_second_run_though_the_cursor_was_set_back(arena: Arena) -> None:
    job = arena.one.job()
    due = arena.one.now() + HOUR
    assert write(arena, arena.one, plan_of(job, [due])) == 1
    arena.one.execute("UPDATE timeball_job SET cursor_at = 5")
    assert write(arena, arena.one, plan_of(job, [due, due + SECOND], cursor=5)) == 1
    assert ticks(arena.one) == [due, due + SECOND]


@every_meeting
def test_the_second_trigger_with_one_key_gets_the_run_of_the_first(arena: Arena, meeting: str) -> None:
    job = arena.one.job()
    made: list[int] = []
    mine = arena.meet(
        lambda: trigger(arena.one, job, "k"),
        lambda: made.append(trigger(arena.two, job, "k")),
        meeting,
        before=arena.mine.jobs._trigger,
    )
    assert made == ([] if meeting == ROLLBACK else [mine])
    count = arena.one.store.database.read(lambda tx: tx.one(sql("SELECT count(*) FROM timeball_run")))
    assert count is not None
    assert count[0] == 1


@pytest.mark.parametrize("meeting", [LATE, COMMIT])
def test_a_trigger_that_comes_after_the_edit_makes_a_run_of_the_new_version(arena: Arena, meeting: str) -> None:
    job = arena.one.job()
    arena.meet(
        lambda: trigger(arena.one, job),
        lambda: edit(arena.two, job, priority=7),
        meeting,
        before=arena.mine.jobs._lock_shared,
    )
    assert [claim.job_version for claim in arena.one.claim(arena.b)] == [2]
