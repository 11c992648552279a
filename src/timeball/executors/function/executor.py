"""Functions of the program: async ones on the jobs' loop, sync ones in threads. Owns time-outs and cancels of both."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timeball.clock import monotonic_us, seconds_to_us
from timeball.errors import TargetError
from timeball.executors.contract import Report
from timeball.executors.function.call import Call
from timeball.executors.function.loops import JobLoops
from timeball.executors.function.threads import JobThreads
from timeball.executors.registry import FunctionTable, refused
from timeball.model.job import NAME_CHARS_MAX
from timeball.model.run import Work
from timeball.model.states import State

WATCH_SECONDS = 0.1
HUNG_SECONDS = 0.5
"""How long an async function that blocks its loop may overrun its time-out before it is told as ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a function is called."""

    function: Callable[..., Any]
    is_async: bool
    wants_run: bool
    signature: inspect.Signature | None


class FunctionExecutor:
    """Runs functions that the program registered; never an import by a text from the database."""

    kind = "function"

    def __init__(self, table: FunctionTable, *, output_bytes_max: int, threads_max: int) -> None:
        self._table = table
        self._bytes_max = output_bytes_max
        self._shapes: dict[str, Shape] = {}
        self._fits: set[tuple[str, tuple[str, ...]]] = set()
        self._calls: dict[tuple[int, int], Call] = {}
        self._loops = JobLoops()
        self._threads = JobThreads(threads_max)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None

    def handlers(self) -> Sequence[str]:
        """One key a function."""
        return tuple(f"function:{name}" for name in self._table.names())

    def handler_of(self, target: Mapping[str, Any]) -> str:
        """The key of the target's function. Raises TargetError for a target without a name."""
        name = target.get("name")
        if not isinstance(name, str) or not name:
            raise TargetError('a function target is {"name": NAME}', field="target")
        if len(name) > NAME_CHARS_MAX:
            raise TargetError(f"a function's name has at most {NAME_CHARS_MAX} characters", field="target")
        return f"function:{name}"

    def check(self, target: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        """Refuse unknown functions and arguments that do not fit. Raises TargetError naming the argument."""
        name = self.handler_of(target).removeprefix("function:")
        unknown = sorted(set(target) - {"name"})
        if unknown:
            raise TargetError(f"a function target has no {unknown[0]!r}", hint="only name", field="target")
        key = (name, tuple(args))
        if key in self._fits:
            return
        shape = self._shape(name)
        if shape.signature is not None:
            try:
                shape.signature.bind(*([None] if shape.wants_run else []), **args)
            except TypeError as error:
                hint = f"it takes {shape.signature}"
                raise TargetError(f"args do not fit function {name!r}: {error}", hint=hint, field="args") from error
        if len(self._fits) < 10_000:
            self._fits.add(key)

    def submit(self, batch: Sequence[Work], report: Report) -> None:
        """Begin each call."""
        if self._closing.is_set():
            for work in batch:
                report(refused(work, "start", "this instance is ending"))
            return
        on_loop: list[Call] = []
        in_threads: list[Call] = []
        for work in batch:
            shape = self._shape(work.target["name"])
            call = Call(work, shape.function, report, self._bytes_max, wants_run=shape.wants_run)
            call.on_told = self._told
            self._calls[call.key] = call
            (on_loop if shape.is_async else in_threads).append(call)
        self._watch()
        if on_loop:
            self._loops.submit(on_loop)
        if in_threads:
            self._threads.submit(in_threads)

    def cancel(self, run_id: int, reason: str, *, grace_seconds: float | None = None) -> bool:
        """Async functions are cancelled, sync ones find their flag set; what has not begun ends at once.

        Nothing here can be forced, so no grace changes anything.
        """
        del grace_seconds
        calls = [call for call in list(self._calls.values()) if call.work.run_id == run_id]
        for call in calls:
            self._end(call, (State.CANCELLED, "cancelled", reason))
        return bool(calls)

    def running(self) -> Sequence[int]:
        """Ids of the runs whose outcome has not been told."""
        return tuple(call.work.run_id for call in list(self._calls.values()))

    def close(self, grace_seconds: float) -> Sequence[int]:
        """Ask everything to end and wait up to the grace; ids of what goes on. Threads left are daemons."""
        self._closing.set()
        for call in list(self._calls.values()):
            self._end(call, (State.CANCELLED, "cancelled", "the instance is ending"))
        with self._changed:
            self._changed.wait_for(lambda: not self._calls, grace_seconds)
        self._threads.close()
        self._loops.close()
        return self.running()

    def _end(self, call: Call, verdict: tuple[State, str, str]) -> None:
        call.ask_to_end(verdict)
        if not call.begun and call.begin():
            call.tell(*verdict)
            return
        self._loops.cancel(call)

    def _told(self, call: Call) -> None:
        self._calls.pop(call.key, None)
        if self._closing.is_set() and not self._calls:
            with self._changed:
                self._changed.notify_all()

    def _shape(self, name: str) -> Shape:
        shape = self._shapes.get(name)
        if shape is None:
            shape = self._shapes[name] = _shape_of(self._table.get(name))
        return shape

    def _watch(self) -> None:
        with self._lock:
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._run_watch, name="timeball-watch-jobs", daemon=True)
                self._watcher.start()

    def _run_watch(self) -> None:
        while not self._closing.wait(WATCH_SECONDS):
            self._loops.watch()
            now = monotonic_us()
            for call in list(self._calls.values()):
                if call.deadline is not None and now >= call.deadline:
                    self._overdue(call, now)

    def _overdue(self, call: Call, now: int) -> None:
        """The time-out of sync functions; of async ones only when their own loop cannot keep it."""
        assert call.deadline is not None
        is_async = self._shape(call.work.target["name"]).is_async
        if is_async and (now - call.deadline < seconds_to_us(HUNG_SECONDS) or call.ending is not None):
            return
        call.ask_to_end(call.timed_out())
        state, reason, error = call.timed_out()
        self._threads.left_behind(call)
        call.tell(state, reason, f"{error}; a thread cannot be ended from outside, so the function may go on")


def _shape_of(function: Callable[..., Any]) -> Shape:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C do not say
        signature = None
    first = next(iter(signature.parameters.values()), None) if signature else None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return Shape(
        function=function,
        is_async=inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called),
        wants_run=first is not None and first.name == "run" and first.kind in positional,
        signature=signature,
    )
