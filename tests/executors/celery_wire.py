"""A wire to a broker that breaks at the worst moment: the message has passed, its answer does not come back."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.cluster.proxy import Wire


class BreakingWire(Wire):
    """Forwards until a client has sent `word`, as often as `times` says; those bytes arrive, and the wire breaks."""

    def __init__(self, host: str, port: int, word: bytes, times: int = 1) -> None:
        self._word = word
        self._left = times
        self._counting = threading.Lock()
        super().__init__(host, port)

    @property
    def broke(self) -> bool:
        return self._left == 0

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if self._word in data and self._take():
                    # The answer is not read: it must not overtake the break.
                    with contextlib.suppress(OSError):
                        source.shutdown(socket.SHUT_RDWR)
                    target.sendall(data)
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_WR)

    def _take(self) -> bool:
        with self._counting:
            if not self._left:
                return False
            self._left -= 1
            return True
