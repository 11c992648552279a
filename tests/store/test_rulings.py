"""What a person decides about a run: cancel it, run it again, say how it ended; as steps of whole instances."""

from __future__ import annotations

import dataclasses

import pytest

from tests.store.scene import SECOND
from tests.store.stepped import Bench, eventually
from timeball.engine.engine import Engine
from timeball.errors import Conflict, InvalidInput, NotFound
from timeball.service.audit import audit
from timeball.service.runs import RunService
from timeball.store.runs import StoredRun

WEDNESDAY = "2030-06-05T12:00:30Z"


def people(bench: Bench) -> RunService:
    return RunService(bench.store, bench.jobs, namespace="default", actor="anna")


def run(bench: Bench, run_id: int) -> StoredRun:
    return bench.store.runs.get("default", run_id)


def kinds(bench: Bench, run_id: int) -> list[str]:
    return [event.kind for event in bench.store.events.latest("default") if event.run_id == run_id]


def orphan(bench: Bench, *, reaped: bool = True, schedule: str = "none", **policies: object) -> tuple[Engine, int]:
    """A run that was going when its instance fell silent; and an instance that leads."""
    bench.set_clock(WEDNESDAY)
    gone, leader = bench.instance("gone"), bench.instance("leader")
    bench.jobs.create("job", bench.define(schedule, "long", **policies))
    leader.lease.step()
    run_id = bench.jobs.trigger("job")
    bench.round(gone)
    assert bench.begun.acquire(timeout=20)
    for _ in range(3):
        bench.move_clock(4 * SECOND)
        leader.member.step()
        leader.lease.step()
    if reaped:
        leader.reaper.step()
        assert run(bench, run_id).state == "lost"
    return leader, run_id


def test_orph_015_a_rerun_by_hand_and_the_clusters_own_make_one_new_attempt(bench: Bench) -> None:
    leader, run_id = orphan(bench, reaped=False, on_lost="rerun")
    with pytest.raises(Conflict, match=r"has not ended: it is running on gone, which is gone; .* on_lost \(rerun\)"):
        people(bench).rerun(run_id, attempt=1)
    leader.reaper.step()
    answer = people(bench).rerun(run_id, attempt=1)
    assert (answer.changed, answer.attempt, answer.state) == (False, 2, "planned")
    assert not people(bench).rerun(run_id).changed
    bench.release.set()
    bench.round(leader)
    assert (run(bench, run_id).state, run(bench, run_id).attempt, len(bench.calls)) == ("succeeded", 2, 2)
    assert not people(bench).rerun(run_id, attempt=1).changed  # pressed once more when it had ended
    assert len(bench.store.runs.attempts(run_id)) == 1


def test_a_held_run_waits_for_a_person_who_runs_it_again_once(bench: Bench) -> None:
    leader, run_id = orphan(bench, on_lost="hold")
    for _ in range(3):
        bench.move_clock(3 * SECOND)
        bench.round(leader)
    assert "held for a person" in str(run(bench, run_id).reason)
    first, second = people(bench).rerun(run_id, attempt=1), people(bench).rerun(run_id, attempt=1)
    assert (first.changed, first.attempt, second.changed) == (True, 2, False)
    bench.release.set()
    bench.round(leader)
    ended = run(bench, run_id)
    assert (ended.state, ended.attempt, ended.instance, ended.late) == ("succeeded", 2, "leader", False)
    (before,) = bench.store.runs.attempts(run_id)
    assert (before.state, before.instance, int(ended.fence or 0) > int(before.fence or 0)) == ("lost", "gone", True)
    assert kinds(bench, run_id).count("run.rerun") == 1


def test_what_the_lost_instance_says_after_a_rerun_by_hand_is_refused(bench: Bench) -> None:
    leader, run_id = orphan(bench, on_lost="hold")
    (gone, _) = bench._engines
    people(bench).rerun(run_id)
    bench.release.set()
    eventually(lambda: len(gone.settler) == 1)
    gone.settler.step()
    assert run(bench, run_id).state == "planned"
    assert "run.superseded" in kinds(bench, run_id)
    bench.round(leader)
    assert (run(bench, run_id).state, run(bench, run_id).instance) == ("succeeded", "leader")


@pytest.mark.parametrize("verdict", ["succeeded", "failed", "cancelled"])
def test_a_person_says_how_a_lost_run_ended_and_its_instance_has_no_further_word(bench: Bench, verdict: str) -> None:
    leader, run_id = orphan(bench, on_lost="hold", attempts_max=3)
    answer = people(bench).settle(run_id, verdict, note="I looked")
    assert (answer.changed, answer.state) == (True, verdict)
    assert not people(bench).settle(run_id, verdict).changed
    (gone, _) = bench._engines
    bench.release.set()
    eventually(lambda: len(gone.settler) == 1)
    gone.settler.step()
    bench.round(leader)
    ended = run(bench, run_id)
    assert (ended.state, ended.reason, ended.attempt) == (verdict, f"{verdict} by the word of anna: I looked", 1)
    assert "run.superseded" in kinds(bench, run_id)
    assert len(bench.calls) == 1


