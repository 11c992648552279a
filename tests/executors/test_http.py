"""HTTP jobs against a real server on loopback: what is sent, what is expected, what ends a request."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.executors.bench_of_work import Outcomes, make_work, output_of
from tests.executors.http_bench import HttpBench, http_bench
from tests.executors.http_server import Received, Server, running_server
from tests.store.stepped import eventually
from timeball.errors import TargetError
from timeball.executors.http import executor as executor_module
from timeball.executors.http.retry_after import retry_after_us
from timeball.model.states import State

SECOND = 1_000_000


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server() as made:
        yield made


@pytest.fixture
def bench(server: Server) -> Iterator[HttpBench]:
    with http_bench(server, output_bytes_max=10_000, response_bytes_max=1_000_000) as made:
        yield made


def test_a_request_carries_the_run_and_its_answer_is_kept(bench: HttpBench, server: Server) -> None:
    outcome = bench.run(server.answer("/a", headers={"Content-Type": "text/plain"}, body=b"hello\n") + "?x=%20y")
    (request,) = server.received
    assert (outcome.state, outcome.reason, outcome.error) == (State.SUCCEEDED, None, None)
    assert output_of(outcome, "response") == "hello\n"
    assert (request.method, request.path, request.body) == ("GET", "/a?x=%20y", b"")
    sent = request.headers
    assert sent["host"] == f"127.0.0.1:{server.port}"
    assert sent["timeball-run-id"] == str(outcome.run_id)
    assert sent["timeball-job"] == "a job"
    assert sent["timeball-due-at"] == "2023-11-14T22:13:20.000000Z"
    assert (sent["timeball-attempt"], sent["timeball-fence"]) == ("1", "42")
    result = json.loads(outcome.result or "")
    assert result == {"status": 200, "traceparent": sent["traceparent"]}
    version, trace, span, flags = sent["traceparent"].split("-")
    assert (version, len(trace), len(span), flags) == ("00", 32, 16, "01")
    steps = output_of(outcome, "http")
    assert f"GET {server.url}/a?*** -> 200 OK in " in steps
    assert "from 127.0.0.1, content-type: text/plain" in steps


def test_the_key_is_that_of_the_run_and_the_trace_that_of_the_attempt(bench: HttpBench, server: Server) -> None:
    work, outcomes = bench.start({"url": server.answer("/a")})
    outcomes.wait(work)
    again = Outcomes()
    bench.registry.submit([work._replace(attempt=2, fence=43, job="a j\u00f6b")], again)
    again.wait(work)
    other = bench.run(server.url + "/a")
    first, second, third = (request.headers for request in server.received)
    assert other.state is State.SUCCEEDED
    assert second["timeball-job"] == "a j%C3%B6b"
    assert first["traceparent"] != second["traceparent"]
    assert third["idempotency-key"] != first["idempotency-key"]
    same, outcomes = work._replace(attempt=3), Outcomes()
    bench.registry.submit([same], outcomes)
    outcomes.wait(same)
    assert server.received[-1].headers["idempotency-key"] == first["idempotency-key"]


@pytest.mark.parametrize(
    ("target", "method", "kind", "body"),
    [
        ({}, "GET", None, b""),
        ({"method": "delete"}, "DELETE", None, b""),
        ({"body": "t\u00e4xt"}, "POST", "text/plain; charset=utf-8", "t\u00e4xt".encode()),
        ({"json": {"a": [1, "\u00fc"]}, "method": "PUT"}, "PUT", "application/json", '{"a": [1, "\u00fc"]}'.encode()),
        ({"form": {"a": "1 2", "b": ["x", "&"]}}, "POST", "application/x-www-form-urlencoded", b"a=1+2&b=x&b=%26"),
        ({"json": [], "headers": {"content-type": "application/x+json"}}, "POST", "application/x+json", b"[]"),
        ({"method": "POST"}, "POST", None, b""),
    ],
)
def test_methods_and_bodies(
    bench: HttpBench, server: Server, target: dict[str, Any], method: str, kind: str | None, body: bytes
) -> None:
    assert bench.run(server.answer("/a"), **target).state is State.SUCCEEDED
    (request,) = server.received
    assert (request.method, request.headers.get("content-type"), request.body) == (method, kind, body)


def test_headers_of_the_job_go_along_and_may_replace_the_key(bench: HttpBench, server: Server) -> None:
    bench.run(server.answer("/a"), headers={"X-Key": "v", "Idempotency-Key": "mine", "User-Agent": "me"})
    sent = server.received[0].headers
    assert (sent["x-key"], sent["idempotency-key"], sent["user-agent"]) == ("v", "mine", "me")


def test_http_002_a_failure_has_status_body_time_and_attempt(bench: HttpBench, server: Server) -> None:
    body = b"reason: the disk is full\n" + b"x" * 3000
    outcome = bench.run(server.answer("/a", status=503, body=body))
    assert (outcome.state, outcome.reason, outcome.attempt) == (State.FAILED, "http-status", 1)
    assert outcome.error is not None
    assert outcome.error.startswith(f"GET {server.url}/a answered 503 Service Unavailable: reason: the disk is full x")
    assert outcome.error.count("x") > 900
    assert json.loads(outcome.result or "")["status"] == 503
    assert output_of(outcome, "response") == body.decode()
    assert 0 < outcome.ended_at - outcome.begun_at < 60 * SECOND


@pytest.mark.parametrize(
    ("expected", "status", "state"),
    [
        (["2xx"], 204, State.SUCCEEDED),
        ([404], 404, State.SUCCEEDED),
        ([404], 200, State.FAILED),
        (["4xx", 200], 418, State.SUCCEEDED),
        ([200], 201, State.FAILED),
        ([302], 302, State.SUCCEEDED),
        ([200], 599, State.FAILED),
    ],
)
def test_the_expected_statuses_decide(
    bench: HttpBench, server: Server, expected: list[Any], status: int, state: State
) -> None:
    url = server.answer("/a", status=status, headers={"Location": "/nowhere"} if status == 302 else {})
    assert bench.run(url, expected_statuses=expected).state is state


def test_control_characters_of_an_answer_are_made_harmless(bench: HttpBench, server: Server) -> None:
    outcome = bench.run(server.answer("/a", status=500, body=b"\x1b[2Jgone\x00\xff"))
    assert output_of(outcome, "response") == "\\x1b[2Jgone\\x00\ufffd"
    assert (outcome.error or "").endswith(": \\x1b[2Jgone\\x00\ufffd")


def test_head_and_tail_of_a_long_answer_are_kept(bench: HttpBench, server: Server) -> None:
    outcome = bench.run(server.answer("/a", body=b"first" + b"." * 500_000 + b"last"))
    output = next(output for output in outcome.outputs if output.stream == "response")
    assert outcome.state is State.SUCCEEDED
    assert (output.bytes_total, output.bytes_cut) == (500_009, 490_009)
    assert output.text.startswith("first")
    assert output.text.endswith("last")


def test_an_endless_answer_is_given_up(bench: HttpBench, server: Server) -> None:
    async def pour(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"y" * 65_536)
            await writer.drain()

    outcome = bench.run(server.does("/a", pour))
    assert (outcome.state, outcome.reason) == (State.FAILED, "response")
    assert "more than 1000000 bytes" in (outcome.error or "")
    eventually(lambda: server.open_now == 0)


def test_a_small_body_that_unpacks_to_a_big_one_is_bounded_by_what_it_becomes(bench: HttpBench, server: Server) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1_000_000)) for _ in range(200)) + packer.flush()
    assert len(bomb) < 250_000
    outcome = bench.run(server.answer("/a", headers={"Content-Encoding": "gzip"}, body=bomb))
    assert (outcome.state, outcome.reason) == (State.FAILED, "response")
    output = next(output for output in outcome.outputs if output.stream == "response")
    assert 1_000_000 < output.bytes_total < 4_000_000
    good = server.answer("/b", headers={"Content-Encoding": "gzip"}, body=_gzip(b"packed"))
    assert output_of(bench.run(good), "response") == "packed"


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "response", "no proper answer"),
        (b"", "response", "no proper answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "response", "no proper answer"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"a" * 200_000, "response", "no proper answer"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
            "response",
            "cannot be decoded",
        ),
    ],
)
def test_an_answer_that_is_none_is_a_failure_in_words(
    bench: HttpBench, server: Server, answer: bytes, reason: str, words: str
) -> None:
    outcome = bench.run(server.raw("/a", answer))
    assert (outcome.state, outcome.reason) == (State.FAILED, reason)
    assert words in (outcome.error or "")
    assert f"GET {server.url}/a" in (outcome.error or "")


def test_nobody_listens(bench: HttpBench) -> None:
    outcome = bench.run("http://127.0.0.1:1/a", connect_timeout_seconds=5)
    assert (outcome.state, outcome.reason) == (State.FAILED, "connect")
    assert "127.0.0.1 port 1: Connection refused" in (outcome.error or "")


def test_a_name_that_does_not_exist(bench: HttpBench) -> None:
    outcome = bench.run("http://no-such-host.invalid/")
    assert (outcome.state, outcome.reason) == (State.FAILED, "connect")
    assert "no-such-host.invalid cannot be looked up" in (outcome.error or "")


def test_a_far_side_that_goes_silent_is_left(bench: HttpBench, server: Server) -> None:
    for first in (b"", b"HTTP/1.1 200 OK\r\n\r\npart"):
        outcome = bench.run(server.hangs("/a", first), read_timeout_seconds=0.2)
        assert (outcome.state, outcome.reason) == (State.TIMED_OUT, "timeout")
        assert "read_timeout_seconds is 0.2" in (outcome.error or "")
        assert server.lost.acquire(timeout=10)
    assert output_of(outcome, "response") == "part"


def test_the_jobs_time_out_ends_a_far_side_that_drips(bench: HttpBench, server: Server) -> None:
    async def drip(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.01)

    outcome = bench.run(server.does("/a", drip), timeout=0.5, read_timeout_seconds=10)
    assert (outcome.state, outcome.reason) == (State.TIMED_OUT, "timeout")
    assert (outcome.error or "").startswith("ended after its time-out of 0.5 s")
    assert output_of(outcome, "response").startswith("..")
    eventually(lambda: server.open_now == 0)


def test_a_cancel_ends_the_request(bench: HttpBench, server: Server) -> None:
    work, outcomes = bench.start({"url": server.hangs("/a")})
    eventually(lambda: len(server.received) == 1)
    assert bench.registry.running() == (work.run_id,)
    assert bench.registry.cancel(work.run_id, "anna said so")
    (outcome,) = outcomes.wait(work)
    assert (outcome.state, outcome.reason) == (State.CANCELLED, "cancelled")
    assert outcome.error == f"anna said so; on its way: GET {server.url}/a"
    assert server.lost.acquire(timeout=10)
    assert not bench.registry.cancel(work.run_id, "too late")


def test_the_end_of_the_instance_ends_requests_and_nothing_begins_afterwards(server: Server) -> None:
    with http_bench(server) as bench:
        work, outcomes = bench.start({"url": server.hangs("/a")})
        eventually(lambda: len(server.received) == 1)
        assert bench.registry.close(0) == ()
        assert outcomes.wait(work)[0].error == f"the instance is ending; on its way: GET {server.url}/a"
        later = bench.run(server.url + "/a")
        assert (later.state, later.reason) == (State.FAILED, "start")
    assert len(server.received) == 1


def test_requests_beyond_the_connections_wait_their_turn_within_their_time_out(server: Server) -> None:
    with http_bench(server, connections_max=2) as bench:
        held = [bench.start({"url": server.hangs("/a")}) for _ in range(2)]
        eventually(lambda: len(server.received) == 2)
        assert bench.run(server.answer("/b"), timeout=0.2).state is State.TIMED_OUT
        work, outcomes = bench.start({"url": server.url + "/b"})
        bench.registry.cancel(held[0][0].run_id, "make room")
        assert outcomes.wait(work)[0].state is State.SUCCEEDED
        assert server.open_most == 2


def test_a_cookie_of_one_run_is_not_sent_by_another(bench: HttpBench, server: Server) -> None:
    url = server.answer("/a", headers={"Set-Cookie": "session=1; Path=/"})
    bench.run(url)
    bench.run(url)
    assert "cookie" not in server.received[1].headers


def test_retry_after_goes_along_with_a_failure_only(bench: HttpBench, server: Server) -> None:
    header = {"Retry-After": "90"}
    assert bench.run(server.answer("/a", status=429, headers=header)).retry_after_us == 90 * SECOND
    assert bench.run(server.answer("/b", status=200, headers=header)).retry_after_us is None
    assert bench.run(server.answer("/c", status=500)).retry_after_us is None


@pytest.mark.parametrize(
    ("header", "date", "wait"),
    [
        ("0", None, 0),
        (" 120 ", None, 120 * SECOND),
        ("Wed, 21 Oct 2026 07:28:30 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", 30 * SECOND),
        ("Wed, 21 Oct 2026 07:27:00 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", None, 0),
        ("soon", None, None),
        ("-5", None, None),
        ("1e9", None, None),
        ("99999999999999", None, None),
        (None, None, None),
    ],
)
def test_what_retry_after_means(header: str | None, date: str | None, wait: int | None) -> None:
    assert retry_after_us(header, date) == wait


def test_without_the_extra_a_job_is_refused_and_none_is_taken(
    bench: HttpBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench.registry.handlers() == ("http",)
    monkeypatch.setattr(executor_module, "EXTRA", ("httpx2", "a_module_that_is_not_there"))
    assert bench.registry.handlers() == ()
    with pytest.raises(TargetError, match=r"timeball\[http\]"):
        bench.registry.check("http", {"url": "http://example.org/"}, {})


def test_args_are_refused(bench: HttpBench) -> None:
    with pytest.raises(TargetError, match="takes no args"):
        bench.registry.check("http", {"url": "http://example.org/"}, {"a": 1})
    outcomes, work = Outcomes(), make_work("http", {"url": "http://127.0.0.1/"}, args={"a": 1})
    bench.registry.submit([work], outcomes)
    assert outcomes.wait(work)[0].reason == "target"


def test_what_the_first_request_needs_is_made_ready_before_it_is_due(bench: HttpBench, server: Server) -> None:
    bench.registry.prepare(["http", "function", "no such kind"])
    eventually(lambda: bench.executor._means is not None)
    ready = bench.executor._means
    bench.registry.prepare(["http"])
    assert bench.run(server.answer("/a")).state is State.SUCCEEDED
    assert bench.executor._means is ready


def test_certificates_that_cannot_be_read_fail_runs_and_not_the_preparation(server: Server) -> None:
    with http_bench(server, ca_file="/no/such.pem") as bench:
        bench.registry.prepare(["http"])
        assert "/no/such.pem" in (bench.run(server.answer("/a")).error or "")
