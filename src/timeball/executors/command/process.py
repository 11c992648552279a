"""One command from its start to its outcome, as the instance sees it. Called by one thread only."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from timeball.clock import format_instant, monotonic_us, seconds_to_us
from timeball.executors.capture import BoundedCapture
from timeball.executors.command.account import NoSuchAccount, clean_environment, folder_of, user_of
from timeball.executors.command.link import Link
from timeball.executors.command.target import CommandTarget
from timeball.executors.command.words import Ending, not_found, start_trouble, verdict_on
from timeball.executors.contract import Report
from timeball.executors.registry import refused
from timeball.model.run import Outcome, Output, Work
from timeball.model.states import State

READ_BYTES = 65_536
LAST_READS_MAX = 64
LEFT_BEHIND = "left-behind"
_log = logging.getLogger("timeball.executors")


class Process:
    """A running command. `report` is called once, with the outcome.

    `path`: the file to run. It has begun when its keeper says so, and has ended when nothing of its tree is left.
    """

    def __init__(
        self,
        work: Work,
        target: CommandTarget,
        path: str | None,
        *,
        bytes_max: int,
        grace_seconds: float,
        report: Report,
    ) -> None:
        self.work = work
        self._target = target
        self._path = path
        self._report = report
        self._grace_us = seconds_to_us(grace_seconds)
        self._asked: tuple[State, str, str] | None = None
        self._term_at: int | None = None
        self._kill_at: int | None = None
        self._ending = Ending()
        self._status: int | None = None
        self._started = False
        self._refused: str | None = None
        self._gone_at: int | None = None
        self._heard = b""
        self._captures = {name: BoundedCapture(bytes_max) for name in ("stdout", "stderr")}
        self.streams: dict[int, str] = {}
        self.control: socket.socket | None = None
        self.begun_at = monotonic_us()
        self._timeout_at = self._timeout_from(self.begun_at)

    def start(self, link: Link) -> bool:
        """Have it started. False when it could not be: that has been reported."""
        if self._path is None:
            trouble = not_found(self._target)
        else:
            try:
                self._begin(link, self._path)
            except (OSError, NoSuchAccount) as error:
                trouble = str(error) if isinstance(error, NoSuchAccount) else f"it could not be started: {error}"
            else:
                return True
        self._report(refused(self.work, "start", trouble))
        return False

    def read(self, descriptor: int) -> bool:
        """Read a little of one stream. False when the stream has ended."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return True
        self._captures[self.streams[descriptor]].add(data)
        return bool(data)

    def hear(self) -> bool:
        """Take what its keeper says. False when that was the last."""
        assert self.control is not None
        try:
            data = self.control.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            for word, value in json.loads(line).items():
                self._news[word](self, value)
        return bool(data) and self._gone_at is None and self._refused is None

    def end(self, state: State, reason: str, error: str, *, kill_by: int | None = None) -> None:
        """Ask the whole tree to end; after the grace, or at `kill_by` (monotonic), it is killed.

        The first reason counts, and the earliest instant. What had ended by itself keeps its own end.
        """
        if self._asked is None and self._status is None:
            self._asked = (state, reason, error)
        self._terminate()
        if kill_by is not None and self._kill_at is not None:
            self._kill_at = min(self._kill_at, kill_by)

    def kill(self) -> None:
        """Kill the whole tree."""
        if self._ending.waited_us is None:
            now = monotonic_us()
            self._ending.waited_us = now - (now if self._term_at is None else self._term_at)
            self._ending.main_killed = self._status is None
            self._signal(signal.SIGKILL)

    def tick(self, now: int) -> int | None:
        """Do what the time demands; the monotonic instant of the next demand."""
        if self._timeout_at is not None and now >= self._timeout_at and self._status is None and self._asked is None:
            self.end(State.TIMED_OUT, "timeout", f"timed out after {self.work.timeout_seconds:g} s")
        if self._kill_at is not None and now >= self._kill_at:
            self.kill()
        if self._kill_at is None:
            return self._timeout_at if self._status is None else None
        return None if self._ending.waited_us is not None else self._kill_at

    def finish(self) -> None:
        """After its keeper's last word: take the last output, report."""
        for descriptor in self.streams:
            self._read_last(descriptor)
        self.let_go()
        if not self._started and self._refused is None:
            self._refused = "its launcher ended before it had started"
        if self._refused is not None and self._asked is None:
            self._report(refused(self.work, "start", self._refused))
        else:
            self._report(self._outcome())

    def let_go(self) -> None:
        """Close all that leads to it; a keeper that is still there kills what it has."""
        for descriptor in self.streams:
            os.close(descriptor)
        self.streams.clear()
        if self.control is not None:
            with contextlib.suppress(OSError):
                self.control.shutdown(socket.SHUT_RDWR)  # a fork of this process may hold it too
            self.control.close()
            self.control = None

    def _begin(self, link: Link, path: str) -> None:
        with contextlib.ExitStack() as opened:
            streams = [self._stdin(opened)]
            for name in self._captures:
                read, write = os.pipe()
                opened.callback(os.close, write)
                os.set_blocking(read, False)
                self.streams[read] = name
                streams.append(write)
            try:
                self.control = link.begin(self._order(path), streams)
            except OSError:
                for descriptor in self.streams:
                    os.close(descriptor)
                self.streams.clear()
                raise

    def _stdin(self, opened: contextlib.ExitStack) -> int:
        if self._target.stdin is None:
            descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            opened.callback(os.close, descriptor)
            return descriptor
        file = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the others
        file.write(self._target.stdin.encode())
        file.seek(0)
        return file.fileno()

    def _order(self, path: str) -> dict[str, Any]:
        target, work = self._target, self.work
        run = {
            "TIMEBALL_RUN_ID": str(work.run_id),
            "TIMEBALL_JOB": work.job,
            "TIMEBALL_DUE_AT": format_instant(work.due_at) or "",
            "TIMEBALL_ATTEMPT": str(work.attempt),
            "TIMEBALL_FENCE": str(work.fence),
        }
        return {
            "path": path,
            "argv": target.full_argv,
            "env": clean_environment(target, run),
            "cwd": folder_of(target),
            "umask": None if target.umask is None else int(target.umask, 8),
            "nice": target.nice,
            "limits": target.limits,
            "user": user_of(target),
        }

    def _on_started(self, at: int) -> None:
        self._started = True
        self.begun_at = min(max(self.begun_at, at), monotonic_us())
        self._timeout_at = self._timeout_from(self.begun_at)

    def _on_refused(self, trouble: tuple[str, int]) -> None:
        step, number = trouble
        self._refused = start_trouble(self._target, self._path, step, number)

    def _on_exited(self, status: int) -> None:
        self._status = status

    def _on_left(self, count: int) -> None:
        """What the command left behind is ended as the command itself would be."""
        self._ending.left = count
        if count:
            self._terminate()

    def _on_stuck(self, words: str) -> None:
        _log.warning("run %s of job %r: may not be ended by this instance: %s", self.work.run_id, self.work.job, words)

    def _on_gone(self, at: int) -> None:
        self._gone_at = min(max(self.begun_at, at), monotonic_us())

    _news: Mapping[str, Callable[[Any, Any], None]] = {
        "started": _on_started,
        "refused": _on_refused,
        "exited": _on_exited,
        "left": _on_left,
        "stuck": _on_stuck,
        "gone": _on_gone,
    }

    def _terminate(self) -> None:
        if self._term_at is None:
            self._term_at = monotonic_us()
            self._kill_at = self._term_at + self._grace_us
            self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self.control is not None:
            with contextlib.suppress(OSError):
                self.control.send(bytes([number]))

    def _timeout_from(self, instant: int) -> int | None:
        seconds = self.work.timeout_seconds
        return None if seconds is None else instant + seconds_to_us(seconds)

    def _read_last(self, descriptor: int) -> None:
        for _ in range(LAST_READS_MAX):
            try:
                data = os.read(descriptor, READ_BYTES)
            except BlockingIOError:
                return  # somebody outside of the tree was given the other end; not our concern
            self._captures[self.streams[descriptor]].add(data)
            if not data:
                return

    def _outcome(self) -> Outcome:
        state, reason, error = self._asked or self._verdict()
        left = self._ending.words(asked=self._asked is not None) if self._started else "it had not begun"
        found = [capture.output(name) for name, capture in self._captures.items()]
        outputs: tuple[Output, ...] = tuple(output for output in found if output is not None)
        return Outcome(
            run_id=self.work.run_id,
            attempt=self.work.attempt,
            fence=self.work.fence,
            state=state,
            begun_at=self.begun_at,
            ended_at=self._gone_at or monotonic_us(),
            reason=reason or (LEFT_BEHIND if left else None),
            error="; ".join(words for words in (error, left) if words) or None,
            outputs=outputs,
        )

    def _verdict(self) -> tuple[State, str | None, str | None]:
        if self._status is None:
            words = "its keeper was killed, and with it the command and all that it had started"
            return State.FAILED, "signal", words
        return verdict_on(self._target, self._status)
