"""The work of simulated instances: functions whose length and end are drawn from the seed. No threads."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timeball.executors.contract import Outcome, Report, Work
from timeball.model.states import State

SECOND = 1_000_000
FAILS = 0.2


@dataclass(frozen=True, slots=True)
class Living:
    """One function between its begin and its end, by the host's monotonic clock."""

    work: Work
    report: Report
    begun_at: int
    ends_at: int
    state: State


class SimExecutor:
    """Runs `function:work`. Work goes on only while the simulation calls `advance`, and dies with `die`."""

    kind = "function"

    def __init__(
        self,
        rng: random.Random,
        monotonic: Callable[[], int],
        on_begin: Callable[[Work], None],
        on_end: Callable[[Outcome], None],
    ) -> None:
        self._rng = rng
        self._monotonic = monotonic
        self._on_begin = on_begin
        self._on_end = on_end
        self._living: dict[tuple[int, int], Living] = {}

    def handlers(self) -> Sequence[str]:
        return ("function:work",)

    def handler_of(self, target: Mapping[str, Any]) -> str:
        return f"function:{target['name']}"

    def check(self, target: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        del target, args

    def submit(self, batch: Sequence[Work], report: Report) -> None:
        for work in batch:
            self._on_begin(work)
            now = self._monotonic()
            length = self._rng.choice((0, 0, 100_000, SECOND, 4 * SECOND, 30 * SECOND))
            state = State.FAILED if self._rng.random() < FAILS else State.SUCCEEDED
            living = Living(work, report, now, now + length, state)
            self._living[(work.run_id, work.attempt)] = living

    def advance(self) -> int:
        """End what has come to its end; how many."""
        now = self._monotonic()
        due = [key for key, living in self._living.items() if living.ends_at <= now]
        for key in due:
            self._end(key, self._living[key].state)
        return len(due)

    def cancel(self, run_id: int, reason: str, *, grace_seconds: float | None = None) -> bool:
        del reason, grace_seconds
        found = [key for key in self._living if key[0] == run_id]
        for key in found:
            self._end(key, State.CANCELLED)
        return bool(found)

    def running(self) -> Sequence[int]:
        return tuple(run_id for run_id, _ in self._living)

    def close(self, grace_seconds: float) -> Sequence[int]:
        del grace_seconds
        return self.running()

    def holds(self, key: tuple[int, int]) -> bool:
        """Whether this attempt lives here."""
        return key in self._living

    def die(self) -> list[tuple[int, int]]:
        """The process is gone, and its functions with it."""
        died = list(self._living)
        self._living.clear()
        return died

    def _end(self, key: tuple[int, int], state: State) -> None:
        living = self._living.pop(key)
        work = living.work
        outcome = Outcome(
            run_id=work.run_id,
            attempt=work.attempt,
            fence=work.fence,
            state=state,
            begun_at=living.begun_at,
            ended_at=self._monotonic(),
        )
        self._on_end(outcome)
        living.report(outcome)
