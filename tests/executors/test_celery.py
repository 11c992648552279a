"""Celery: real workers on a real Redis; each run ends with a record that says what became of its task."""

from __future__ import annotations

from pathlib import Path

import pytest
from celery import Celery

from tests.cluster.instances import eventually
from tests.executors.bench_of_work import Outcomes, output_of
from tests.executors.celery_bench import Bench, lines, task
from tests.executors.celery_servers import Worker
from timeball.executors.celery.target import headers_of, identity_of, task_id_of
from timeball.model.run import Work
from timeball.model.states import State


def test_a_task_that_succeeds_leaves_its_result(bench: Bench) -> None:
    outcome = bench.run(task("add", a=1, b=2))
    assert (outcome.state, outcome.reason, outcome.result, outcome.outputs) == (State.SUCCEEDED, None, "3", ())


def test_the_runs_identity_goes_along(bench: Bench) -> None:
    work = task("whose")
    expected = f'[{work.run_id}, "a job", "2023-11-14T22:13:20.000000Z", 1, 42, "default"]'
    assert bench.run(work).result == expected


def test_a_task_that_raises_says_what_and_where(bench: Bench) -> None:
    outcome = bench.run(task("fails", text="no paper"))
    assert (outcome.state, outcome.reason, outcome.error) == (State.FAILED, "exception", "ValueError: no paper")
    assert "raise ValueError(text)" in output_of(outcome, "traceback")


def test_a_task_that_no_worker_knows_fails_in_words(bench: Bench) -> None:
    outcome = bench.run(task("of_nobody"))
    assert (outcome.state, outcome.error) == (
        State.FAILED,
        "NotRegistered: tests.executors.celery_tasks.of_nobody",
    )


def test_a_task_that_kills_its_process_is_a_failed_run_with_its_signal(bench: Bench) -> None:
    outcome = bench.run(task("crashes"))
    assert (outcome.state, outcome.reason) == (State.FAILED, "exception")
    assert "SIGKILL" in (outcome.error or "")


@pytest.mark.parametrize("chars", [5_000, 3_000_000])
def test_a_large_result_is_not_kept_and_that_is_said(bench: Bench, chars: int) -> None:
    outcome = bench.run(task("much", chars=chars))
    assert (outcome.state, outcome.result) == (State.SUCCEEDED, None)
    assert "the result was not kept" in output_of(outcome, "log")


@pytest.mark.parametrize("chars", [20_000, 3_000_000])
def test_a_large_exception_stays_within_the_bounds(bench: Bench, chars: int) -> None:
    outcome = bench.run(task("fails", text="x" * chars))
    assert outcome.state is State.FAILED
    assert len(outcome.error or "") <= 4000
    assert sum(len(output.text) for output in outcome.outputs) < 66_000


def test_a_time_out_ends_the_task_and_says_that_celery_has_confirmed_it(bench: Bench, tmp_path: Path) -> None:
    outcome = bench.run(task("works", timeout=1, file=str(tmp_path / "notes"), seconds=2))
    assert (outcome.state, outcome.reason) == (State.TIMED_OUT, "timeout")
    assert "ended after its time-out of 1 s; Celery has ended task" in (outcome.error or "")
    assert bench.run(task("works", file=str(tmp_path / "later"), seconds=2)).result == '"done"'
    assert lines(tmp_path / "notes") == ["begun"]


def test_a_cancelled_task_is_ended_and_says_by_whom(bench: Bench, tmp_path: Path) -> None:
    work = task("works", file=str(tmp_path / "notes"))
    executor, outcomes = bench.begin(work)
    assert executor.running() == (work.run_id,)
    assert executor.cancel(work.run_id, "cancelled by anna")
    outcome = outcomes.wait(work)[0]
    assert (outcome.state, outcome.reason) == (State.CANCELLED, "cancelled")
    assert (outcome.error or "").startswith("cancelled by anna; Celery has ended task timeball-")
    assert not executor.cancel(work.run_id, "again")


def somebody_revokes(bench: Bench, work: Work, *, terminate: bool) -> None:
    somebody = Celery(broker=bench.results.url, set_as_current=False)
    somebody.control.revoke(task_id_of(identity_of(bench.place, work), work), terminate=terminate)


def test_a_task_that_somebody_else_ended_is_cancelled(bench: Bench, tmp_path: Path) -> None:
    work = task("works", file=str(tmp_path / "notes"))
    _, outcomes = bench.begin(work)
    somebody_revokes(bench, work, terminate=True)
    outcome = outcomes.wait(work)[0]
    assert (outcome.state, outcome.reason) == (State.CANCELLED, "revoked")
    assert "was revoked: TaskRevokedError: terminated" in (outcome.error or "")


