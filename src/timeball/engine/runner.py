"""Running what was started: holds work until its instant, hands it to the executors, passes outcomes on.

Only attempts whose start is committed come here, each exactly once.
"""

from __future__ import annotations

import heapq
import itertools
import json
import threading
from collections.abc import Callable, Mapping, Sequence

from timeball.clock import ClusterClock
from timeball.engine.definitions import Known
from timeball.executors.registry import Registry
from timeball.model.job import Definition
from timeball.model.run import Kind, Outcome, Work
from timeball.store.claims import Started

IDLE_SECONDS = 1.0


class Runner:
    """Work between its start and its outcome. Safe for threads."""

    def __init__(
        self,
        namespace: str,
        clock: ClusterClock,
        registry: Registry,
        on_outcome: Callable[[Work, Definition, Outcome], None],
        unsettled: Callable[[], frozenset[tuple[int, int]]],
    ) -> None:
        self._namespace = namespace
        self._clock = clock
        self._registry = registry
        self._on_outcome = on_outcome
        self._unsettled = unsettled
        self._lock = threading.Lock()
        self._heap: list[tuple[int, int, Work]] = []
        self._order = itertools.count()
        self._executing: dict[tuple[int, int], tuple[Work, Definition]] = {}
        self.on_waiting: Callable[[], None] = lambda: None

    def handlers(self) -> Sequence[str]:
        """What this instance can run."""
        return self._registry.handlers()

    def load(self) -> int:
        """How many attempts are waiting for their instant or executing."""
        return len(self._executing)

    def executing(self) -> list[int]:
        """Ids of the runs in hand."""
        with self._lock:
            return [run_id for run_id, _ in self._executing]

    def known(self) -> frozenset[tuple[int, int]]:
        """Run and attempt of everything that is executing, or has ended and is not settled yet."""
        with self._lock:
            executing = frozenset(self._executing)
        return executing | self._unsettled()

    def accept(self, started: Sequence[Started], known: Mapping[tuple[int, int], Known]) -> None:
        """Take attempts whose start is committed; each begins at its instant, or at once when that has passed."""
        if not started:
            return
        now, now_mono = self._clock.now(), self._clock.monotonic()
        works: list[Work] = []
        with self._lock:
            for start in started:
                entry = known[(start.job_id, start.job_version)]
                work = self._work(start, entry, now_mono + max(0, start.ready_at - now))
                works.append(work)
                self._executing[(work.run_id, work.attempt)] = (work, entry.definition)
                if work.begin_at > now_mono:
                    heapq.heappush(self._heap, (work.begin_at, next(self._order), work))
        due = [w for w in works if w.begin_at <= now_mono]
        if due:
            self._registry.submit(due, self._report)
        if len(due) < len(works):
            self.on_waiting()

    def step(self) -> float:
        """Hand over work whose instant has come. Returns seconds until the next instant."""
        now = self._clock.monotonic()
        due: list[Work] = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                due.append(heapq.heappop(self._heap)[2])
            pause = (self._heap[0][0] - now) / 1e6 if self._heap else IDLE_SECONDS
        if due:
            self._registry.submit(due, self._report)
        return min(pause, IDLE_SECONDS)

    def cancel(self, run_id: int, reason: str) -> None:
        """Ask a run's work to end."""
        self._registry.cancel(run_id, reason)

    def close(self, grace_seconds: float) -> list[int]:
        """End what still runs; the ids of runs that had not ended by themselves."""
        left = self.executing()
        self._registry.close(grace_seconds)
        return left

    def _report(self, outcome: Outcome) -> None:
        with self._lock:
            entry = self._executing.get((outcome.run_id, outcome.attempt))
        if entry is None:
            return
        self._on_outcome(*entry, outcome)  # unsettled first, then no longer executing: always known
        with self._lock:
            self._executing.pop((outcome.run_id, outcome.attempt), None)

    def _work(self, started: Started, known: Known, begin_at: int) -> Work:
        definition = known.definition
        args = definition.args if started.args is None else {**definition.args, **json.loads(started.args)}
        return Work(
            run_id=started.run_id,
            job_id=started.job_id,
            job=known.name,
            namespace=self._namespace,
            kind=Kind(started.kind),
            due_at=started.due_at,
            attempt=started.attempt,
            fence=started.fence,
            executor=definition.executor,
            target=definition.target,
            args=args,
            timeout_seconds=definition.timeout_seconds,
            begin_at=begin_at,
        )
