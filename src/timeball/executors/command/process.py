"""One command from its start to its outcome. Owns the process and its streams; called by one thread only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import IO

from timeball.clock import format_instant, monotonic_us, seconds_to_us
from timeball.executors.capture import BoundedCapture
from timeball.executors.command.target import CommandTarget, clean_environment
from timeball.executors.contract import Report
from timeball.executors.registry import refused
from timeball.model.run import Outcome, Output, Work
from timeball.model.states import State

READ_BYTES = 65_536
LAST_READS_MAX = 64
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> Callable[[], None] | None:
    """On Linux the command dies with the thread that started it, even when this process is killed with -9."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)

    return in_child


class Process:
    """A running command. `report` is called once, with the outcome."""

    def __init__(
        self, work: Work, target: CommandTarget, *, bytes_max: int, grace_seconds: float, report: Report
    ) -> None:
        self.work = work
        self._target = target
        self._report = report
        self._grace_us = seconds_to_us(grace_seconds)
        self._ending: tuple[State, str, str] | None = None
        self._kill_at: int | None = None
        self._killed = False
        self._popen: subprocess.Popen[bytes] | None = None
        self._captures = {name: BoundedCapture(bytes_max) for name in ("stdout", "stderr")}
        self.streams: dict[int, tuple[str, IO[bytes]]] = {}
        self.pidfd: int | None = None
        self.begun_at = monotonic_us()
        timeout = work.timeout_seconds
        self._timeout_at = None if timeout is None else self.begun_at + seconds_to_us(timeout)

    def start(self) -> bool:
        """Start it. False when it could not be started: that has been reported."""
        try:
            with contextlib.ExitStack() as opened:
                self._popen = self._spawn(opened)
        except (OSError, LookupError, ValueError, subprocess.SubprocessError) as error:
            self._report(refused(self.work, "start", self._start_trouble(error)))
            return False
        for name in ("stdout", "stderr"):
            stream: IO[bytes] | None = getattr(self._popen, name)
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self.streams[stream.fileno()] = (name, stream)
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self.pidfd = os.pidfd_open(self._popen.pid)
        return True

    def read(self, descriptor: int) -> bool:
        """Read a little of one stream. False when the stream has ended."""
        name, _ = self.streams[descriptor]
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return True
        self._captures[name].add(data)
        return bool(data)

    def end(self, state: State, reason: str, error: str, *, kill_by: int | None = None) -> None:
        """Ask the whole process group to end; after the grace, or at `kill_by` (monotonic), it is killed.

        The first reason counts, and the earliest instant.
        """
        if self._ending is None:
            self._ending = (state, reason, error)
            self._kill_at = monotonic_us() + self._grace_us
            self._signal(signal.SIGTERM)
        if kill_by is not None and self._kill_at is not None:
            self._kill_at = min(self._kill_at, kill_by)

    def kill(self) -> None:
        """Kill the whole process group."""
        self._killed = True
        self._signal(signal.SIGKILL)

    def tick(self, now: int) -> int | None:
        """Do what the time demands; the monotonic instant of the next demand."""
        if self._ending is None and self._timeout_at is not None and now >= self._timeout_at:
            limit = f"{self.work.timeout_seconds:g}"
            self.end(State.TIMED_OUT, "timeout", f"ended after its time-out of {limit} s")
        if self._kill_at is not None and not self._killed and now >= self._kill_at:
            self.kill()
        if self._ending is None:
            return self._timeout_at
        return None if self._killed else self._kill_at

    def ended(self) -> bool:
        """Whether the process has exited; leaves it to `finish` to reap it."""
        assert self._popen is not None
        return os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def finish(self) -> None:
        """After its exit: end what is left of its group, take the last output, reap it, report."""
        assert self._popen is not None
        ended_at = monotonic_us()
        self._signal(signal.SIGKILL)  # before it is reaped, so that the group's number cannot be another's
        code = self._popen.wait()
        for descriptor, (_, stream) in self.streams.items():
            for _ in range(LAST_READS_MAX):
                before = self._captures[self.streams[descriptor][0]]
                if not self._read_last(descriptor, before):
                    break
            stream.close()
        self.streams.clear()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        self._report(self._outcome(code, ended_at))

    def _read_last(self, descriptor: int, capture: BoundedCapture) -> bool:
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False  # somebody outside of the group still holds the other end; not our concern
        capture.add(data)
        return bool(data)

    def _spawn(self, opened: contextlib.ExitStack) -> subprocess.Popen[bytes]:
        target, work = self._target, self.work
        run = {
            "TIMEBALL_RUN_ID": str(work.run_id),
            "TIMEBALL_JOB": work.job,
            "TIMEBALL_DUE_AT": format_instant(work.due_at) or "",
            "TIMEBALL_ATTEMPT": str(work.attempt),
            "TIMEBALL_FENCE": str(work.fence),
        }
        stdin: int | IO[bytes] = subprocess.DEVNULL
        if target.stdin is not None:
            stdin = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the others
            stdin.write(target.stdin.encode())
            stdin.seek(0)
        return subprocess.Popen(
            target.argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=target.cwd,
            env=clean_environment(target, run),
            user=target.user,
            start_new_session=True,
            preexec_fn=_die_with_parent(),  # noqa: PLW1509 - one system call, nothing that could take a lock
        )

    def _start_trouble(self, error: Exception) -> str:
        name, target = self._target.argv[0], self._target
        if isinstance(error, LookupError):
            return f"there is no user {target.user!r} on this host"
        if isinstance(error, FileNotFoundError | NotADirectoryError) and error.filename == target.cwd and target.cwd:
            return f"its working directory {target.cwd!r} is not there"
        if isinstance(error, FileNotFoundError):
            return f"{name!r} is not there"
        if isinstance(error, PermissionError):
            return f"{name!r} may not be executed: permission denied"
        return f"{name!r} could not be started: {error}"

    def _signal(self, number: int) -> None:
        assert self._popen is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)

    def _outcome(self, code: int, ended_at: int) -> Outcome:
        state, reason, error = self._ending or self._verdict(code)
        found = [capture.output(name) for name, capture in self._captures.items()]
        outputs: tuple[Output, ...] = tuple(output for output in found if output is not None)
        return Outcome(
            run_id=self.work.run_id,
            attempt=self.work.attempt,
            fence=self.work.fence,
            state=state,
            begun_at=self.begun_at,
            ended_at=ended_at,
            reason=reason,
            error=error,
            outputs=outputs,
        )

    def _verdict(self, code: int) -> tuple[State, str | None, str | None]:
        if code in self._target.success_codes:
            return State.SUCCEEDED, None, None
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = "a signal"
            return State.FAILED, "signal", f"ended by {name} (signal {-code})"
        return State.FAILED, "exit-code", f"exit code {code}"
