"""Cancelling: sees the wishes of others to cancel what runs here, and passes them to the executors."""

from __future__ import annotations

from timeball.engine.runner import Runner
from timeball.store import Store

INTERVAL_SECONDS = 0.5


class Canceller:
    """One statement per half second while anything runs; none when nothing does."""

    def __init__(self, store: Store, runner: Runner) -> None:
        self._store = store
        self._runner = runner
        self._asked: set[tuple[int, int]] = set()

    def step(self) -> float:
        """Look for wishes. Returns seconds until the next look."""
        executing = set(self._runner.executing())
        self._asked &= executing  # by attempt: a run that a person wants again may be cancelled again
        open_ = executing - self._asked
        wishes = self._store.runs.wishes_to_cancel([run_id for run_id, _ in open_])
        for run_id, reason in wishes.items():
            self._asked |= {attempt for attempt in open_ if attempt[0] == run_id}
            self._runner.cancel(run_id, reason)
        return INTERVAL_SECONDS
