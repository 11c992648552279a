"""A small process that outlives the instance by a moment, to end what its workers have begun when it is killed.

The kernel ends a worker with its instance, but not what the worker's function has forked; and a function that never
gives the interpreter's lock back lets no thread of its worker do it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys

END_SECONDS = 5.0
_SCRIPT = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""


class Guardian:
    """Knows the process groups of the workers there are; kills them when our end of its pipe closes. For one thread."""

    def __init__(self) -> None:
        """Raises OSError where it cannot be started."""
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch(self, group: int) -> None:
        """Kill this group when the instance is gone."""
        self._say(f"+{group}\n")

    def forget(self, group: int) -> None:
        """That group has ended; to be said before its number can be another's."""
        self._say(f"-{group}\n")

    def close(self) -> None:
        """End it."""
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):
            self._popen.stdin.close()
        try:
            self._popen.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def _say(self, line: str) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):  # somebody has killed it: the kernel still ends the workers themselves
            self._popen.stdin.write(line.encode())
            self._popen.stdin.flush()
