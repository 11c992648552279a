"""Faults of the database server itself, done by the user's commands, one at a time: it is one server."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence

from timeball.selftest.faults import DISK_FULL, FAILOVER, RESTART, Fault
from timeball.selftest.means import Means
from timeball.selftest.proxy import Proxies

COMMAND_SECONDS, TURN_SECONDS = 120.0, 20.0
WORDS_TOLD_BYTES = 500


class Outages:
    """`over` ends what is going on early. Each fault that was done is counted in `applied`."""

    def __init__(
        self,
        means: Means,
        proxies: Proxies,
        *,
        applied: Counter[str],
        trouble: Callable[[str, str], None],
        say: Callable[[str], None],
        over: threading.Event,
    ) -> None:
        self._means = means
        self._proxies = proxies
        self._applied = applied
        self._trouble = trouble
        self._say = say
        self._over = over
        self._server = threading.Lock()
        self._moved = False

    def restart(self, fault: Fault) -> None:
        """Restart the server."""
        del fault
        with self._first_server() as ours:
            if ours:
                self._say("database server restarted")
                self._applied[RESTART] += self._run("restart-failed", self._means.restart)

    def fill_disk(self, fault: Fault) -> None:
        """Fill the server's disk, and free it again whatever happens."""
        with self._first_server() as ours:
            if not ours:
                return
            self._say(f"the database's disk is full for {fault.length_seconds:.1f} s")
            try:
                if self._run("fill-failed", self._means.fill):
                    self._applied[DISK_FULL] += 1
                    self._over.wait(fault.length_seconds)
            finally:
                self._run("free-failed", self._means.free)

    def fail_over(self, fault: Fault) -> None:
        """Cut everybody off, let the replica take over, and let everybody follow it."""
        del fault
        to = self._means.failover_to
        assert to is not None
        with self._server:
            if self._moved:
                return
            self._say("database fails over to its replica")
            links = list(self._proxies.links.values())
            for link in links:
                self._proxies.do(link.bar())
            self._moved = self._run("failover-failed", self._means.failover)
            for link in links:
                self._proxies.do(link.unbar(to if self._moved else None))
            self._applied[FAILOVER] += self._moved

    @contextlib.contextmanager
    def _first_server(self) -> Generator[bool]:
        """A turn at the server of the begin; False when none is to be had soon, it is gone, or all is over."""
        taken = self._server.acquire(timeout=TURN_SECONDS)
        try:
            yield taken and not self._moved and not self._over.is_set()
        finally:
            if taken:
                self._server.release()

    def _run(self, failure: str, command: Sequence[str]) -> bool:
        """Run a command; whether it went well, and a trouble where it did not."""
        with tempfile.TemporaryFile() as out:  # a pipe would be held open by a server that the command starts
            try:
                status = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=COMMAND_SECONDS, check=False
                ).returncode
            except (OSError, subprocess.TimeoutExpired) as error:
                self._trouble(failure, f"{shlex.join(command)}: {error}")
                return False
            if status:
                out.seek(0)
                words = out.read().decode(errors="replace").strip()[-WORDS_TOLD_BYTES:]
                self._trouble(failure, f"{shlex.join(command)}: status {status}: {words}")
        return status == 0