def test_a_task_that_somebody_else_revoked_and_no_worker_had_is_cancelled_and_says_so(bench: Bench) -> None:
    work, outcomes = task("add", target={"queue": "nobody"}), Outcomes()
    bench.executor(grace_seconds=0.5).submit([work], outcomes)
    eventually(lambda: bench.results.client.llen("nobody"))
    somebody_revokes(bench, work, terminate=False)
    outcome = outcomes.wait(work)[0]
    assert (outcome.state, outcome.reason) == (State.CANCELLED, "revoked")
    assert "no worker said within 0.5 s that it ended Celery task" in (outcome.error or "")


def test_a_guarded_task_that_has_not_begun_never_does_once_its_run_timed_out(bench: Bench, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    work = task("works_once", timeout=0.5, target={"queue": "later", "once": True}, file=str(notes), seconds=0)
    outcome = bench.run(work)
    assert outcome.state is State.TIMED_OUT
    assert "had not begun, and will not" in (outcome.error or "")
    # A worker that has not heard of the revoke, nor asks its neighbours.
    alone = ("-Q", "later", "-P", "solo", "--without-mingle")
    with Worker(tmp_path / "later", bench.results.url, bench.results.url, *alone) as later:
        eventually(lambda: "was given up before it came here" in later.log() or lines(notes))
    assert lines(notes) == []


def test_an_attempt_that_is_handed_over_twice_is_one_task(bench: Bench, tmp_path: Path) -> None:
    work = task("works", file=str(tmp_path / "notes"), seconds=1)
    first, outcomes = bench.begin(work)
    other = Outcomes()
    bench.executor().submit([work], other)
    assert (outcomes.wait(work)[0].result, other.wait(work)[0].result) == ('"done"', '"done"')
    assert lines(tmp_path / "notes") == ["begun", "ended"]
    assert first.running() == ()


def test_a_second_message_with_the_id_of_a_guarded_task_does_not_begin(
    bench: Bench, worker: Worker, tmp_path: Path
) -> None:
    work = task("works_once", target={"once": True}, file=str(tmp_path / "notes"), seconds=1)
    _, outcomes = bench.begin(work)
    task_id = task_id_of(identity_of(bench.place, work), work)
    sender = Celery(broker=bench.results.url, set_as_current=False)
    sender.send_task(work.target["task"], kwargs=dict(work.args), task_id=task_id, headers=headers_of(work))
    eventually(lambda: f"task {task_id} was delivered again" in worker.log())
    assert outcomes.wait(work)[0].result == '"done"'
    assert lines(tmp_path / "notes") == ["begun", "ended"]


def test_a_guarded_task_that_asks_celery_for_another_try_gets_it(bench: Bench, tmp_path: Path) -> None:
    outcome = bench.run(task("third_time", target={"once": True}, file=str(tmp_path / "notes")))
    assert outcome.result == '"done"'
    assert lines(tmp_path / "notes") == ["begun"] * 3


def test_the_next_attempt_follows_the_task_of_an_instance_that_is_gone(bench: Bench, tmp_path: Path) -> None:
    work = task("works", file=str(tmp_path / "notes"), seconds=2)
    gone, _ = bench.begin(work)
    assert gone.close(0) == (work.run_id,)
    outcome = bench.run(work._replace(attempt=2, fence=43))
    assert (outcome.state, outcome.attempt, outcome.fence, outcome.result) == (State.SUCCEEDED, 2, 43, '"done"')
    assert "handed over by an earlier attempt" in output_of(outcome, "log")
    assert lines(tmp_path / "notes") == ["begun", "ended"]


def test_the_next_attempt_takes_the_success_of_a_task_whose_instance_is_gone(bench: Bench, tmp_path: Path) -> None:
    work = task("works", file=str(tmp_path / "notes"), seconds=1)
    gone, _ = bench.begin(work)
    gone.close(0)
    eventually(lambda: "ended" in lines(tmp_path / "notes"))
    assert bench.run(work._replace(attempt=2)).result == '"done"'
    assert lines(tmp_path / "notes") == ["begun", "ended"]


def test_an_attempt_after_a_failure_and_after_a_given_up_task_is_a_new_task(bench: Bench, tmp_path: Path) -> None:
    failed = task("fails")
    assert bench.run(failed).state is State.FAILED
    again = failed._replace(attempt=2, target={"task": failed.target["task"].replace("fails", "add")}, args={"a": 5})
    assert bench.run(again).result == "5"
    given_up = task("add", timeout=0.3, target={"queue": "nobody"}, a=6)
    assert bench.run(given_up, grace_seconds=1).state is State.LOST  # a worker noted the revoke; none had the task
    again = given_up._replace(attempt=2, target={"task": given_up.target["task"]}, timeout_seconds=30)
    assert bench.run(again).result == "6"


def test_a_run_of_a_database_that_was_made_anew_is_another_task(bench: Bench) -> None:
    work = task("add", a=1)
    assert bench.run(work).result == "1"
    assert bench.run(work._replace(due_at=work.due_at + 1, args={"a": 2})).result == "2"
