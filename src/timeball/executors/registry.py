"""Every way to run work, by kind; and the functions a program offers. Knows nothing of how any of them works."""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from timeball.clock import monotonic_us
from timeball.errors import InvalidInput, SecretError, TargetError
from timeball.executors.contract import Executor, Preparable, Report, WithProgress, WithSchema
from timeball.executors.places import Place, place_of
from timeball.executors.redaction import Redactor
from timeball.executors.secrets import Secrets
from timeball.model.run import Outcome, Progress, Work
from timeball.model.states import State

ENTRY_POINTS = "timeball.functions"
ISOLATIONS = ("", "process")
_log = logging.getLogger("timeball.executors")


class FunctionTable:
    """Functions by name: filled by decorators of the program and by entry points, never from the database.

    `installed`: also offer what installed packages declare under the entry point group `timeball.functions`; they are
    imported when the table is first asked.
    """

    def __init__(self, *, installed: bool = False) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        self._isolated: dict[str, Place] = {}
        self._to_install = [ENTRY_POINTS] if installed else []
        self._broken: dict[str, str] = {}

    def register(self, name: str, function: Callable[..., Any], *, isolation: str = "") -> None:
        """Offer a function. Raises InvalidInput for a name that is taken, what cannot be called, and generators.

        `isolation`: "process": it runs in a process of its own, which imports it again.
        """
        if not callable(function):
            raise InvalidInput(f"{name!r} is not a function but {type(function).__name__}", field="function")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidInput(f"{name!r} is a generator: a call would run nothing of it", field="function")
        if isolation not in ISOLATIONS:
            hint = " or ".join(repr(choice) for choice in ISOLATIONS)
            raise InvalidInput(f"isolation cannot be {isolation!r}", hint=hint, field="isolation")
        if self._functions.get(name, function) is not function:
            raise InvalidInput(
                f"a function named {name!r} is registered already", hint="choose another name", field="function"
            )
        if isolation:
            self._isolated[name] = place_of(name, function)
        self._functions[name] = function

    def is_isolated(self, name: str) -> bool:
        """Whether a function runs in a process of its own."""
        return name in self._isolated

    def isolated(self) -> dict[str, Place]:
        """Where worker processes find those that run there."""
        return dict(self._isolated)

    def names(self) -> list[str]:
        """Every name, sorted."""
        self._install()
        return sorted(self._functions)

    def get(self, name: str) -> Callable[..., Any]:
        """The function of a name. Raises TargetError with a suggestion."""
        self._install()
        try:
            return self._functions[name]
        except KeyError:
            hint = self._broken.get(name) or suggestion(name, self.names())
            raise TargetError(f"this instance has no function named {name!r}", hint=hint, field="target") from None

    def _install(self) -> None:
        """What a package offers that cannot be imported is told, and stops nothing else."""
        while self._to_install:
            for entry in importlib.metadata.entry_points(group=self._to_install.pop()):
                try:
                    self.register(entry.name, entry.load())
                except (Exception, SystemExit) as error:  # noqa: BLE001 - the package's own code
                    self._broken[entry.name] = f"its entry point {entry.value} failed: {type(error).__name__}: {error}"
                    _log.warning("function %r is not offered: %s", entry.name, self._broken[entry.name])


class Registry:
    """Finds the executor of a piece of work. Safe for threads."""

    def __init__(self, executors: Iterable[Executor], secrets: Secrets | None = None) -> None:
        self._executors = {executor.kind: executor for executor in executors}
        self._secrets = secrets or Secrets()
        self._redactors: dict[tuple[int, int], Redactor] = {}

    def handlers(self) -> Sequence[str]:
        """Keys of all the work this instance can take."""
        return tuple(key for executor in self._executors.values() for key in executor.handlers())

    def handler_of(self, executor: str, target: Mapping[str, Any]) -> str:
        """The key that an instance must have to take this target. Raises TargetError."""
        return self._executor(executor).handler_of(target)

    def check(self, executor: str, target: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        """Refuse what cannot or must not run here. Raises TargetError."""
        self._executor(executor).check(target, args)

    def check_secrets(self, target: Mapping[str, Any], args: Mapping[str, Any]) -> Sequence[str]:
        """Refuse references to secrets that are malformed or missing; names that this process cannot know about.

        Raises SecretError.
        """
        return tuple(dict.fromkeys((*self._secrets.check(target), *self._secrets.check(args))))

    def schema(self, executor: str, target: Mapping[str, Any]) -> dict[str, Any] | None:
        """JSON Schema of the arguments of a target, or None where the executor has none. Raises TargetError."""
        found = self._executor(executor)
        return found.schema(target) if isinstance(found, WithSchema) else None

    def progress(self) -> Sequence[Progress]:
        """How far runs are that have said so since this was last asked."""
        return [
            self._hidden(said)
            for executor in self._executors.values()
            if isinstance(executor, WithProgress)
            for said in executor.progress()
        ]

    def _hidden(self, said: Progress) -> Progress:
        redactor = self._redactors.get((said.run_id, said.fence))
        return said if redactor is None else said._replace(text=redactor.text(said.text))

    def submit(self, batch: Sequence[Work], report: Report) -> None:
        """Begin each piece of work now; what may not run here is reported as failed. Never raises.

        Secrets are put in here, and hidden in what is reported, once for all ways to run work.
        """
        groups: dict[str, list[Work]] = defaultdict(list)
        redactors: dict[tuple[int, int], Redactor] = {}
        for work in batch:
            ready = self._ready(work, report)
            if ready is None:
                continue
            groups[work.executor].append(ready)
            if ready.secrets:
                redactors[(work.run_id, work.fence)] = Redactor(ready.secrets)
        self._redactors.update(redactors)
        told = self._redacting(report) if redactors else report
        for kind, works in groups.items():
            self._executors[kind].submit(works, told)

    def _redacting(self, report: Report) -> Report:
        def redacted(outcome: Outcome) -> None:
            redactor = self._redactors.pop((outcome.run_id, outcome.fence), None)
            report(outcome if redactor is None else redactor.outcome(outcome))

        return redacted

    def prepare(self, kinds: Collection[str]) -> None:
        """Work of these kinds is due soon. Returns at once."""
        for kind in kinds:
            executor = self._executors.get(kind)
            if isinstance(executor, Preparable):
                executor.prepare()

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

    def _ready(self, work: Work, report: Report) -> Work | None:
        """The work with its secrets, checked once more; None when it may not run, which has been reported."""
        try:
            target, in_target = self._secrets.resolve(work.target)
            args, in_args = self._secrets.resolve(work.args, marked=False)  # a function gets texts like any other
        except SecretError as error:
            report(refused(work, "secret", str(error)))
            return None
        secrets = in_target + in_args
        try:
            self.check(work.executor, target, args)
        except TargetError as error:
            report(refused(work, "target", Redactor(secrets).text(str(error))))
            return None
        if target is work.target and args is work.args:
            return work
        return work._replace(target=target, args=args, secrets=secrets)

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
