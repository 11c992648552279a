"""Work for executors, and a collector of outcomes."""

from __future__ import annotations

import itertools
import threading
from typing import Any

from timeball.clock import monotonic_us
from timeball.executors.registry import FunctionTable, Registry
from timeball.model.run import Kind, Outcome, Work

_ids = itertools.count(1)
DEADLINE_SECONDS = 60.0


def make_work(
    executor: str, target: dict[str, Any], *, args: dict[str, Any] | None = None, timeout: float | None = None
) -> Work:
    run_id = next(_ids)
    return Work(
        run_id=run_id,
        job_id=1,
        job="a job",
        namespace="default",
        kind=Kind.SCHEDULED,
        due_at=1_700_000_000_000_000,
        attempt=1,
        fence=42,
        executor=executor,
        target=target,
        args=args or {},
        timeout_seconds=timeout,
        begin_at=monotonic_us(),
    )


class Outcomes:
    """Collects reports; more than one report for a piece of work is an error."""

    def __init__(self) -> None:
        self.found: dict[int, Outcome] = {}
        self.twice: list[Outcome] = []
        self._changed = threading.Condition()

    def __call__(self, outcome: Outcome) -> None:
        with self._changed:
            if outcome.run_id in self.found:
                self.twice.append(outcome)
            self.found[outcome.run_id] = outcome
            self._changed.notify_all()

    def wait(self, *works: Work) -> list[Outcome]:
        with self._changed:
            ended = self._changed.wait_for(lambda: all(w.run_id in self.found for w in works), DEADLINE_SECONDS)
        assert ended, f"only {len(self.found)} of {len(works)} ended"
        assert not self.twice
        return [self.found[w.run_id] for w in works]


def output_of(outcome: Outcome, stream: str) -> str:
    return next((output.text for output in outcome.outputs if output.stream == stream), "")


__all__ = ["FunctionTable", "Outcomes", "Registry", "make_work", "output_of"]
