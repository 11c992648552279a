"""An HTTP executor and its server, for the tests."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.executors.bench_of_work import Outcomes, Registry, make_work
from tests.executors.http_server import Server
from timeball.executors.http.executor import HttpExecutor, HttpLimits
from timeball.executors.secrets import Secrets
from timeball.model.run import Outcome, Work

LOOPBACK = ("127.0.0.1",)


@dataclass
class HttpBench:
    """One executor behind a registry that knows some secrets."""

    server: Server
    executor: HttpExecutor
    environ: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.registry = Registry([self.executor], Secrets(environ=self.environ))

    def start(self, target: dict[str, Any], *, timeout: float | None = None) -> tuple[Work, Outcomes]:
        outcomes, work = Outcomes(), make_work("http", target, timeout=timeout)
        self.registry.submit([work], outcomes)
        return work, outcomes

    def run(self, url: str, *, timeout: float | None = None, **target: Any) -> Outcome:
        work, outcomes = self.start({"url": url, **target}, timeout=timeout)
        return outcomes.wait(work)[0]


@contextlib.contextmanager
def http_bench(server: Server, allow: Sequence[str] = LOOPBACK, **limits: Any) -> Generator[HttpBench]:
    executor = HttpExecutor(HttpLimits(allow=allow, **limits))
    try:
        yield HttpBench(server, executor)
    finally:
        left = executor.close(5)
    assert left == ()
