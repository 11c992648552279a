"""The worker processes of functions that run apart. Owns how many there are, and the one thread that minds them all.

Workers are started fresh, never forked from this process with its threads; they stay warm for the next call, and are
replaced after so many.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
from collections import deque
from collections.abc import Callable, Sequence

from timeball.clock import monotonic_us, seconds_to_us
from timeball.executors.function.call import Call
from timeball.executors.function.guardian import Guardian
from timeball.executors.function.workers import WorkerPlan, WorkerProcess
from timeball.model.states import State

POLL_SECONDS = 0.05
IDLE_SECONDS = 5.0
KILL_WAIT_SECONDS = 2.0
_log = logging.getLogger("timeball.executors")


class JobProcesses:
    """At most `processes_max` at once; what finds none free waits. Safe for threads."""

    def __init__(self, plan: Callable[[], WorkerPlan], *, processes_max: int, runs_max: int) -> None:
        """`plan`: how a worker is started now; `runs_max`: calls after which it is replaced."""
        self._plan = plan
        self._max = processes_max
        self._runs_max = runs_max
        self._lock = threading.Lock()
        self._orders: deque[Callable[[], object]] = deque()
        self._waiting: deque[Call] = deque()
        self._workers: list[WorkerProcess] = []
        self._guardian: Guardian | None = None
        self._may_spare = False
        self._closing = False
        self.started = 0
        """How many workers have been started."""
        self._selector: selectors.BaseSelector | None = None
        self._wake_write = -1
        self._thread: threading.Thread | None = None

    def submit(self, calls: Sequence[Call]) -> None:
        """Begin calls, each as soon as a worker is free."""
        self._order(lambda: self._waiting.extend(calls))

    def end(self, call: Call, kill_by: int | None = None) -> None:
        """Ask a call to end, which has been given its verdict; its process is killed after the grace."""
        if self._thread is not None:
            self._order(lambda: [worker.end(call, kill_by) for worker in self._workers])

    def pids(self) -> list[int]:
        """The process ids of the workers there are."""
        return [worker.pid for worker in list(self._workers)]

    def close(self) -> None:
        """Kill what still runs, and end the thread; it goes on by itself should that take long."""
        if self._thread is not None:
            self._closing = True
            self._order(lambda: None)
            self._thread.join(KILL_WAIT_SECONDS)

    def _order(self, order: Callable[[], object]) -> None:
        """Have the thread do something. It lives as long as any worker: the kernel ends them with it."""
        with self._lock:
            self._orders.append(order)
            if self._thread is None:
                read, self._wake_write = os.pipe()
                os.set_blocking(read, False)
                os.set_blocking(self._wake_write, False)
                self._selector = selectors.DefaultSelector()
                self._selector.register(read, selectors.EVENT_READ, None)
                self._thread = threading.Thread(
                    target=self._run, args=(self._selector, read), name="timeball-processes", daemon=True
                )
                self._thread.start()
            elif self._wake_write < 0:
                return
            try:
                os.write(self._wake_write, b"\0")
            except BlockingIOError:
                return  # a full pipe wakes as well

    def _run(self, selector: selectors.BaseSelector, wake: int) -> None:
        pause = 0.0
        while self._workers or not self._closing:
            for key, _ in selector.select(pause):
                self._handle(selector, key, wake)
            while self._orders:
                self._orders.popleft()()
            if self._closing:
                for worker in self._workers:
                    worker.kill()
            else:
                self._dispatch(selector)
                self._keep_spare(selector)
            pause = self._mind(selector)
        if self._guardian is not None:
            self._guardian.close()
        with self._lock:
            os.close(self._wake_write)
            self._wake_write = -1
        selector.close()
        os.close(wake)

    def _handle(self, selector: selectors.BaseSelector, key: selectors.SelectorKey, wake: int) -> None:
        worker: WorkerProcess | None = key.data
        if worker is None:
            os.read(wake, 65_536)
        elif worker not in self._workers:
            return  # finished a moment ago
        elif key.fd == worker.pidfd:
            self._finish(selector, worker)
        elif key.fd == worker.control:
            if not worker.listen():
                selector.unregister(key.fd)
        elif worker.read(key.fd) == 0:
            selector.unregister(key.fd)

    def _dispatch(self, selector: selectors.BaseSelector) -> None:
        """Give what waits to idle workers that know it, then to new ones while there is room."""
        while self._waiting:
            call = self._waiting[0]
            if call.begun or call.told:
                self._waiting.popleft()
                continue
            worker = self._free(str(call.work.target["name"]))
            if worker is None:
                if sum(not worker.leaving for worker in self._workers) >= self._max:
                    return
                try:
                    worker = self._fresh(selector)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is this run's alone
                    self._waiting.popleft()
                    if call.begin():
                        call.tell(State.FAILED, "start", f"no worker process could be started: {error}")
                    continue
            self._waiting.popleft()
            self._may_spare = self._may_spare or worker.ready
            worker.take(call)

    def _free(self, name: str) -> WorkerProcess | None:
        idle = [worker for worker in self._workers if worker.call is None and not worker.leaving]
        for worker in idle:
            if not worker.knows(name):
                worker.leave()  # it was started before that function was registered
        return max((worker for worker in idle if not worker.leaving), key=lambda worker: worker.ready, default=None)

    def _keep_spare(self, selector: selectors.BaseSelector) -> None:
        """Once any was needed there is an idle one ahead of the next call, while there is room, so that none waits."""
        staying = [worker for worker in self._workers if not worker.leaving]
        if self._may_spare and len(staying) < self._max and all(worker.call is not None for worker in staying):
            try:
                self._fresh(selector)
            except Exception as error:  # noqa: BLE001 - told, and tried again by the next call
                self._may_spare = False
                _log.warning("no worker process could be started: %s", error)

    def _fresh(self, selector: selectors.BaseSelector) -> WorkerProcess:
        self._guardian = self._guardian or Guardian()
        worker = WorkerProcess(self._plan())
        self.started += 1
        self._guardian.watch(worker.pid)
        self._workers.append(worker)
        for descriptor in (*worker.streams, worker.control, worker.pidfd):
            if descriptor is not None:
                selector.register(descriptor, selectors.EVENT_READ, worker)
        return worker

    def _mind(self, selector: selectors.BaseSelector) -> float:
        now, pause = monotonic_us(), IDLE_SECONDS
        for worker in list(self._workers):
            if worker.pidfd is None:
                if worker.exited():
                    self._finish(selector, worker)
                    pause = 0
                    continue
                pause = min(pause, POLL_SECONDS)
            if worker.call is None and worker.ready and not worker.leaving and worker.runs >= self._runs_max:
                worker.leave()
                pause = 0
            at = worker.tick(now)
            if at is not None:
                pause = min(pause, max(0.001, (at - now) / seconds_to_us(1)))
        return pause

    def _finish(self, selector: selectors.BaseSelector, worker: WorkerProcess) -> None:
        for descriptor in (*worker.streams, worker.control, worker.pidfd):
            if descriptor is not None and descriptor in selector.get_map():
                selector.unregister(descriptor)
        try:
            worker.kill()
            if self._guardian is not None:
                self._guardian.forget(worker.pid)
            worker.finish()
        except Exception:  # noqa: BLE001 - one worker's trouble must not stop the thread that minds the others
            _log.exception("worker process %d", worker.pid)
        self._workers.remove(worker)
        self._may_spare = worker.ready  # one that never came up would be tried for ever
