"""A thousand requests at once on one instance: they keep their time and leave nothing behind, counted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.executors.bench_of_work import Outcomes, make_work, output_of
from tests.executors.http_bench import http_bench
from tests.executors.http_server import Received, running_server
from tests.store.stepped import eventually
from timeball.executors.http.executor import FILES_KEPT
from timeball.model.states import State

MANY = 1000
FILES_NEEDED = 2 * MANY + 2 * FILES_KEPT


@pytest.fixture
def _files() -> Generator[None]:
    """Both ends of every connection are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_NEEDED:
        pytest.skip(f"this process may open {hard} files; {FILES_NEEDED} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES_NEEDED), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def count(before: tuple[int, set[str], list[str]]) -> Callable[[], bool]:
    return lambda: (open_files(), threads(), children()) == before


@pytest.mark.usefixtures("_files")
def test_a_thousand_requests_at_once_are_all_on_their_way_together_and_leave_nothing_behind() -> None:
    with running_server() as server:
        together: list[asyncio.Event] = []

        async def meet(_: Received, writer: asyncio.StreamWriter) -> None:
            """Answers nobody before all have come: only requests that run side by side ever get an answer."""
            if not together:
                together.append(asyncio.Event())
            if server.open_now == MANY:
                together[0].set()
            await together[0].wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nmet")

        url = server.does("/meet", meet)
        before = (open_files(), threads(), children())
        with http_bench(server) as bench:
            outcomes, works = Outcomes(), [make_work("http", {"url": url}) for _ in range(MANY)]
            bench.registry.submit(works, outcomes)
            ended = outcomes.wait(*works)
            assert {outcome.state for outcome in ended} == {State.SUCCEEDED}
            assert {output_of(outcome, "response") for outcome in ended} == {"met"}
            assert (server.open_most, len(server.received)) == (MANY, MANY)
            assert len({request.headers["idempotency-key"] for request in server.received}) == MANY
            assert threads() - before[1] == {"timeball-http"}
        eventually(count(before))


@pytest.mark.usefixtures("_files")
def test_a_thousand_that_time_out_break_or_are_cancelled_leave_nothing_behind() -> None:
    with running_server() as server:
        urls = [
            server.hangs("/hang", b"HTTP/1.1 200 OK\r\n\r\n"),
            server.raw("/cut", b"HTTP/1.1 200"),
            server.url[:-5] + "1",
        ]
        before = (open_files(), threads(), children())
        with http_bench(server) as bench:
            outcomes = Outcomes()
            works = [make_work("http", {"url": urls[n % 3]}, timeout=2 if n % 2 else None) for n in range(MANY)]
            bench.registry.submit(works, outcomes)
            eventually(lambda: server.open_most > 100)
            for work in works:
                if work.target["url"] == urls[0] and work.timeout_seconds is None:
                    bench.registry.cancel(work.run_id, "enough")
            found = {outcome.state for outcome in outcomes.wait(*works)}
            assert found == {State.CANCELLED, State.TIMED_OUT, State.FAILED}
            assert bench.registry.running() == ()
        eventually(count(before))


def test_what_is_cancelled_as_it_begins_has_its_outcome_as_well() -> None:
    with running_server() as server, http_bench(server) as bench:
        outcomes, works = Outcomes(), [make_work("http", {"url": server.hangs("/a")}) for _ in range(300)]
        for first in range(0, 300, 10):
            bench.registry.submit(works[first : first + 10], outcomes)
            for work in works[first : first + 10]:
                bench.registry.cancel(work.run_id, "at once")
        eventually(lambda: len(outcomes.found) == len(works))
        ended = outcomes.wait(*works)
        assert {(outcome.state, (outcome.error or "")[:7]) for outcome in ended} == {(State.CANCELLED, "at once")}
        assert bench.registry.running() == ()


def test_hosts_that_do_not_answer_hold_up_nobody_else() -> None:
    with socket.socket() as silent, running_server() as server, http_bench(server) as bench:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        port = silent.getsockname()[1]
        with contextlib.ExitStack() as full:  # its queue is full: who connects now gets no answer
            for _ in range(3):
                filler = full.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            stuck, outcomes = (
                [
                    make_work("http", {"url": f"http://127.0.0.1:{port}/", "connect_timeout_seconds": 60})
                    for _ in range(300)
                ],
                Outcomes(),
            )
            bench.registry.submit(stuck, outcomes)
            eventually(lambda: len(bench.executor._tasks) == len(stuck))
            work, good = bench.start({"url": server.answer("/a")})
            eventually(lambda: bool(good.found))
            assert good.wait(work)[0].state is State.SUCCEEDED
            assert outcomes.found == {}, "they were still connecting"
            for work in stuck:
                bench.registry.cancel(work.run_id, "enough")
            assert {outcome.state for outcome in outcomes.wait(*stuck)} == {State.CANCELLED}


@pytest.mark.usefixtures("_files")
def test_where_fewer_files_may_be_open_requests_wait_and_do_not_fail() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with running_server() as server:
        url = server.answer("/a")
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
        with http_bench(server, connections_max=300) as limited:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))  # the server needs files as well
            outcomes, works = Outcomes(), [make_work("http", {"url": url}) for _ in range(600)]
            limited.registry.submit(works, outcomes)
            assert {outcome.state for outcome in outcomes.wait(*works)} == {State.SUCCEEDED}
        assert 0 < server.open_most <= 200