def test_only_what_is_lost_is_settled_by_hand(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    bench.jobs.create("job", bench.define("none"))
    run_id = bench.jobs.trigger("job")
    with pytest.raises(Conflict, match="is planned, not lost"):
        people(bench).settle(run_id, "succeeded")
    with pytest.raises(InvalidInput, match="cannot be settled as 'lost'"):
        people(bench).settle(run_id, "lost")
    with pytest.raises(InvalidInput, match="one line"):
        people(bench).settle(run_id, "failed", note="a\nb")
    with pytest.raises(NotFound, match="there is no run 99"):
        people(bench).settle(99, "failed")
    other = RunService(bench.store, bench.jobs, namespace="elsewhere", actor="anna")
    for verb in (other.cancel, other.rerun, lambda n: other.settle(n, "failed")):
        with pytest.raises(NotFound):
            verb(run_id)


def test_a_rerun_runs_by_the_definition_of_today_where_that_can_run(bench: Bench) -> None:
    leader, run_id = orphan(bench, on_lost="hold")
    bench.jobs.edit("job", dataclasses.replace(bench.jobs.get("job").definition, target={"name": "note"}))
    people(bench).rerun(run_id)
    bench.round(leader)
    assert run(bench, run_id).state == "succeeded"
    assert run(bench, run_id).job_version == bench.jobs.get("job").version
    assert len(bench.calls) == 2
    with pytest.raises(Conflict, match=r"is succeeded: there is nothing to run again"):
        people(bench).rerun(run_id)
    with pytest.raises(Conflict, match="has no attempt 7"):
        people(bench).rerun(run_id, attempt=7)


def test_a_tick_of_a_stopped_job_and_any_run_of_a_deleted_one_do_not_run_again(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    a = bench.instance("a")
    bench.functions.register("fail", lambda: 1 // 0)
    bench.jobs.create("job", bench.define("* * * * * *", "fail", overlap="allow"))
    bench.round(a)
    bench.move_clock(2 * SECOND)
    bench.round(a)
    failed = next(r for r in bench.runs("job") if r.state == "failed")
    manual = bench.jobs.trigger("job")
    bench.round(a)
    bench.jobs.stop("job")
    with pytest.raises(Conflict, match="is stopped, so none of its ticks runs"):
        people(bench).rerun(failed.id)
    assert people(bench).rerun(manual).changed
    bench.round(a)
    assert (run(bench, manual).state, run(bench, manual).attempt) == ("failed", 2)
    bench.jobs.start("job")
    assert people(bench).rerun(failed.id).changed
    bench.round(a)
    assert run(bench, failed.id).attempt == 2
    assert audit(bench.store, "default").violations == []
    bench.jobs.delete("job")
    with pytest.raises(Conflict, match="is deleted"):
        people(bench).rerun(failed.id)


def test_a_run_of_after_that_another_has_followed_stays_as_it_ended(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    a = bench.instance("a")
    bench.functions.register("fail", lambda: 1 // 0)
    bench.jobs.create("job", bench.define("@after 5s", "fail"))
    for _ in range(4):
        bench.round(a)
        bench.move_clock(3 * SECOND)
    ended = sorted((r for r in bench.runs("job") if r.state == "failed"), key=lambda r: r.due_at)
    with pytest.raises(Conflict, match="has been followed by another"):
        people(bench).rerun(ended[0].id)


def test_a_run_that_waits_is_cancelled_at_once_and_a_coming_tick_is_left_to_skip(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    a = bench.instance("a")
    bench.jobs.create("by-hand", bench.define("none"))
    run_id = bench.jobs.trigger("by-hand")
    answer = people(bench).cancel(run_id)
    assert (answer.changed, answer.state) == (True, "cancelled")
    assert not people(bench).cancel(run_id).changed
    bench.round(a)
    assert (run(bench, run_id).state, bench.calls, kinds(bench, run_id)) == ("cancelled", [], ["run.cancelled"])
    bench.jobs.create("job", bench.define("*/20 * * * * *"))
    bench.round(a)
    coming = max((r for r in bench.runs("job") if r.state == "planned"), key=lambda run: run.due_at)
    with pytest.raises(Conflict, match="is a coming tick") as refused:
        people(bench).cancel(coming.id)
    assert refused.value.hint == "timeball jobs skip job"
    with pytest.raises(Conflict, match="there is nothing to run again"):
        people(bench).rerun(run_id)  # it never began


def test_a_run_is_cancelled_on_another_instance_and_again_after_a_rerun_by_hand(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    a = bench.instance("a")
    bench.jobs.create("job", bench.define("none", "long"))
    run_id = bench.jobs.trigger("job")
    for attempt in (1, 2):
        bench.round(a)
        assert bench.begun.acquire(timeout=20)
        asked = people(bench).cancel(run_id)
        assert (asked.changed, asked.state, asked.owner, asked.owner_gone) == (True, "running", "a", False)
        assert not people(bench).cancel(run_id).changed
        a.canceller.step()
        eventually(lambda: a.runner.load() == 0)
        a.settler.step()
        assert (run(bench, run_id).state, run(bench, run_id).attempt) == ("cancelled", attempt)
        assert not people(bench).cancel(run_id).changed
        if attempt == 1:
            assert people(bench).rerun(run_id, attempt=1).changed
    assert run(bench, run_id).cancel_reason == "cancelled by anna"


def test_a_wish_to_cancel_what_a_lost_instance_has_says_that_nobody_hears_it(bench: Bench) -> None:
    _, run_id = orphan(bench, reaped=False)
    answer = people(bench).cancel(run_id, wait_seconds=60)
    assert (answer.state, answer.owner, answer.owner_gone) == ("running", "gone", True)
