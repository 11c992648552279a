"""Celery on a real RabbitMQ, with the results in a Redis."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.instances import eventually
from tests.conftest import need
from tests.executors.bench_of_work import Outcomes
from tests.executors.celery_bench import Bench, lines, task
from tests.executors.celery_servers import RabbitServer, RedisServer, Worker, rabbit_binary
from tests.executors.celery_wire import BreakingWire
from timeball.model.states import State

PUBLISH = b"\x00\x3c\x00\x28"
"""How AMQP writes `basic.publish`: its class 60, its method 40."""
TIMEOUT_SECONDS = 240

pytestmark = [pytest.mark.timeout(TIMEOUT_SECONDS), pytest.mark.cluster]


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    if rabbit_binary() is None:
        need("no RabbitMQ: install the package rabbitmq-server")
    with RabbitServer(tmp_path_factory.mktemp("rabbit")) as rabbit:
        yield rabbit


@pytest.fixture(scope="module")
def rabbit_worker(
    rabbit: RabbitServer, server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worker]:
    with Worker(tmp_path_factory.mktemp("worker"), rabbit.url, server.url) as worker:
        yield worker


@pytest.fixture
def on_rabbit(rabbit: RabbitServer, server: RedisServer, rabbit_worker: Worker, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(rabbit, server, str(tmp_path))
    yield bench
    bench.close()


def test_success_failure_and_crash(on_rabbit: Bench) -> None:
    assert on_rabbit.run(task("add", a=1, b=2)).result == "3"
    assert on_rabbit.run(task("fails", text="no paper")).error == "ValueError: no paper"
    assert "SIGKILL" in (on_rabbit.run(task("crashes")).error or "")


def test_a_time_out_and_a_cancel_end_the_task(on_rabbit: Bench, tmp_path: Path) -> None:
    outcome = on_rabbit.run(task("works", timeout=1, file=str(tmp_path / "one"), seconds=2))
    assert (outcome.state, outcome.reason) == (State.TIMED_OUT, "timeout")
    work = task("works", file=str(tmp_path / "other"))
    executor, outcomes = on_rabbit.begin(work)
    executor.cancel(work.run_id, "cancelled by anna")
    assert "Celery has ended task" in (outcomes.wait(work)[0].error or "")


@pytest.mark.parametrize("once", [False, True])
def test_a_hand_over_whose_confirmation_was_lost_runs_once(
    on_rabbit: Bench, rabbit_worker: Worker, tmp_path: Path, once: bool
) -> None:
    work, outcomes = task("works_once", target={"once": once}, file=str(tmp_path / "notes"), seconds=0.2), Outcomes()
    with BreakingWire("127.0.0.1", on_rabbit.broker.port, PUBLISH) as wire:
        executor = on_rabbit.executor(broker_url=f"amqp://guest:guest@127.0.0.1:{wire.port}//")
        executor.submit([work], outcomes)
        assert outcomes.wait(work)[0].result == '"done"'
        assert wire.broke
        if once:
            eventually(lambda: f"timeball-{work.run_id}-1-" in again(rabbit_worker))
    assert lines(tmp_path / "notes") == ["begun", "ended"]


def again(worker: Worker) -> str:
    """What a worker says of tasks that were delivered again."""
    return "\n".join(line for line in worker.log().splitlines() if "does not begin a second time" in line)


@pytest.mark.full
def test_what_a_frozen_broker_did_not_confirm_is_not_taken_for_sent(on_rabbit: Bench) -> None:
    work, outcomes = task("add", a=4), Outcomes()
    executor = on_rabbit.executor()
    assert on_rabbit.run(task("add", a=3)).result == "3"
    on_rabbit.broker.signal(signal.SIGSTOP)
    executor.submit([work], outcomes)
    eventually(lambda: any(hand.trouble for hand in executor._open()))
    on_rabbit.broker.signal(signal.SIGCONT)
    assert outcomes.wait(work)[0].result == "4"


@pytest.mark.full
def test_a_broker_that_is_killed_in_mid_run_and_comes_back_loses_nothing(on_rabbit: Bench, tmp_path: Path) -> None:
    """It may deliver again what was acknowledged a moment before: the task has the base `Once`."""
    work = task("works_once", target={"once": True}, file=str(tmp_path / "notes"), seconds=5)
    more, outcomes = task("add", a=7), Outcomes()
    executor, first = on_rabbit.begin(work, send_seconds=60.0)
    on_rabbit.broker.kill()
    executor.submit([more], outcomes)
    eventually(lambda: any(hand.trouble for hand in executor._open()))
    on_rabbit.broker.start()
    assert first.wait(work)[0].result == '"done"'
    assert outcomes.wait(more)[0].result == "7"
    assert lines(tmp_path / "notes") == ["begun", "ended"]
