"""One worker process from the instance's side. Owns the process, its streams and what it runs; one thread calls it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from timeball.clock import monotonic_us, seconds_to_us
from timeball.executors.capture import BoundedCapture
from timeball.executors.function.call import Call, Verdict
from timeball.executors.function.wire import READ_BYTES, Lines, read_outcome, say, work_message
from timeball.model.run import Output
from timeball.model.states import State

START_SECONDS = 60.0
SEND_SECONDS = 5.0
LAST_READS_MAX = 64
TROUBLE_CHARS_MAX = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """How workers are started: the command but for its descriptors, and the first message that they are sent."""

    command: Sequence[str]
    message: Mapping[str, Any]
    bytes_max: int
    grace_seconds: float


class WorkerProcess:
    """A process that runs one call at a time. `call` is the one in hand, or None."""

    def __init__(self, plan: WorkerPlan) -> None:
        """Raises OSError where it cannot be started."""
        self.plan = plan
        self.ready = False
        self.leaving = False
        self.runs = 0
        self.call: Call | None = None
        self.trouble = ""
        self.kill_at: int | None = monotonic_us() + seconds_to_us(START_SECONDS)
        self._killed = False
        self._lines = Lines()
        self._captures: dict[str, BoundedCapture] = {}
        self._connection, theirs = socket.socketpair()
        log_read, log_write = os.pipe()
        try:
            self._popen = subprocess.Popen(
                [*plan.command, str(theirs.fileno()), str(log_write)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(), log_write),
                start_new_session=True,
            )
        except BaseException:
            self._connection.close()
            os.close(log_read)
            raise
        finally:
            theirs.close()
            os.close(log_write)
        self._connection.settimeout(SEND_SECONDS)
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        files: dict[str, IO[bytes]] = {
            "stdout": self._popen.stdout,
            "stderr": self._popen.stderr,
            "log": os.fdopen(log_read, "rb", buffering=0),
        }
        self.streams = {file.fileno(): (name, file) for name, file in files.items()}
        for descriptor in self.streams:
            os.set_blocking(descriptor, False)
        self.control = self._connection.fileno()
        self.pidfd: int | None = None
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self.pidfd = os.pidfd_open(self._popen.pid)
        self._say(**plan.message)

    @property
    def pid(self) -> int:
        """Its process id, and that of its group."""
        return self._popen.pid

    def knows(self, name: str) -> bool:
        """Whether a function was registered before this worker was started."""
        return name in self.plan.message["functions"]

    def take(self, call: Call) -> None:
        """Have it run as soon as the worker is ready; only where there is no other one."""
        self.call = call
        if self.ready:
            self._begin(call)

    def end(self, call: Call, kill_by: int | None) -> None:
        """Ask the call to end; the process is killed after the grace, or at `kill_by` (monotonic) if that is sooner."""
        if self.call is not call or call.ending is None:
            return
        if self.kill_at is None or not self.ready:
            self.kill_at = monotonic_us() + seconds_to_us(self.plan.grace_seconds)
            self._say(end=call.ending[2], run_id=call.work.run_id)
        if kill_by is not None:
            self.kill_at = min(self.kill_at, kill_by)

    def leave(self) -> None:
        """End it in order; killed after the grace."""
        self.leaving = True
        self.kill_at = monotonic_us() + seconds_to_us(self.plan.grace_seconds)
        self._say(stop=True)

    def kill(self) -> None:
        """Kill the whole process group."""
        self._killed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)

    def tick(self, now: int) -> int | None:
        """Kill it when its time is over; the monotonic instant of the next demand."""
        if self.kill_at is not None and not self._killed and now >= self.kill_at:
            if not self.ready:
                self.trouble = self.trouble or f"it was not ready after {START_SECONDS:g} s"
            self.kill()
        return None if self._killed else self.kill_at

    def read(self, descriptor: int) -> int | None:
        """Read a little of one stream: how many bytes, 0 when it has ended, None when there is nothing now.

        What comes between two runs belongs to none.
        """
        name, _ = self.streams[descriptor]
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return None
        if name in self._captures:
            self._captures[name].add(data)
        elif not self.ready and name == "stderr":
            self.trouble = (self.trouble + data.decode("utf-8", "replace"))[-TROUBLE_CHARS_MAX:]
        return len(data)

    def listen(self) -> bool:
        """Take what it says. False when it says no more. Kills it for what is no message."""
        try:
            data = self._connection.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        try:
            for message in self._lines.take(data):
                self._hear(message)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.trouble = f"its process said what is no message: {type(error).__name__}: {error}"
            self.kill()
        return bool(data)

    def exited(self) -> bool:
        """Whether the process has ended; leaves it to `finish` to reap it."""
        return os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def finish(self) -> None:
        """After its exit: end what is left of its group, take the last it said, reap it, tell of the call in hand."""
        for _ in range(LAST_READS_MAX):
            if not self.listen():
                break
        self.kill()  # before it is reaped, so that the group's number cannot be another's
        code = self._popen.wait()
        call, self.call = self.call, None
        outputs = self._outputs()
        for _, file in self.streams.values():
            file.close()
        self._connection.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
        if call is None or call.told:
            return
        state, reason, error = call.ending or self._verdict(code)
        call.tell(state, reason, error, outputs=outputs)

    def _verdict(self, code: int) -> Verdict:
        if not self.ready:
            words = self.trouble.strip() or _words(code)
            return State.FAILED, "start", f"its worker process could not be made ready: {words}"
        if self.trouble:
            return State.FAILED, "signal", self.trouble
        return State.FAILED, "signal" if code < 0 else "exit-code", _words(code)

    def _hear(self, message: Mapping[str, Any]) -> None:
        call = self.call
        if "ready" in message:
            self.ready, self.trouble, self.kill_at = True, "", None
            if call is not None:
                self._begin(call)
        elif "broken" in message:
            self.trouble = str(message["broken"])
        elif "progress" in message and call is not None:
            call.context.progress(*message["progress"])
        elif "ended" in message and call is not None:
            self._ended(call, message["ended"])

    def _begin(self, call: Call) -> None:
        if not call.begin():
            self.call = None
            return
        self.runs += 1
        self._captures = {name: BoundedCapture(self.plan.bytes_max) for name, _ in self.streams.values()}
        self._say(run=work_message(call.work))

    def _ended(self, call: Call, message: Mapping[str, Any]) -> None:
        told = read_outcome(message)
        told["outputs"] = (*self._outputs(), *told["outputs"])
        self.call, self.kill_at = None, None
        if call.ending is not None:
            call.tell(*call.ending, outputs=told["outputs"])
        else:
            call.tell(**told)

    def _outputs(self) -> tuple[Output, ...]:
        """What the run left: its last words are in the pipes by now."""
        for descriptor in self.streams:
            for _ in range(LAST_READS_MAX):
                if not self.read(descriptor):
                    break
        found = [capture.output(name) for name, capture in self._captures.items()]
        self._captures = {}
        return tuple(output for output in found if output is not None)

    def _say(self, **message: Any) -> None:
        try:
            say(self._connection, **message)
        except OSError as error:  # it ends, or hears nothing any more
            self.trouble = self.trouble or f"its process could not be told anything: {error}"
            self.kill()


def _words(code: int) -> str:
    if code >= 0:
        return f"the function ended its process with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "a signal"
    return f"killed by {name} (signal {-code})"
