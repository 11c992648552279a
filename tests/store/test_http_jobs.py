"""HTTP jobs in whole instances: what stands in the ledger, and the wait that the far side asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.executors.http_server import Server, running_server
from tests.store.stepped import Bench, eventually
from timeball.executors.http.executor import HttpExecutor
from timeball.model.job import Definition
from timeball.store.runs import StoredRun

SECOND = 1_000_000


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server() as made:
        yield made


def job(url: str, **policies: object) -> Definition:
    return Definition.from_dict({"schedule": "none", "executor": "http", "target": {"url": url}, **policies})


def test_http_002_the_ledger_has_status_body_time_and_attempt_and_the_next_attempt_waits_as_asked(
    bench: Bench, server: Server
) -> None:
    url = server.answer("/a", status=503, headers={"Retry-After": "40"}, body=b"the disk is full\n" * 100)
    instance = bench.instance("a", http_allow_networks=("127.0.0.1",))
    jobs = bench.service(http_allow_networks=("127.0.0.1",))
    jobs.create("sync", job(url, attempts_max=2, backoff_seconds=1))
    run_id = jobs.trigger("sync")

    def only() -> StoredRun:
        bench.round(instance)
        return bench.runs("sync")[0]

    eventually(lambda: only().attempt == 2)
    (first,) = bench.store.runs.attempts(run_id)
    assert (first.attempt, first.state, first.reason) == (1, "failed", "http-status")
    assert (first.error or "").startswith(f"GET {url} answered 503 Service Unavailable: the disk is full the disk")
    assert len(first.error or "") > 1000
    streams = {output.stream: output.text for output in bench.store.runs.outputs(run_id, 1)}
    assert streams["response"] == "the disk is full\n" * 100
    assert f"GET {url} -> 503 Service Unavailable in " in streams["http"]
    assert first.ended_at is not None
    assert bench.runs("sync")[0].ready_at - first.ended_at == 40 * SECOND
    server.answer("/a")
    bench.move_clock(41 * SECOND)
    eventually(lambda: only().state == "succeeded")
    result = json.loads(bench.runs("sync")[0].result or "")
    assert (result["status"], result["traceparent"]) == (200, server.received[1].headers["traceparent"])
    one, two = (request.headers for request in server.received)
    assert one["idempotency-key"] == two["idempotency-key"]
    assert int(two["timeball-fence"]) > int(one["timeball-fence"])
    assert (one["timeball-attempt"], two["timeball-attempt"]) == ("1", "2")


def test_a_claim_makes_http_ready_before_the_run_is_due(bench: Bench) -> None:
    bench.set_clock("2031-01-01T00:00:28.500Z")
    instance = bench.instance("a")
    bench.jobs.create("sync", job("http://far.example/", schedule="@at 2031-01-01T00:00:30Z"))
    for name in ("member", "lease", "planner", "claimer"):
        getattr(instance, name).step()
    (executor,) = [one for one in instance.runner._registry._executors.values() if isinstance(one, HttpExecutor)]
    eventually(lambda: executor._means is not None)
    assert [run.state for run in bench.runs("sync")] == ["claimed"]
