"""Commands: one thread starts, watches and ends them all. Owns that thread; knows nothing of tables or ticks."""

from __future__ import annotations

import logging
import os
import selectors
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from timeball.clock import monotonic_us, seconds_to_us
from timeball.errors import TargetError
from timeball.executors.command.allowed import Allowed
from timeball.executors.command.link import Link
from timeball.executors.command.process import Process
from timeball.executors.command.target import read_target
from timeball.executors.contract import Report
from timeball.executors.registry import refused
from timeball.model.run import Work
from timeball.model.states import State

IDLE_SECONDS = 5.0
WAITING_SECONDS = 0.01
"""How often a launcher that is behind is looked at, while commands wait for it."""
KILL_WAIT_SECONDS = 2.0
_log = logging.getLogger("timeball.executors")


class CommandExecutor:
    """Runs commands. `allow`: patterns for the executable; without any, and without `shell`, commands are off.

    `shell`: whether a job may give a text to the shell. `link`: to the launcher, by default as this system can.
    """

    kind = "command"

    def __init__(
        self,
        allow: Sequence[str],
        output_bytes_max: int,
        grace_seconds: float,
        *,
        shell: bool = False,
        link: Link | None = None,
    ) -> None:
        self._allowed = Allowed(patterns=tuple(allow), shell=shell)
        self._link = link or Link()
        self._bytes_max = output_bytes_max
        self._grace_seconds = grace_seconds
        self._lock = threading.Lock()
        self._orders: deque[Callable[[], None]] = deque()
        self._known: dict[int, Work] = {}
        self._processes: dict[int, Process] = {}
        self._waiting: dict[int, tuple[Work, Report]] = {}
        self._selector: selectors.BaseSelector | None = None
        self._wake_write = -1
        self._thread: threading.Thread | None = None
        self._closing = False
        self._empty = threading.Condition(self._lock)

    def handlers(self) -> Sequence[str]:
        """This instance takes commands only when the operator allows some."""
        return (self.kind,) if self._allowed.anything else ()

    def handler_of(self, target: Mapping[str, Any]) -> str:
        """Every command needs the same: an instance that runs commands."""
        return self.kind

    def check(self, target: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        """Refuse a target that is malformed or not allowed. Raises TargetError."""
        if args:
            raise TargetError("a command takes no args", hint="put them into argv", field="args")
        self._allowed.check(read_target(target))

    def submit(self, batch: Sequence[Work], report: Report) -> None:
        """Start each command; trouble is an outcome."""
        with self._lock:
            closing = self._closing
            if not closing:
                self._known |= {work.run_id: work for work in batch}
        if closing:
            for work in batch:
                report(refused(work, "start", "this instance is ending"))
            return
        self._order(lambda: self._waiting.update({work.run_id: (work, report) for work in batch}))

    def cancel(self, run_id: int, reason: str, *, grace_seconds: float | None = None) -> bool:
        """TERM to the whole process group, KILL after the grace, or after `grace_seconds` where that is sooner."""
        kill_by = None if grace_seconds is None else monotonic_us() + seconds_to_us(grace_seconds)
        with self._lock:
            if run_id not in self._known:
                return False
        self._order(lambda: self._end(run_id, reason, kill_by))
        return True

    def running(self) -> Sequence[int]:
        """Ids of the runs whose command has not ended."""
        with self._lock:
            return tuple(self._known)

    def close(self, grace_seconds: float) -> Sequence[int]:
        """End what runs (TERM, KILL after the grace) and the thread; ids of what could not be ended."""
        with self._lock:
            self._closing = True
            if self._thread is None:
                return ()
        for run_id in self.running():
            self._order(lambda run_id=run_id: self._end(run_id, "the instance is ending"))
        if not self._wait_empty(grace_seconds):
            self._order(lambda: [process.kill() for process in self._processes.values()])
            self._wait_empty(KILL_WAIT_SECONDS)
        left = self.running()
        self._order(self._stop)
        self._thread.join(KILL_WAIT_SECONDS)
        return left

    def _wait_empty(self, seconds: float) -> bool:
        with self._empty:
            return self._empty.wait_for(lambda: not self._known, seconds)

    def _order(self, order: Callable[[], object]) -> None:
        """Have the thread do something; it is started on first use and lives as long as this executor."""
        with self._lock:
            self._orders.append(lambda: void(order()))
            if self._thread is None:
                read, self._wake_write = os.pipe()
                os.set_blocking(read, False)
                os.set_blocking(self._wake_write, False)
                self._selector = selectors.DefaultSelector()
                self._selector.register(read, selectors.EVENT_READ, None)
                self._thread = threading.Thread(
                    target=self._run, args=(self._selector, read), name="timeball-commands", daemon=True
                )
                self._thread.start()
            elif self._wake_write < 0:
                return
            try:
                os.write(self._wake_write, b"\0")
            except BlockingIOError:
                return  # a full pipe wakes as well

    def _stop(self) -> None:
        with self._lock:
            os.close(self._wake_write)
            self._wake_write = -1

    def _run(self, selector: selectors.BaseSelector, wake: int) -> None:
        pause = IDLE_SECONDS
        while self._wake_write >= 0:
            for key, _ in selector.select(pause):
                self._handle(selector, key, wake)
            while self._orders:
                self._orders.popleft()()
            pause = min(self._look_at_all(), self._begin_waiting())
        for process in self._processes.values():
            process.let_go()
        self._link.close()
        selector.close()
        os.close(wake)

    def _handle(self, selector: selectors.BaseSelector, key: selectors.SelectorKey, wake: int) -> None:
        process: Process | None = key.data
        if process is None:
            os.read(wake, 65_536)
        elif key.fd in process.streams:
            if not process.read(key.fd):
                selector.unregister(key.fd)
        elif process.control is not None and not process.hear():
            self._finish(selector, process)

    def _look_at_all(self) -> float:
        now, pause = monotonic_us(), IDLE_SECONDS
        for process in list(self._processes.values()):
            at = process.tick(now)
            if at is not None:
                pause = min(pause, max(0.001, (at - now) / seconds_to_us(1)))
        return pause

    def _begin_waiting(self) -> float:
        """Begin what waits for the launcher, in order, as far as it takes more; seconds until the next look."""
        while self._waiting and self._link.ready():
            self._begin(*self._waiting.pop(next(iter(self._waiting))))
        return WAITING_SECONDS if self._waiting else IDLE_SECONDS

    def _begin(self, work: Work, report: Report) -> None:
        process: Process | None = None
        try:
            target = read_target(work.target)
            path = self._allowed.check(target)
            process = Process(
                work, target, path, bytes_max=self._bytes_max, grace_seconds=self._grace_seconds, report=report
            )
            if not process.start(self._link):
                process = None
        except TargetError as error:
            report(refused(work, "target", str(error)))
            process = None
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this run's alone
            _log.exception("run %s of job %r could not be started", work.run_id, work.job)
            report(refused(work, "start", f"{type(error).__name__}: {error}"))
            process = None
        if process is None:
            self._forget(work.run_id)
            return
        self._processes[work.run_id] = process
        assert self._selector is not None
        for descriptor in (*process.streams, process.control):
            if descriptor is not None:
                self._selector.register(descriptor, selectors.EVENT_READ, process)

    def _end(self, run_id: int, reason: str, kill_by: int | None = None) -> None:
        process = self._processes.get(run_id)
        if process is not None:
            process.end(State.CANCELLED, "cancelled", reason, kill_by=kill_by)
        elif run_id in self._waiting:
            work, report = self._waiting.pop(run_id)
            outcome = refused(work, "cancelled", f"{reason}; it had not begun")
            report(outcome._replace(state=State.CANCELLED))
            self._forget(run_id)

    def _finish(self, selector: selectors.BaseSelector, process: Process) -> None:
        for descriptor in (*process.streams, process.control):
            if descriptor is not None and descriptor in selector.get_map():
                selector.unregister(descriptor)
        self._processes.pop(process.work.run_id, None)
        process.finish()
        self._forget(process.work.run_id)

    def _forget(self, run_id: int) -> None:
        with self._empty:
            self._known.pop(run_id, None)
            self._empty.notify_all()


def void(_: object) -> None:
    """Drop a value."""
