"""Running what was started: holds work until its instant, hands it to the executors, passes outcomes on.

Only attempts whose start is committed come here, each exactly once.
"""

from __future__ import annotations

import heapq
import itertools
import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from timeball.clock import ClusterClock
from timeball.engine.definitions import UNREADABLE, Known
from timeball.executors.registry import Registry
from timeball.model.job import Definition
from timeball.model.run import Kind, Outcome, Work
from timeball.model.states import State
from timeball.policy.isolation import ISOLATED, NOT_BEGUN
from timeball.store.claims import Started

IDLE_SECONDS = 1.0


class Executing(NamedTuple):
    """An attempt in hand. `owner`: the member id under which it was started."""

    work: Work
    definition: Definition
    owner: str


class _Wish(NamedTuple):
    """That an attempt should end. `reason`: of its outcome, when it ends because of that; empty: its own."""

    reason: str
    words: str
    grace_seconds: float | None


class Runner:
    """Work between its start and its outcome. Safe for threads."""

    def __init__(
        self,
        namespace: str,
        clock: ClusterClock,
        registry: Registry,
        on_outcome: Callable[[Work, Definition, Outcome], None],
        unsettled: Callable[[], frozenset[tuple[int, int]]],
        believes: Callable[[str], bool],
    ) -> None:
        """`believes`: whether this instance may still take itself for the member of that id."""
        self._namespace = namespace
        self._clock = clock
        self._registry = registry
        self._on_outcome = on_outcome
        self._unsettled = unsettled
        self._believes = believes
        self._lock = threading.Lock()
        self._heap: list[tuple[int, int, Work]] = []
        self._order = itertools.count()
        self._executing: dict[tuple[int, int], Executing] = {}
        self._asked: dict[tuple[int, int], _Wish] = {}
        self._isolated: set[tuple[int, int]] = set()
        self.on_waiting: Callable[[], None] = lambda: None

    def handlers(self) -> Sequence[str]:
        """What this instance can run."""
        return self._registry.handlers()

    def prepare(self, kinds: Collection[str]) -> None:
        """Work of these kinds is due soon: have its executors do beforehand what would make it late."""
        self._registry.prepare(kinds)

    def load(self) -> int:
        """How many attempts are waiting for their instant or executing."""
        return len(self._executing)

    def executing(self) -> list[tuple[int, int]]:
        """Run and attempt of everything in hand."""
        with self._lock:
            return list(self._executing)

    def known(self) -> frozenset[tuple[int, int]]:
        """Run and attempt of everything that is executing, or has ended and is not settled yet."""
        with self._lock:
            executing = frozenset(self._executing)
        return executing | self._unsettled()

    def stoppable(self) -> list[Executing]:
        """What may not go on beside another attempt, and has not been told that this instance is cut off."""
        with self._lock:
            return [
                item
                for key, item in self._executing.items()
                if key not in self._isolated and item.definition.stops_when_isolated
            ]

    def accept(self, started: Sequence[Started], known: Mapping[tuple[int, int], Known], *, owner: str) -> None:
        """Take attempts whose start is committed; each begins at its instant, or at once when that has passed.

        `owner`: the member id that the start names. What is due when that membership has ended does not begin.
        """
        if not started:
            return
        now, now_mono = self._clock.now(), self._clock.monotonic()
        works: list[Work] = []
        with self._lock:
            for start in started:
                entry = known.get((start.job_id, start.job_version), UNREADABLE)
                work = self._work(start, entry, now_mono + max(0, start.ready_at - now))
                works.append(work)
                self._executing[(work.run_id, work.attempt)] = Executing(work, entry.definition, owner)
                if work.begin_at > now_mono:
                    heapq.heappush(self._heap, (work.begin_at, next(self._order), work))
        due = [w for w in works if w.begin_at <= now_mono]
        self._begin(due)
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
        self._begin(due)
        return min(pause, IDLE_SECONDS)

    def cancel(self, run_id: int, reason: str) -> None:
        """Ask a run's work to end; what waits for its instant does not begin."""
        wish = _Wish(reason="", words=reason, grace_seconds=None)
        with self._lock:
            for key in self._executing:
                if key[0] == run_id:
                    self._asked.setdefault(key, wish)
        self._registry.cancel(run_id, reason)

    def isolate(self, item: Executing, words: str, *, grace_seconds: float) -> None:
        """Ask work to end, once, because this instance is cut off; forced after the grace, where it can be.

        What was asked to end before is asked again, since this grace may be shorter.
        """
        key = (item.work.run_id, item.work.attempt)
        with self._lock:
            if key in self._isolated or key not in self._executing:
                return
            self._isolated.add(key)
            self._asked.setdefault(key, _Wish(reason=ISOLATED, words=words, grace_seconds=grace_seconds))
        self._registry.cancel(item.work.run_id, words, grace_seconds=grace_seconds)

    def close(self, grace_seconds: float) -> list[int]:
        """End what still runs; the ids of runs that had not ended by themselves."""
        left = [run_id for run_id, _ in self.executing()]
        self._registry.close(grace_seconds)
        return left

    def _begin(self, due: Sequence[Work]) -> None:
        ours: list[Work] = []
        for work in due:
            key = (work.run_id, work.attempt)
            item, wish = self._executing.get(key), self._asked.get(key)
            if item is None:
                continue
            if wish is not None and wish.reason != ISOLATED:
                self._report(self._not_begun(work, "cancelled", f"{wish.words}; it had not begun"))
            elif wish is not None or not self._believes(item.owner):
                words = "it was not begun: this instance's membership had ended by its instant"
                self._report(self._not_begun(work, NOT_BEGUN, words))
            else:
                ours.append(work)
        if ours:
            self._registry.submit(ours, self._report)
            self._ask_again(ours)

    def _ask_again(self, begun: Sequence[Work]) -> None:
        """A wish that came while work was being handed over found nothing to end."""
        with self._lock:
            wishes = [(work.run_id, self._asked.get((work.run_id, work.attempt))) for work in begun]
        for run_id, wish in wishes:
            if wish is not None:
                self._registry.cancel(run_id, wish.words, grace_seconds=wish.grace_seconds)

    def _not_begun(self, work: Work, reason: str, words: str) -> Outcome:
        now = self._clock.monotonic()
        return Outcome(
            run_id=work.run_id,
            attempt=work.attempt,
            fence=work.fence,
            state=State.CANCELLED,
            begun_at=now,
            ended_at=now,
            reason=reason,
            error=words,
        )

    def _report(self, outcome: Outcome) -> None:
        key = (outcome.run_id, outcome.attempt)
        with self._lock:
            item = self._executing.get(key)
            asked = self._asked.get(key)
        if item is None:
            return
        cancelled = outcome.state is State.CANCELLED
        if asked is not None and asked.reason == ISOLATED and outcome.reason != NOT_BEGUN and cancelled:
            outcome = outcome._replace(reason=ISOLATED)
        # Unsettled first, then no longer executing: always known.
        self._on_outcome(item.work, item.definition, outcome)
        with self._lock:
            self._executing.pop(key, None)
            self._asked.pop(key, None)
            self._isolated.discard(key)

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
