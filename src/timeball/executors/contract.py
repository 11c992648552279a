"""What every way of running work must offer. Executors run no SQL and know no scheduler: Work in, Outcome out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from timeball.model.run import Outcome, Work

Report = Callable[[Outcome], None]
"""Called exactly once for each Work submitted, from any thread; returns at once and never raises."""


class Executor(Protocol):
    """One way to run work, e.g. functions or commands. All methods may be called from any thread."""

    kind: str

    def handlers(self) -> Sequence[str]:
        """Keys of the work this instance can take: `function:NAME` for each function, or just the kind."""
        ...

    def handler_of(self, target: Mapping[str, Any]) -> str:
        """The key that an instance must have to take this target."""
        ...

    def check(self, target: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        """Refuse what cannot or must not run here. Called when a job is saved and again before each run.

        Raises TargetError.
        """
        ...

    def submit(self, batch: Sequence[Work], report: Report) -> None:
        """Begin each piece of work now and return at once. Never raises: trouble is an Outcome."""
        ...

    def cancel(self, run_id: int, reason: str, *, grace_seconds: float | None = None) -> bool:
        """Ask the work of a run to end; False when it is not running here. Its Outcome says `cancelled`.

        `grace_seconds`: force it after so long, where it can be forced, if that comes before the executor's own grace.
        """
        ...

    def running(self) -> Sequence[int]:
        """Ids of the runs whose work has not ended."""
        ...

    def close(self, grace_seconds: float) -> Sequence[int]:
        """End what still runs (ask, wait up to the grace, then force); ids of what could not be ended."""
        ...
