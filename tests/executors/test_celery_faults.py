"""Celery with its broker, its Redis or its worker gone in mid-run: what is certain happens once, the rest is told."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from tests.cluster.instances import eventually
from tests.executors.bench_of_work import Outcomes
from tests.executors.celery_bench import Bench, lines, task
from tests.executors.celery_servers import RedisServer, Worker
from tests.executors.celery_wire import BreakingWire
from timeball.executors.celery.target import identity_of, task_id_of
from timeball.model.states import State

pytestmark = pytest.mark.usefixtures("server")  # it says so when there is no Redis


@pytest.fixture
def broker(server: RedisServer, tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def mortal(broker: RedisServer, server: RedisServer, tmp_path: Path) -> Iterator[Bench]:
    """A broker that the test may kill; the results lie elsewhere."""
    bench = Bench(broker, server, str(tmp_path))
    yield bench
    bench.close()


def messages(broker: RedisServer, queue: str = "celery") -> int:
    return int(str(broker.client.llen(queue)))


def test_what_cannot_be_handed_over_waits_and_is_sent_once_when_the_broker_is_back(mortal: Bench) -> None:
    mortal.broker.kill()
    works, outcomes = [task("add", a=n) for n in range(5)], Outcomes()
    executor = mortal.executor()
    executor.submit(works, outcomes)
    cancelled = works.pop()
    assert executor.cancel(cancelled.run_id, "cancelled by anna")
    assert "it was not handed over to Celery" in (outcomes.wait(cancelled)[0].error or "")
    eventually(lambda: executor._open()[0].trouble)
    mortal.broker.start()
    with Worker(mortal.broker.folder / "worker", mortal.broker.url, mortal.results.url):
        assert [outcome.result for outcome in outcomes.wait(*works)] == ["0", "1", "2", "3"]


def test_a_broker_that_stays_away_is_a_failed_run_and_nothing_was_sent(mortal: Bench) -> None:
    mortal.broker.kill()
    outcome = mortal.run(task("add"), send_seconds=1)
    assert (outcome.state, outcome.reason) == (State.FAILED, "start")
    assert "could not be handed over to Celery for 1 s" in (outcome.error or "")
    mortal.broker.start()
    assert messages(mortal.broker) == 0


def test_a_time_out_comes_also_to_what_could_not_be_handed_over(mortal: Bench) -> None:
    mortal.broker.kill()
    outcome = mortal.run(task("add", timeout=0.5))
    assert outcome.state is State.TIMED_OUT
    assert "it was not handed over to Celery" in (outcome.error or "")


def test_after_a_hand_over_that_never_left_the_next_attempt_is_a_new_task(mortal: Bench) -> None:
    mortal.results.client.ping()
    work = task("add", a=3)
    mortal.broker.kill()
    assert mortal.run(work, send_seconds=0.5).reason == "start"
    mortal.broker.start()
    with Worker(mortal.broker.folder / "worker", mortal.broker.url, mortal.results.url):
        assert mortal.run(work._replace(attempt=2)).result == "3"


@pytest.mark.parametrize("once", [False, True])
def test_a_hand_over_whose_answer_was_lost_runs_once(mortal: Bench, tmp_path: Path, once: bool) -> None:
    """Without `once` no second message is sent; with it two lie in the queue, and one begins."""
    work, outcomes = task("works_once", target={"once": once}, file=str(tmp_path / "notes"), seconds=0.2), Outcomes()
    with BreakingWire("127.0.0.1", mortal.broker.port, b"LPUSH") as wire:
        executor = mortal.executor(broker_url=f"redis://127.0.0.1:{wire.port}/0")
        executor.submit([work], outcomes)
        eventually(lambda: wire.broke and messages(mortal.broker) == 1 + once)
        with Worker(tmp_path / "worker", mortal.broker.url, mortal.results.url) as worker:
            assert outcomes.wait(work)[0].result == '"done"'
            if once:
                eventually(lambda: "does not begin a second time" in worker.log())
            eventually(lambda: not messages(mortal.broker))
    assert lines(tmp_path / "notes") == ["begun", "ended"]


def test_a_hand_over_whose_answer_was_lost_and_that_nobody_takes_says_so(mortal: Bench) -> None:
    with BreakingWire("127.0.0.1", mortal.broker.port, b"LPUSH") as wire:
        url = f"redis://127.0.0.1:{wire.port}/0"
        outcome = mortal.run(task("add", timeout=1), broker_url=url, grace_seconds=0.5)
    assert (outcome.state, outcome.reason) == (State.LOST, "no-result")
    assert "its hand-over was cut off: OperationalError" in (outcome.error or "")


def test_a_mark_whose_answer_was_lost_is_known_as_ours_and_the_task_is_sent(mortal: Bench) -> None:
    work, outcomes = task("add", a=4), Outcomes()
    with BreakingWire("127.0.0.1", mortal.results.port, b"timeball-handover") as wire:
        executor = mortal.executor(backend_url=f"redis://127.0.0.1:{wire.port}/0")
        executor.submit([work], outcomes)
        eventually(lambda: wire.broke and messages(mortal.broker) == 1)
        key = f"celery-task-meta-{task_id_of(identity_of(mortal.place, work), work)}"
        mortal.results.client.set(key, '{"status": "SUCCESS", "result": 4}')
        assert outcomes.wait(work)[0].result == "4"


def test_a_broker_that_is_killed_in_mid_run_and_comes_back_changes_nothing(mortal: Bench, tmp_path: Path) -> None:
    work = task("works", file=str(tmp_path / "notes"), seconds=2)
    with Worker(tmp_path / "worker", mortal.broker.url, mortal.results.url):
        _, outcomes = mortal.begin(work)
        mortal.broker.kill()
        mortal.broker.start()
        assert outcomes.wait(work)[0].result == '"done"'
    assert lines(tmp_path / "notes") == ["begun", "ended"]


def test_results_that_cannot_be_read_for_a_while_come_later(broker: RedisServer, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "results") as results, Worker(tmp_path / "worker", broker.url, results.url):
        bench = Bench(broker, results, str(tmp_path))
        work = task("works", file=str(tmp_path / "notes"), seconds=3)
        executor, outcomes = bench.begin(work)
        results.kill()
        eventually(lambda: executor._threads is not None and executor._threads[1]._failing)
        results.start()
        assert outcomes.wait(work)[0].result == '"done"'
        bench.close()


def test_what_waits_for_a_frozen_broker_is_not_taken_for_forgotten(mortal: Bench) -> None:
    work, outcomes = task("add", a=6), Outcomes()
    executor = mortal.executor(grace_seconds=0.3)
    mortal.broker.signal(signal.SIGSTOP)
    executor.submit([work], outcomes)
    eventually(lambda: all(hand.trouble for hand in executor._open()))
    mortal.broker.signal(signal.SIGCONT)
    with Worker(mortal.broker.folder / "worker", mortal.broker.url, mortal.results.url):
        assert outcomes.wait(work)[0].result == "6"


def test_a_frozen_broker_holds_up_no_result_and_no_cancel(mortal: Bench, tmp_path: Path) -> None:
    work, more, outcomes = task("works", file=str(tmp_path / "notes"), seconds=1), task("add"), Outcomes()
    with Worker(tmp_path / "worker", mortal.broker.url, mortal.results.url):
        executor, first = mortal.begin(work, grace_seconds=1)
        mortal.broker.signal(signal.SIGSTOP)
        executor.submit([more], outcomes)
        assert first.wait(work)[0].result == '"done"'
        executor.cancel(more.run_id, "cancelled by anna")
        assert outcomes.wait(more)[0].state is State.CANCELLED
        mortal.broker.signal(signal.SIGCONT)


def test_a_worker_that_is_killed_leaves_a_run_that_is_lost_after_its_time_out(mortal: Bench, tmp_path: Path) -> None:
    work = task("works", timeout=2, file=str(tmp_path / "notes"))
    with Worker(tmp_path / "worker", mortal.broker.url, mortal.results.url) as worker:
        _, outcomes = mortal.begin(work, grace_seconds=0.5)
        worker.kill()
        outcome = outcomes.wait(work)[0]
    assert (outcome.state, outcome.reason) == (State.LOST, "no-result")


def test_a_guarded_task_that_comes_again_after_its_workers_death_begins_no_more(mortal: Bench, tmp_path: Path) -> None:
    """With `acks_late` the message of a dead worker comes to the next one."""
    work = task("works_once_late", timeout=8, target={"once": True}, file=str(tmp_path / "notes"))
    urls = (mortal.broker.url, mortal.results.url)
    with Worker(tmp_path / "first", *urls, TEST_VISIBILITY_SECONDS="1") as first:
        _, outcomes = mortal.begin(work, grace_seconds=0.5)
        first.kill()
        with Worker(tmp_path / "second", *urls, TEST_VISIBILITY_SECONDS="1") as second:
            give_back(mortal)
            eventually(lambda: "does not begin a second time" in second.log())
            outcome = outcomes.wait(work)[0]
    assert (outcome.state, outcome.reason) == (State.LOST, "no-result")
    assert lines(tmp_path / "notes") == ["begun"]


def test_a_worker_of_threads_cannot_end_a_task_and_its_run_is_lost_not_timed_out(mortal: Bench, tmp_path: Path) -> None:
    work = task("works", timeout=1, file=str(tmp_path / "notes"), seconds=4)
    with Worker(tmp_path / "worker", mortal.broker.url, mortal.results.url, "-P", "threads"):
        _, outcomes = mortal.begin(work, grace_seconds=1)
        outcome = outcomes.wait(work)[0]
        assert (outcome.state, outcome.reason) == (State.LOST, "no-result")
        assert "it may still run" in (outcome.error or "")
        eventually(lambda: lines(tmp_path / "notes") == ["begun", "ended"])


def give_back(bench: Bench) -> None:
    """What a worker does in its time: put back into the queue what was not acknowledged."""
    app = Celery(broker=bench.broker.url, set_as_current=False)  # type: ignore[attr-defined]
    app.conf.broker_transport_options = {"visibility_timeout": 0}
    with app.connection_for_write() as connection:
        connection.default_channel.qos.restore_visible(num=100, interval=1)


def test_a_run_of_another_database_is_another_task(server: RedisServer, tmp_path: Path) -> None:
    work = task("add", a=8)
    one, other = (Bench(server, server, f"{tmp_path}/{name}") for name in ("one", "other"))
    with Worker(tmp_path / "worker", server.url, server.url):
        assert one.run(work).result == "8"
        assert other.run(work._replace(args={"a": 9})).result == "9"
    for bench in (one, other):
        bench.close()
