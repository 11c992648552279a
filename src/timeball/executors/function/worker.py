"""A worker process, from inside: runs one function at a time in its main thread, until told to end or left alone.

It ends with its instance, also when that is killed: the kernel tells it (Linux), and the socket between them closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import os
import queue
import resource
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any

from timeball.clock import monotonic_us
from timeball.executors.function.call import Call
from timeball.executors.function.context import RunContext
from timeball.executors.function.fence import CheckFence
from timeball.executors.function.shape import Shape, shape_of
from timeball.executors.function.threads import child_status
from timeball.executors.function.wire import READ_BYTES, Lines, outcome_message, read_work, say
from timeball.executors.places import Importer, Place
from timeball.model.run import Output, Work

PR_SET_PDEATHSIG = 1
SAY_EVERY_US = 100_000
_here: list[bool] = []


def in_worker() -> bool:
    """Whether this process is a worker: nothing that the program's modules do at import may start an instance here."""
    return bool(_here)


class WorkerContext(RunContext):
    """The run's context in a worker: what the function says goes to the instance at once."""

    def __init__(
        self, work: Work, bytes_max: int, check_fence: CheckFence, connection: socket.socket, log: int
    ) -> None:
        super().__init__(work, bytes_max, check_fence)
        self._connection = connection
        self._log_descriptor = log
        self._said_at = 0
        self._unsaid = False

    def log(self, text: str) -> None:
        """Add a line to the run's output (stream `log`)."""
        data = f"{text}\n".encode("utf-8", "backslashreplace")
        with self._lock:
            while data:
                data = data[os.write(self._log_descriptor, data) :]

    def progress(self, fraction: float, text: str = "") -> None:
        """Say how far the work is: 0 to 1, and a few words."""
        super().progress(fraction, text)
        self._unsaid = True
        if monotonic_us() - self._said_at >= SAY_EVERY_US:
            self.say_progress()

    def say_progress(self) -> None:
        """Tell the instance the last word, if it does not know it."""
        if self._unsaid:
            self._unsaid, self._said_at = False, monotonic_us()
            say(self._connection, progress=[self.progress_fraction, self.progress_text])

    def outputs(self) -> tuple[Output, ...]:
        """The instance has them; it gets the last word on progress before the end."""
        self.say_progress()
        return ()


class Worker:
    """The functions that were found, and the one that runs."""

    def __init__(self, connection: socket.socket, log: int, check_fence: CheckFence) -> None:
        self._connection = connection
        self._log = log
        self._check_fence = check_fence
        self._orders: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._shapes: dict[str, Shape] = {}
        self._bytes_max = 0
        self._current: Call | None = None
        self._cancel_task: Any = None
        self._ends: dict[int, str] = {}

    def run(self) -> None:
        """Prepare, then work until told to stop. Never returns while the instance may still send something."""
        lines = Lines()
        messages: list[dict[str, Any]] = []
        while not messages:
            messages = lines.take(self._connection.recv(READ_BYTES))
        try:
            self._prepare(messages[0])
        except BaseException as error:  # noqa: BLE001 - the program's own modules are imported here
            say(self._connection, broken=f"{type(error).__name__}: {error}")
            return
        threading.Thread(target=self._listen, args=(lines, messages[1:]), name="timeball-worker", daemon=True).start()
        say(self._connection, ready=True)
        while (work := self._orders.get()) is not None:
            self._work(work)

    def _prepare(self, message: Mapping[str, Any]) -> None:
        die_with(message["parent"])
        if message["memory_bytes_max"]:
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (message["memory_bytes_max"], hard))
        self._bytes_max = message["bytes_max"]
        importer = Importer(None if message["main"] is None else tuple(message["main"]))
        for name, place in message["functions"].items():
            self._shapes[name] = shape_of(name, importer.find(Place(*place)))

    def _listen(self, lines: Lines, messages: list[dict[str, Any]]) -> None:
        while True:
            for message in messages:
                self._hear(message)
            data = self._connection.recv(READ_BYTES)
            if not data:
                os.killpg(0, signal.SIGKILL)  # the instance is gone: so is everything that it began here
            messages = lines.take(data)

    def _hear(self, message: Mapping[str, Any]) -> None:
        if "run" in message:
            self._orders.put(read_work(message["run"]))
        elif "end" in message:
            self._ends = {message["run_id"]: message["end"]}
            call = self._current
            if call is not None:
                self._end(call)
        else:
            self._orders.put(None)

    def _end(self, call: Call) -> None:
        """Ask a call to end, if the instance has said so; whoever comes second, the call or the wish, does it."""
        reason = self._ends.get(call.work.run_id)
        if reason is not None:
            call.context.ask_to_end(reason)
            cancel = self._cancel_task
            if cancel is not None:
                cancel()

    def _work(self, work: Work) -> None:
        shape = self._shapes[work.target["name"]]
        context = WorkerContext(work, self._bytes_max, self._check_fence, self._connection, self._log)
        call = Call(work, shape, self._tell, context)
        call.begin()
        self._current = call
        self._end(call)
        self._invoke(call, is_async=shape.is_async)
        self._current = None

    def _invoke(self, call: Call, *, is_async: bool) -> None:
        home = os.getpid()
        raised: BaseException | None = None
        value: object = None
        try:
            value = asyncio.run(self._await(call)) if is_async else call.invoke()
        except BaseException as error:  # noqa: BLE001 - whatever a function raises ends its own run only
            raised = error
        if os.getpid() != home:  # a child that the function forked
            os._exit(child_status(raised))
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the function may have closed it
                stream.flush()
        if raised is None:
            call.returned(value)
        else:
            call.raised(raised)

    async def _await(self, call: Call) -> object:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        self._cancel_task = lambda: loop.call_soon_threadsafe(task.cancel)
        self._end(call)
        try:
            return await call.invoke()
        finally:
            self._cancel_task = None

    def _tell(self, outcome: Any) -> None:
        say(self._connection, ended=outcome_message(outcome))


def die_with(parent: int) -> None:
    """On Linux: be killed when the thread of the instance that started us ends, and so when the instance does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def serve(connection_descriptor: int, log_descriptor: int, check_fence: CheckFence) -> None:
    """Be a worker process, over descriptors that the instance has left open."""
    _here.append(True)
    faulthandler.enable()
    for descriptor in (connection_descriptor, log_descriptor):
        os.set_inheritable(descriptor, False)
    with socket.socket(fileno=connection_descriptor) as connection:
        Worker(connection, log_descriptor, check_fence).run()
