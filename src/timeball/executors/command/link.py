"""The instance's end of its launcher: starts it, hands it commands. Called by one thread only."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timeball.clock import monotonic_us
from timeball.executors.command.launcher import HEADER

SEND_SECONDS_MAX = 5.0
UNTAKEN_MAX = 16
"""Orders on their way at most: descriptors that nobody has taken yet count against a limit of the whole user."""
STUCK_US = 10_000_000
"""A launcher that takes nothing for so long is replaced."""
END_SECONDS_MAX = 2.0
CAN_ADOPT = sys.platform == "linux" and hasattr(os, "pidfd_open")
_FOLDER = Path(__file__).resolve().parents[3]
_PROGRAM = "import sys; sys.path.append(sys.argv.pop()); from timeball.executors.command.launcher import main; main()"


class Link:
    """Starts a launcher when there is work for it, and another one when that has gone.

    `plain`: how it works where processes cannot adopt orphans; by default what this system can.
    """

    def __init__(self, *, plain: bool = not CAN_ADOPT) -> None:
        self._plain = plain
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None
        self._untaken = 0
        self._taken_at = 0

    def ready(self) -> bool:
        """Whether another order can be given now. The launcher says one byte for each that it has taken."""
        if self._orders is None or not self._untaken:
            return True
        while self._untaken and select.select([self._orders], [], [], 0)[0]:
            try:
                taken = len(self._orders.recv(self._untaken))
            except OSError:
                taken = 0
            if not taken:
                return True  # it has gone; the next order finds another
            self._untaken -= taken
            self._taken_at = monotonic_us()
        if self._untaken >= UNTAKEN_MAX and monotonic_us() - self._taken_at > STUCK_US:
            self._drop()
        return self._untaken < UNTAKEN_MAX

    def begin(self, order: Mapping[str, Any], streams: Sequence[int]) -> socket.socket:
        """Have a command started; the socket over which its keeper is spoken to. Raises OSError.

        `order`: `path`, `argv`, `env`, `cwd`, `umask` or None, `nice`, `limits` by name, `user` as
        [uid, gid, [groups]] or None. `streams`: descriptors of its standard input, output and error.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        with theirs:
            try:
                self._send(json.dumps(order).encode(), [*streams, theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def pid(self) -> int | None:
        """The launcher's process id, while there is one."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """Let go of the launcher; it ends after its last keeper, and is waited for a bounded time."""
        orders, self._orders, self._untaken = self._orders, None, 0
        process, self._process = self._process, None
        if orders is not None:
            with contextlib.suppress(OSError):
                orders.shutdown(socket.SHUT_RDWR)  # a fork of this process may hold it too
            orders.close()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS_MAX)

    def _send(self, text: bytes, descriptors: Sequence[int]) -> None:
        """To the launcher; to a fresh one when the one there was has gone."""
        if self._process is not None and self._process.poll() is not None:
            self.close()
        for last in (False, True):
            orders = self._orders or self._start()
            try:
                socket.send_fds(orders, [HEADER.pack(len(text))], descriptors)
                orders.sendall(text)
                self._taken_at = self._taken_at if self._untaken else monotonic_us()
                self._untaken += 1
            except OSError:
                self._drop()
                if last:
                    raise
            else:
                return

    def _drop(self) -> None:
        """A launcher that takes no orders any more is of no use; its keepers go on without it."""
        if self._process is not None:
            self._process.kill()
        self.close()

    def _start(self) -> socket.socket:
        orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        orders.settimeout(SEND_SECONDS_MAX)
        mode = "plain" if self._plain else "full"
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM),
                    *(str(theirs.fileno()), str(os.getpid()), mode, str(_FOLDER)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env={},  # nothing of the instance's own, so none of its secrets
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._orders = orders
        return orders
