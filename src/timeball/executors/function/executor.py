"""Functions of the program: async ones on the jobs' loop, sync ones in threads. Owns time-outs and cancels of both."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timeball.clock import monotonic_us, seconds_to_us
from timeball.errors import TargetError
from timeball.executors.contract import Report
from timeball.executors.function.call import Call, Verdict
from timeball.executors.function.context import RunContext
from timeball.executors.function.fence import CheckFence
from timeball.executors.function.loops import JobLoops
from timeball.executors.function.processes import JobProcesses
from timeball.executors.function.shape import Shape, shape_of
from timeball.executors.function.threads import JobThreads
from timeball.executors.function.workers import WorkerPlan
from timeball.executors.places import main_of_program
from timeball.executors.registry import FunctionTable, refused
from timeball.model.fields import NAME_CHARS_MAX
from timeball.model.run import Progress, Work
from timeball.model.states import State

WATCH_SECONDS = 0.1
SAID_MAX = 10_000
HUNG_SECONDS = 0.5
"""How long an async function that blocks its loop may overrun its time-out before it is told as ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """Of worker processes: the command that starts one, how many at once, runs until one is replaced, address space.

    `memory_bytes_max`: 0 means no limit. `grace_seconds`: between asking a function to end and killing its process.
    """

    command: Sequence[str]
    processes_max: int = 4
    runs_max: int = 100
    memory_bytes_max: int = 0
    grace_seconds: float = 5.0


class FunctionExecutor:
    """Runs functions that the program registered; never an import by a text from the database."""

    kind = "function"

    def __init__(
        self,
        table: FunctionTable,
        *,
        output_bytes_max: int,
        threads_max: int,
        check_fence: CheckFence | None = None,
        processes: ProcessLimits | None = None,
    ) -> None:
        """`processes`: how functions with `isolation="process"` run; without it there are none."""
        self._table = table
        self._bytes_max = output_bytes_max
        self._check_fence = check_fence
        self._shapes: dict[str, Shape] = {}
        self._calls: dict[tuple[int, int], Call] = {}
        self._said: dict[int, Progress] = {}
        self._loops = JobLoops()
        self._threads = JobThreads(threads_max)
        self._limits = processes
        self._processes = (
            None
            if processes is None
            else JobProcesses(self._worker_plan, processes_max=processes.processes_max, runs_max=processes.runs_max)
        )
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
        if self._processes is None and self._table.is_isolated(name):
            raise TargetError(f"function {name!r} wants a process of its own; there are none here", field="target")
        self._shape(name).arguments.read(args)

    def schema(self, target: Mapping[str, Any]) -> dict[str, Any]:
        """JSON Schema of the arguments of a function. Raises TargetError."""
        return self._shape(self.handler_of(target).removeprefix("function:")).arguments.schema()

    def submit(self, batch: Sequence[Work], report: Report) -> None:
        """Begin each call."""
        if self._closing.is_set():
            for work in batch:
                report(refused(work, "start", "this instance is ending"))
            return
        on_loop: list[Call] = []
        in_threads: list[Call] = []
        apart: list[Call] = []
        for work in batch:
            shape = self._shape(work.target["name"])
            context = RunContext(work, self._bytes_max, self._check_fence, self._note)
            call = Call(work, shape, report, context)
            call.on_told = self._told
            self._calls[call.key] = call
            if self._table.is_isolated(work.target["name"]):
                apart.append(call)
            else:
                (on_loop if shape.is_async else in_threads).append(call)
        self._watch()
        if on_loop:
            self._loops.submit(on_loop)
        if in_threads:
            self._threads.submit(in_threads)
        if apart and self._processes is not None:
            self._processes.submit(apart)

    def cancel(self, run_id: int, reason: str, *, grace_seconds: float | None = None) -> bool:
        """Async functions are cancelled, sync ones find their flag set; what has not begun ends at once.

        Only functions in a process of their own can be forced: killed after the grace.
        """
        kill_by = None if grace_seconds is None else monotonic_us() + seconds_to_us(grace_seconds)
        calls = [call for call in list(self._calls.values()) if call.work.run_id == run_id]
        for call in calls:
            self._end(call, (State.CANCELLED, "cancelled", reason), kill_by)
        return bool(calls)

    def progress(self) -> Sequence[Progress]:
        """The last word of each run that has said something since this was last asked."""
        with self._lock:
            said, self._said = self._said, {}
        return list(said.values())

    def _note(self, context: RunContext) -> None:
        said = Progress(
            run_id=context.id,
            fence=int(context.fence),
            fraction=context.progress_fraction or 0.0,
            text=context.progress_text,
            said_at=monotonic_us(),
        )
        with self._lock:
            if len(self._said) < SAID_MAX or context.id in self._said:
                self._said[context.id] = said

    def running(self) -> Sequence[int]:
        """Ids of the runs whose outcome has not been told."""
        return tuple(call.work.run_id for call in list(self._calls.values()))

    def close(self, grace_seconds: float) -> Sequence[int]:
        """Ask everything to end and wait up to the grace; ids of what goes on. Threads left are daemons.

        Worker processes are killed then.
        """
        self._closing.set()
        for call in list(self._calls.values()):
            self._end(call, (State.CANCELLED, "cancelled", "the instance is ending"))
        with self._changed:
            self._changed.wait_for(lambda: not self._calls, grace_seconds)
        if self._processes is not None:
            self._processes.close()
        self._threads.close()
        self._loops.close()
        return self.running()

    def _end(self, call: Call, verdict: Verdict, kill_by: int | None = None) -> None:
        call.ask_to_end(verdict)
        if not call.begun and call.begin():
            call.tell(*verdict)
            return
        if self._apart(call):
            self._processes_of(call).end(call, kill_by)
        else:
            self._loops.cancel(call)

    def _told(self, call: Call) -> None:
        self._calls.pop(call.key, None)
        if self._closing.is_set() and not self._calls:
            with self._changed:
                self._changed.notify_all()

    def _shape(self, name: str) -> Shape:
        shape = self._shapes.get(name)
        if shape is None:
            shape = self._shapes[name] = shape_of(name, self._table.get(name))
        return shape

    def _apart(self, call: Call) -> bool:
        return self._table.is_isolated(call.work.target["name"])

    def _processes_of(self, call: Call) -> JobProcesses:
        assert self._processes is not None, f"{call.key} has no processes"
        return self._processes

    def _worker_plan(self) -> WorkerPlan:
        assert self._limits is not None
        return WorkerPlan(
            command=self._limits.command,
            message={
                "parent": os.getpid(),
                "main": main_of_program(),
                "functions": self._table.isolated(),
                "bytes_max": self._bytes_max,
                "memory_bytes_max": self._limits.memory_bytes_max,
            },
            bytes_max=self._bytes_max,
            grace_seconds=self._limits.grace_seconds,
        )

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
        if self._apart(call):
            if call.ending is None:
                call.ask_to_end(call.timed_out())
                self._processes_of(call).end(call)
            return
        if call.shape.is_async and (now - call.deadline < seconds_to_us(HUNG_SECONDS) or call.ending is not None):
            return
        call.ask_to_end(call.timed_out())
        state, reason, error = call.timed_out()
        self._threads.left_behind(call)
        call.tell(state, reason, f"{error}; a thread cannot be ended from outside, so the function may go on")
