"""Every way to run work, by kind; and the functions a program offers. Knows nothing of how any of them works."""

from __future__ import annotations

import difflib
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from timeball.clock import monotonic_us
from timeball.errors import InvalidInput, TargetError
from timeball.executors.contract import Executor, Report
from timeball.model.run import Outcome, Work
from timeball.model.states import State


class FunctionTable:
    """Functions by name: filled by decorators of the program, never from the database."""

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}

    def register(self, name: str, function: Callable[..., Any]) -> None:
        """Offer a function. Raises InvalidInput for a name that is taken, what cannot be called, and generators."""
        if not callable(function):
            raise InvalidInput(f"{name!r} is not a function but {type(function).__name__}", field="function")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidInput(f"{name!r} is a generator: a call would run nothing of it", field="function")
        if self._functions.get(name, function) is not function:
            raise InvalidInput(
                f"a function named {name!r} is registered already", hint="choose another name", field="function"
            )
        self._functions[name] = function

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted(self._functions)

    def get(self, name: str) -> Callable[..., Any]:
        """The function of a name. Raises TargetError with a suggestion."""
        try:
            return self._functions[name]
        except KeyError:
            raise TargetError(
                f"this instance has no function named {name!r}", hint=suggestion(name, self.names()), field="target"
            ) from None


class Registry:
    """Finds the executor of a piece of work. Safe for threads."""

    def __init__(self, executors: Iterable[Executor]) -> None:
        self._executors = {executor.kind: executor for executor in executors}

    def handlers(self) -> Sequence[str]:
        """Keys of all the work this instance can take."""
        return tuple(key for executor in self._executors.values() for key in executor.handlers())

    def handler_of(self, executor: str, target: Mapping[str, Any]) -> str:
        """The key that an instance must have to take this target. Raises TargetError."""
        return self._executor(executor).handler_of(target)

    def check(self, executor: str, target: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        """Refuse what cannot or must not run here. Raises TargetError."""
        self._executor(executor).check(target, args)

    def submit(self, batch: Sequence[Work], report: Report) -> None:
        """Begin each piece of work now; what may not run here is reported as failed. Never raises."""
        groups: dict[str, list[Work]] = defaultdict(list)
        for work in batch:
            try:
                self.check(work.executor, work.target, work.args)
            except TargetError as error:
                report(refused(work, "target", str(error)))
            else:
                groups[work.executor].append(work)
        for kind, works in groups.items():
            self._executors[kind].submit(works, report)

    def cancel(self, run_id: int, reason: str, *, grace_seconds: float | None = None) -> bool:
        """Ask the work of a run to end; False when it is not running here. `grace_seconds`: force it after so long."""
        found = [executor.cancel(run_id, reason, grace_seconds=grace_seconds) for executor in self._executors.values()]
        return any(found)

    def running(self) -> Sequence[int]:
        """Ids of the runs whose work has not ended."""
        return tuple(run_id for executor in self._executors.values() for run_id in executor.running())

    def close(self, grace_seconds: float) -> Sequence[int]:
        """End what still runs; ids of what could not be ended."""
        return tuple(run_id for executor in self._executors.values() for run_id in executor.close(grace_seconds))

    def _executor(self, kind: str) -> Executor:
        try:
            return self._executors[kind]
        except KeyError:
            hint = suggestion(kind, sorted(self._executors))
            raise TargetError(f"there is no executor {kind!r}", hint=hint, field="executor") from None


def refused(work: Work, reason: str, error: str) -> Outcome:
    """The outcome of work that never began."""
    now = monotonic_us()
    return Outcome(
        run_id=work.run_id,
        attempt=work.attempt,
        fence=work.fence,
        state=State.FAILED,
        begun_at=now,
        ended_at=now,
        reason=reason,
        error=error,
    )


def suggestion(name: str, known: Sequence[str]) -> str:
    """What the writer of an unknown name may have meant."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
