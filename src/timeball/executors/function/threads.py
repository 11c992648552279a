"""The threads of sync functions. Owns how many there are; a thread that hangs past its end is replaced."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence

from timeball.executors.function.call import Call


class JobThreads:
    """At most `threads_max` calls at once; hung ones do not count, up to as many again. Daemon threads."""

    def __init__(self, threads_max: int) -> None:
        self._max = threads_max
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._hung: set[int] = set()
        self._number = 0
        self._closed = False

    def submit(self, calls: Sequence[Call]) -> None:
        """Begin calls, each as soon as a thread is free."""
        for call in calls:
            self._queue.put(call)
        self._grow(len(calls))

    def left_behind(self, call: Call) -> None:
        """A call was told as ended while its thread goes on: let another thread take its place."""
        with self._lock:
            self._hung.add(id(call))
        self._grow(1)

    @property
    def hung(self) -> int:
        """How many threads run calls that have been told as ended."""
        return len(self._hung)

    def close(self) -> None:
        """End idle threads."""
        with self._lock:
            self._closed = True
            threads = self._threads
        for _ in range(threads):
            self._queue.put(None)

    def _grow(self, wanted: int) -> None:
        with self._lock:
            room = self._max + min(len(self._hung), self._max) - self._threads
            fresh = 0 if self._closed else max(0, min(wanted, self._queue.qsize() - self._idle, room))
            self._threads += fresh
            first, self._number = self._number, self._number + fresh
        for number in range(first, first + fresh):
            threading.Thread(target=self._run, name=f"timeball-job-{number + 1}", daemon=True).start()

    def _run(self) -> None:
        home = os.getpid()
        while True:
            with self._lock:
                self._idle += 1
            call = self._queue.get()
            with self._lock:
                self._idle -= 1
            if call is None:
                break
            if call.begin():
                self._invoke(call, home)
            if self._surplus(call):
                break
        with self._lock:
            self._threads -= 1

    def _invoke(self, call: Call, home: int) -> None:
        raised: BaseException | None = None
        value: object = None
        try:
            value = call.invoke()
        except BaseException as error:  # noqa: BLE001 - whatever a function raises ends its own run only
            raised = error
        if os.getpid() != home:  # a child that the function forked: the run is the parent's to tell
            os._exit(child_status(raised))
        if raised is None:
            call.returned(value)
        else:
            call.raised(raised)

    def _surplus(self, call: Call) -> bool:
        """Whether this thread was replaced while it hung, and another one is not needed."""
        with self._lock:
            if id(call) not in self._hung:
                return False
            self._hung.discard(id(call))
            return self._threads > self._max + min(len(self._hung), self._max)


def child_status(raised: BaseException | None) -> int:
    """What Python would end a child with that a function has forked."""
    if raised is None:
        return 0
    code = raised.code if isinstance(raised, SystemExit) else 1
    return 0 if code is None else code if isinstance(code, int) else 1
