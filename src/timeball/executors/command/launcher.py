"""The launcher: a small process with one thread that forks a keeper for each command of one instance.

A large program with many threads cannot fork safely; this one can. It is started by `link`, imports next to nothing,
hears orders on one socket, and ends when the instance lets go of it or dies, after its last keeper. When a keeper is
killed, what it left becomes the launcher's, which kills it.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import traceback
from typing import Any

from timeball.executors.command.child import PR_SET_CHILD_SUBREAPER, PR_SET_NAME, ignore_signals, prctl
from timeball.executors.command.keeper import Keeper, wake_up
from timeball.executors.command.tree import DescendantTree

HEADER = struct.Struct("!I")
DESCRIPTORS = 4
TAKEN = b"\0"
"""Said for each order that was taken."""
ORPHANS_POLL_MS = 20
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Launcher:
    """`orders`: from the instance, whose process id is `instance`. `plain`: as on systems without subreapers."""

    def __init__(self, orders: socket.socket, instance: int, *, plain: bool) -> None:
        self._orders: socket.socket | None = orders
        self._plain = plain
        self._keepers: dict[int, socket.socket] = {}
        self._bereaved: list[socket.socket] = []
        self._instance: int | None = None
        self._read, write = os.pipe()
        for descriptor in (self._read, write):
            os.set_blocking(descriptor, False)
        ignore_signals()
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, wake_up)
        if not plain:
            prctl(PR_SET_CHILD_SUBREAPER, 1)
            prctl(PR_SET_NAME, b"timeball-launch")
            self._instance = os.pidfd_open(instance)
        if os.getppid() != instance:
            self._orders = None

    def run(self) -> None:
        """Serve until the instance is gone and every keeper has ended."""
        while self._orders is not None or self._keepers or self._bereaved:
            self._wait()
            self._reap()

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if self._orders is not None:
            poll.register(self._orders, select.POLLIN)
            if self._instance is not None:
                poll.register(self._instance, select.POLLIN)
        for descriptor, _ in poll.poll(ORPHANS_POLL_MS if self._bereaved else None):
            if descriptor == self._read:
                os.read(self._read, 4096)
            elif descriptor == self._instance:
                self._orders = None
            else:
                self._hear()

    def _hear(self) -> None:
        if self._orders is None:
            return
        try:
            header, descriptors, _, _ = socket.recv_fds(self._orders, HEADER.size, DESCRIPTORS, _CLOEXEC)
            order = json.loads(_exactly(self._orders, HEADER.unpack(header)[0]))
            self._orders.send(TAKEN)
        except (OSError, struct.error):  # the end, which is no header
            self._orders.close()
            self._orders = None
        else:
            self._launch(order, descriptors)

    def _launch(self, order: dict[str, Any], descriptors: list[int]) -> None:
        *streams, control = descriptors
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        connection = socket.socket(fileno=control)
        try:
            pid = os.fork()
        except OSError as error:
            news = {"refused": ["fork", error.errno or errno.EAGAIN]}
            connection.sendall(json.dumps(news).encode() + b"\n")
            connection.close()
        else:
            if not pid:
                self._be_keeper(order, streams, connection)
            self._keepers[pid] = connection
        for descriptor in streams:
            os.close(descriptor)

    def _be_keeper(self, order: dict[str, Any], streams: list[int], control: socket.socket) -> None:
        """In the fork. Never returns."""
        status = 70
        try:
            gc.disable()
            if self._orders is not None:
                self._orders.close()
            for other in (*self._keepers.values(), *self._bereaved):
                other.close()  # else the end of another keeper could not be seen while this one lives
            Keeper(control, self._instance).keep(order, streams, plain=self._plain)
            status = 0
        except BaseException:  # noqa: BLE001 - told, and never back into the launcher's code
            traceback.print_exc()
        finally:
            os._exit(status)

    def _reap(self) -> None:
        """A keeper that has ended by itself left nothing. What is left of one that was killed is killed."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            control = self._keepers.pop(pid, None)
            if control is not None and (status == 0 or self._plain):
                control.close()
            elif control is not None:
                self._bereaved.append(control)
        if self._bereaved:
            self._end_orphans()

    def _end_orphans(self) -> None:
        """Kill what has no keeper; when nothing is left, let go of the sockets: the instance sees their end."""
        tree = DescendantTree(os.getpid())
        tree.signal(signal.SIGKILL, spare=tuple(self._keepers))
        if not tree.alive(spare=tuple(self._keepers)):
            for control in self._bereaved:
                control.close()
            self._bereaved.clear()


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise ConnectionError("the instance let go in the middle of an order")
        data += part
    return bytes(data)


def main() -> None:
    """The program: descriptor of the socket, process id of the instance, `plain` or `full`."""
    descriptor, instance, mode = sys.argv[1:4]
    with contextlib.suppress(ProcessLookupError):  # the instance is dead already
        launcher = Launcher(socket.socket(fileno=int(descriptor)), int(instance), plain=mode == "plain")
        gc.collect()
        gc.freeze()  # so that keepers share what is loaded
        launcher.run()
