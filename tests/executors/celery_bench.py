"""One executor beside one Redis, one broker and one worker; what a test of Celery asks again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cluster.instances import eventually
from tests.executors.bench_of_work import Outcomes, make_work
from tests.executors.celery_servers import RedisServer, Server
from timeball.executors.celery.executor import CeleryExecutor
from timeball.model.run import Outcome, Work

TASKS = "tests.executors.celery_tasks."


def task(name: str, *, timeout: float | None = None, target: dict[str, Any] | None = None, **args: Any) -> Work:
    return make_work("celery", {"task": TASKS + name, **(target or {})}, args=args, timeout=timeout)


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


class Bench:
    """`place`: what makes this database another one than the next test's."""

    def __init__(self, broker: Server, results: RedisServer, place: str) -> None:
        self.broker = broker
        self.results = results
        self.place = place
        self.executors: list[CeleryExecutor] = []

    def executor(self, broker_url: str = "", backend_url: str = "", **settings: Any) -> CeleryExecutor:
        chosen = {"grace_seconds": 5.0, "send_seconds": 30.0, "result_seconds": 60.0, **settings}
        made = CeleryExecutor(
            broker_url or self.broker.url,  # type: ignore[attr-defined]
            backend_url or self.results.url,
            place=self.place,
            output_bytes_max=65_536,
            **chosen,
        )
        self.executors.append(made)
        return made

    def run(self, work: Work, **settings: Any) -> Outcome:
        outcomes = Outcomes()
        self.executor(**settings).submit([work], outcomes)
        return outcomes.wait(work)[0]

    def begin(self, work: Work, **settings: Any) -> tuple[CeleryExecutor, Outcomes]:
        """Submit, and wait until the task has noted that it has begun."""
        executor, outcomes = self.executor(**settings), Outcomes()
        executor.submit([work], outcomes)
        eventually(lambda: lines(Path(work.args["file"])))
        return executor, outcomes

    def close(self) -> None:
        for executor in self.executors:
            executor.close(0)
