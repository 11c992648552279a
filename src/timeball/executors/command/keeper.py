"""The keeper of one command: a process that starts it, is told to signal it, and says when all of it is gone.

It is the subreaper of everything that the command starts, so that nothing leaves its sight (`tree`). It obeys the
instance over a socket and kills the whole tree when the instance lets go of it or dies. It decides nothing else.

To it come single bytes, each the number of a signal for the whole tree. From it come lines of JSON:
`{"started": INSTANT}`, or `{"refused": [STEP, ERRNO]}` (the step `asked`: it was to end before it began);
`{"exited": STATUS, "left": N}` (negative for a signal; N processes live on); `{"stuck": WORDS}` when some may not be
signalled; `{"gone": INSTANT}`, the last.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from timeball.executors.command.child import PR_SET_CHILD_SUBREAPER, PR_SET_NAME, become, prctl
from timeball.executors.command.tree import DescendantTree, GroupTree, Tree
from timeball.monotonic import monotonic_us

LINGER_US = 100_000
"""What still lives so long after the command has ended was left behind."""
KILL_PAUSE_MS, KILL_PAUSE_MAX_MS = 1, 250
POLL_MS = 20
ABANDONED_US = 10_000_000
"""How long a keeper without an instance goes on when it may not kill what is left."""


class Keeper:
    """One command and all that comes from it. `instance`: a descriptor that is readable when the instance is dead."""

    def __init__(self, control: socket.socket, instance: int | None) -> None:
        self._control = control
        self._instance = instance
        self._wake = _wake_on_children()
        self._main = 0
        self._tree: Tree | None = None
        self._exited_at: int | None = None
        self._status = 0
        self._told_exit = False
        self._killing = False
        self._pause_ms = KILL_PAUSE_MS
        self._told_stuck = False
        self._abandoned_at: int | None = None
        control.setblocking(False)

    def keep(self, order: Mapping[str, Any], streams: Sequence[int], *, plain: bool) -> None:
        """Start the command and stay until nothing of it is left. `plain`: as on systems without subreapers."""
        if not plain:
            prctl(PR_SET_CHILD_SUBREAPER, 1)
            prctl(PR_SET_NAME, b"timeball-keeper")
        trouble = self._start(order, streams) if not self._asked_to_end() else "asked 0"
        if trouble:
            step, _, number = trouble.partition(" ")
            self._tell(refused=[step, int(number)])
            return
        self._tree = GroupTree(self._main) if plain else DescendantTree(os.getpid())
        self._tell(started=monotonic_us())
        while not self._gone():
            self._tell_exit()
            self._wait()
            if self._killing:
                self._kill()
            if self._abandoned_at is not None and monotonic_us() - self._abandoned_at > ABANDONED_US:
                return
        if not self._told_exit:
            self._tell(exited=self._status, left=0)
        self._tell(gone=monotonic_us())

    def _asked_to_end(self) -> bool:
        """Whether there is an order already, or nobody to give one: then nothing need be started."""
        try:
            self._control.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def _start(self, order: Mapping[str, Any], streams: Sequence[int]) -> str:
        """Fork and become the command; the words of what failed, or nothing."""
        read, write = os.pipe()
        keeper = os.getpid()
        try:
            self._main = os.fork()
        except OSError as error:
            return f"fork {error.errno}"
        if not self._main:
            become(order, streams, write, keeper)
        os.close(write)
        for descriptor in streams:
            os.close(descriptor)
        with open(read, "rb") as pipe:  # noqa: PTH123 - ends when exec closes the other end
            return pipe.read().decode()

    def _gone(self) -> bool:
        """Reap what has ended. True when nothing is left: on Linux, when the kernel knows of no child."""
        assert self._tree is not None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return isinstance(self._tree, DescendantTree) or not self._tree.alive()
            if not pid:
                return False
            if pid == self._main:
                self._status = os.waitstatus_to_exitcode(status)
                self._exited_at = monotonic_us()

    def _tell_exit(self) -> None:
        """Say that the command has ended, once what ends with it has had its moment."""
        assert self._tree is not None
        if self._told_exit or self._exited_at is None or monotonic_us() - self._exited_at < LINGER_US:
            return
        left = len(self._tree.alive())
        if left:
            self._tell(exited=self._status, left=left)
            self._told_exit = True

    def _wait(self) -> None:
        poll = select.poll()
        if self._abandoned_at is None:
            poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        if self._instance is not None and self._abandoned_at is None:
            poll.register(self._instance, select.POLLIN)
        for descriptor, _ in poll.poll(self._patience_ms()):
            if descriptor == self._wake:
                os.read(self._wake, 4096)
            elif descriptor == self._instance:
                self._abandon()
            else:
                self._obey()

    def _patience_ms(self) -> int | None:
        if self._killing:
            self._pause_ms = min(2 * self._pause_ms, KILL_PAUSE_MAX_MS)
            return self._pause_ms
        unsettled = self._exited_at is not None and (not self._told_exit or isinstance(self._tree, GroupTree))
        return POLL_MS if unsettled else None

    def _obey(self) -> None:
        try:
            orders = self._control.recv(64)
        except BlockingIOError:
            return
        except OSError:
            orders = b""
        if not orders:
            self._abandon()
        for number in orders:
            if number == signal.SIGKILL:
                self._killing = True
            else:
                self._signal(number)
                self._signal(signal.SIGCONT)  # what is stopped would not even see it

    def _abandon(self) -> None:
        """Nobody is there any more to whom this command belongs."""
        self._killing = True
        if self._abandoned_at is None:
            self._abandoned_at = monotonic_us()

    def _kill(self) -> None:
        """Kill all there is; again and again, since what forks may escape one look."""
        stuck = self._signal(signal.SIGKILL)
        if stuck and not self._told_stuck:
            self._told_stuck = True
            self._tell(stuck=", ".join(stuck))

    def _signal(self, number: int) -> list[str]:
        assert self._tree is not None
        return self._tree.signal(number)

    def _tell(self, **news: object) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(news).encode() + b"\n")


def _wake_on_children() -> int:
    """A descriptor that is readable when a child has ended."""
    read, write = os.pipe()
    for descriptor in (read, write):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, wake_up)
    return read


def wake_up(_number: int, _frame: object) -> None:
    """A signal's work is done by its byte in the wake-up pipe."""
