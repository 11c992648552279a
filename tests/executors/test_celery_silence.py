"""Celery without a worker: what is never heard of ends in words, and waiting for it costs little."""

from __future__ import annotations

import threading

import pytest

from tests.cluster.instances import eventually
from tests.executors.bench_of_work import Outcomes
from tests.executors.celery_bench import Bench, task
from timeball.errors import TargetError
from timeball.executors.celery.executor import CeleryExecutor
from timeball.executors.celery.target import identity_of, task_id_of
from timeball.model.states import State

NOBODY = {"queue": "nobody"}


def test_a_task_that_nobody_takes_is_lost_after_its_time_out_in_words(alone: Bench) -> None:
    outcome = alone.run(task("add", timeout=0.5, target=NOBODY), grace_seconds=0.5)
    assert (outcome.state, outcome.reason) == (State.LOST, "no-result")
    assert "after 0.5 s; it may still run" in (outcome.error or "")


def test_without_a_time_out_a_result_is_waited_for_only_so_long(alone: Bench) -> None:
    outcome = alone.run(task("add", target=NOBODY), grace_seconds=0.5, result_seconds=0.7)
    assert (outcome.state, outcome.reason) == (State.LOST, "no-result")
    assert "after 0.7 s" in (outcome.error or "")


def test_a_cancel_that_nobody_confirms_says_so(alone: Bench) -> None:
    work, outcomes = task("add", target=NOBODY), Outcomes()
    executor = alone.executor(grace_seconds=0.5)
    executor.submit([work], outcomes)
    eventually(lambda: alone.results.client.llen("nobody"))
    executor.cancel(work.run_id, "cancelled by anna")
    outcome = outcomes.wait(work)[0]
    assert outcome.state is State.CANCELLED
    assert "cancelled by anna; no worker said within 0.5 s that it ended Celery task" in (outcome.error or "")


def test_a_thousand_open_runs_take_two_threads(alone: Bench) -> None:
    before = threading.active_count()
    executor, outcomes = alone.executor(), Outcomes()
    works = [task("add", target=NOBODY) for _ in range(1000)]
    executor.submit(works, outcomes)
    eventually(lambda: alone.results.client.llen("nobody") >= 1000)
    assert threading.active_count() <= before + 2
    assert len(executor.running()) == 1000
    for work in works:
        key = f"celery-task-meta-{task_id_of(identity_of(alone.place, work), work)}"
        alone.results.client.set(key, '{"status": "SUCCESS", "result": 7, "traceback": null}')
    assert {outcome.result for outcome in outcomes.wait(*works)} == {"7"}
    executor.close(1)
    assert threading.active_count() <= before


@pytest.mark.parametrize(
    ("record", "words"),
    [("not JSON", "cannot be read"), ('"text"', "no record"), ('{"status": "IGNORED", "result": null}', "ignored")],
)
def test_a_record_that_is_none_of_a_result_ends_its_run_in_words(alone: Bench, record: str, words: str) -> None:
    work, outcomes = task("add", target=NOBODY), Outcomes()
    alone.results.client.set(f"celery-task-meta-{task_id_of(identity_of(alone.place, work), work)}", record)
    alone.executor().submit([work], outcomes)
    assert words in (outcomes.wait(work)[0].error or "")


def test_a_task_that_the_result_backend_has_forgotten_is_lost_in_words(alone: Bench) -> None:
    work, outcomes = task("add", target=NOBODY), Outcomes()
    alone.executor(grace_seconds=0.5).submit([work], outcomes)
    key = f"timeball-handover-{task_id_of(identity_of(alone.place, work), work)}"
    eventually(lambda: alone.results.client.delete(key))
    outcome = outcomes.wait(work)[0]
    assert (outcome.state, outcome.reason) == (State.LOST, "no-result")
    assert "has forgotten it" in (outcome.error or "")


def executor_of(broker_url: str, result_backend: str) -> CeleryExecutor:
    seconds = {"grace_seconds": 1, "send_seconds": 1, "result_seconds": 1}
    return CeleryExecutor(broker_url, result_backend, place="x", output_bytes_max=1000, **seconds)


def test_celery_is_off_until_the_settings_say_where_it_is() -> None:
    executor = executor_of("", "")
    assert executor.handlers() == ()
    with pytest.raises(TargetError, match="celery_broker_url and celery_result_backend"):
        executor.check({"task": "a.b"}, {})
    assert executor_of("redis://h/0", "redis://h/0").handlers() == ("celery",)


@pytest.mark.parametrize("scheme", ["rpc", "db+postgresql", "cache+memcached"])
def test_results_that_not_every_instance_can_read_are_refused(scheme: str) -> None:
    executor = executor_of("amqp://h//", f"{scheme}://h")
    assert executor.handlers() == ()
    with pytest.raises(TargetError, match="a Redis"):
        executor.check({"task": "a.b"}, {})


def test_without_the_extra_a_job_is_refused_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = executor_of("redis://h/0", "redis://h/0")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert executor.handlers() == ()
    with pytest.raises(TargetError, match=r"celery is not installed here \(pip install 'timeball\[celery\]'\)"):
        executor.check({"task": "a.b"}, {})


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({}, "needs task"),
        ({"task": ""}, "needs task"),
        ({"task": 7}, "needs task"),
        ({"task": "x" * 201}, "at most 200"),
        ({"task": "a", "kwargs": {}}, "no 'kwargs'"),
        ({"task": "a", "queue": ""}, "needs queue"),
        ({"task": "a", "once": "yes"}, "once must be true or false"),
        ({"task": "a", "options": []}, None),
        ({"task": "a", "options": ["x"]}, "options must be an object"),
        ({"task": "a", "options": {"eta": 1}}, "'eta' cannot be set"),
        ({"task": "a", "options": {"priority": "high"}}, "must be int"),
        ({"task": "a", "options": {"priority": True}}, "must be int"),
        ({"task": "a", "options": {"time_limit": -1}}, "below zero"),
        ({"task": "a", "queue": "q", "once": True, "options": {"priority": 3, "time_limit": 1.5}}, None),
    ],
)
def test_a_malformed_target_is_refused(target: dict[str, object], words: str | None) -> None:
    executor = executor_of("redis://h/0", "redis://h/0")
    if words is None:
        executor.check(target, {"a": 1})
        return
    with pytest.raises(TargetError, match=words):
        executor.check(target, {})
