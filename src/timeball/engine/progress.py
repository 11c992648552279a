"""Progress of runs in hand: once a second, in one statement for all of them. Losing some costs a person a glance."""

from __future__ import annotations

from timeball.clock import ClusterClock
from timeball.executors.registry import Registry
from timeball.store import Store
from timeball.store.progresses import ProgressRow

INTERVAL_SECONDS = 1.0
BATCH_MAX = 1000
KEPT_MAX = 10_000


class ProgressWriter:
    """The last word of each run until it is written. For one thread."""

    def __init__(self, store: Store, clock: ClusterClock, registry: Registry) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self._kept: dict[int, ProgressRow] = {}

    def step(self) -> float:
        """Write what runs have said since the last step. Returns seconds until the next; 0 when there is more."""
        for said in self._registry.progress():
            row = ProgressRow(said.run_id, said.fence, said.fraction, said.text, self._clock.at(said.said_at))
            self._kept.pop(said.run_id, None)
            self._kept[said.run_id] = row
        for run_id in list(self._kept)[: max(0, len(self._kept) - KEPT_MAX)]:
            del self._kept[run_id]
        batch = list(self._kept.values())[:BATCH_MAX]
        if batch:
            self._store.progresses.write(batch)
            for row in batch:
                del self._kept[row.run_id]
        return 0 if self._kept else INTERVAL_SECONDS
