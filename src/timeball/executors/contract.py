"""What every way of running work must offer. Executors run no SQL and know no scheduler: Work in, Outcome out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from timeball.model.run import Outcome, Progress, Work

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


@runtime_checkable
class Preparable(Protocol):
    """What an executor may offer beside, when its first work would be late without it."""

    def prepare(self) -> None:
        """Work is due soon: get ready what takes time. Returns at once, never raises; called again and again."""
        ...


@runtime_checkable
class WithSchema(Protocol):
    """An executor whose targets say which arguments they take."""

    def schema(self, target: Mapping[str, Any]) -> dict[str, Any]:
        """JSON Schema of the object of arguments. Raises TargetError."""
        ...


@runtime_checkable
class WithProgress(Protocol):
    """An executor whose work says how far it is."""

    def progress(self) -> Sequence[Progress]:
        """The last word of each run that has said something since this was last asked."""
        ...
