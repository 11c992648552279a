"""The instances of the self-test as processes: start, signal, kill, end. Knows no fault and no rule."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from timeball.clock import monotonic_us, seconds_to_us
from timeball.selftest.evidence import FOLDER_VARIABLE, INSTANCE_VARIABLE
from timeball.selftest.skew import WallClocks
from timeball.selftest.work import LEASH_VARIABLE

NAMESPACE = "selftest"
APP = "timeball.selftest.work:scheduler"
LEASE_SECONDS = 4.0
SETTINGS: Mapping[str, str] = {
    "TIMEBALL_NAMESPACE": NAMESPACE,
    "TIMEBALL_COMMAND_ALLOW": "*",
    "TIMEBALL_LEASE_SECONDS": f"{LEASE_SECONDS}",
    "TIMEBALL_LEASE_RENEW_SECONDS": "1",
    "TIMEBALL_LEASE_MARGIN_SECONDS": "0.6",
    "TIMEBALL_MEMBERSHIP_SECONDS": f"{LEASE_SECONDS}",
    "TIMEBALL_HEARTBEAT_SECONDS": "1",
    "TIMEBALL_COORDINATION_TIMEOUT_SECONDS": "1.5",
    "TIMEBALL_HORIZON_SECONDS": "20",
    "TIMEBALL_RETENTION_RUNS_PER_JOB": "100000000",
}
"""Short leases, so that many change hands in a minute; everything else as the user has it by default."""
UP_SECONDS, END_SECONDS = 60.0, 60.0
POLL_SECONDS = 0.05
LOG_LINES_TOLD = 5


class Cluster:
    """Instances by name. `url_of` says by which way each reaches the database. Safe for threads, one a name.

    `clocks`: the instances' wall clocks; None: the host's.
    """

    def __init__(
        self,
        folder: Path,
        url_of: Callable[[str], str],
        say: Callable[[str], None],
        clocks: WallClocks | None = None,
    ) -> None:
        self.folder = folder
        self.clocks = clocks
        self.troubles: list[tuple[str, str]] = []
        self._url_of = url_of
        self._say = say
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._log_from: dict[str, int] = {}

    def start(self, name: str) -> None:
        """Start an instance; it is not up yet when this returns."""
        command = [sys.executable, "-m", "timeball", "serve", "--app", APP, "--no-http"]
        log = self._log(name)
        self._log_from[name] = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            self._processes[name] = subprocess.Popen(
                [*command, "--name", name],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                cwd=self.folder,
                env={**self._environment(name), **self.evidence(name), LEASH_VARIABLE: "1"},
                start_new_session=True,
            )

    def evidence(self, name: str = "") -> dict[str, str]:
        """The variables that tell work where to leave its evidence."""
        return {FOLDER_VARIABLE: str(self.folder), INSTANCE_VARIABLE: name}

    def is_up(self, name: str) -> bool:
        """Whether it has said so since it was started."""
        with self._log(name).open("rb") as log:
            log.seek(self._log_from[name])
            return f"{name} is up".encode() in log.read()

    def wait_up(self, name: str, stop: threading.Event | None = None) -> bool:
        """Wait until it is up, a bounded time, or until `stop`; whether it is."""
        return self._wait(lambda: self.is_up(name) or self._processes[name].poll() is not None, UP_SECONDS, stop)

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a running instance."""
        process = self._processes[name]
        if process.poll() is None:
            process.send_signal(number)

    def kill(self, name: str) -> None:
        """End it with -9."""
        process = self._take(name)
        if process is not None:
            process.kill()
            process.wait()
            self._let_off(process)

    def end(self, name: str) -> None:
        """End it in order; a trouble when it does not, or not with status 0."""
        process = self._take(name)
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            status = process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self._let_off(process)
            self._trouble("did-not-end", f"{name} did not end within {END_SECONDS:g} s of SIGTERM", name)
            return
        self._let_off(process)
        if status:
            self._trouble("bad-end", f"{name} ended with status {status} after SIGTERM", name)

    def end_all(self) -> None:
        """End every instance, all at once."""
        threads = [threading.Thread(target=self.end, args=(name,), daemon=True) for name in list(self._processes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def kill_all(self) -> None:
        """Whatever happened, no process of ours is left."""
        for name in list(self._processes):
            self.kill(name)

    def revive(self) -> None:
        """Find instances that ended though nobody had asked them to: a trouble each, and start them again."""
        for name, process in list(self._processes.items()):
            if process.poll() is not None and self._processes.get(name) is process:
                self._trouble("died", f"{name} ended by itself with status {process.returncode}", name)
                self._let_off(process)
                self.start(name)

    def _take(self, name: str) -> subprocess.Popen[bytes] | None:
        process = self._processes.pop(name, None)
        if process is not None and process.poll() is not None:
            self._trouble("died", f"{name} ended by itself with status {process.returncode}", name)
            self._let_off(process)
            return None
        return process

    def _let_off(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is not None:
            process.stdin.close()
        if self.clocks is not None:
            self.clocks.forget(process.pid)

    def _environment(self, name: str) -> dict[str, str]:
        """The URL goes by the environment: it may hold a password, and everybody can see arguments."""
        ours = {key: value for key, value in os.environ.items() if not key.startswith("TIMEBALL_")}
        clock = self.clocks.environment(name) if self.clocks else {}
        return {**ours, **SETTINGS, **clock, "TIMEBALL_DATABASE_URL": self._url_of(name)}

    def _trouble(self, kind: str, text: str, name: str) -> None:
        lines = self._log(name).read_text(errors="replace").splitlines()[-LOG_LINES_TOLD:]
        self.troubles.append((kind, " | ".join([text, *lines])))
        self._say(text)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _wait(self, condition: Callable[[], bool], seconds: float, stop: threading.Event | None) -> bool:
        pause = stop or threading.Event()
        deadline = monotonic_us() + seconds_to_us(seconds)
        while not (met := condition()) and monotonic_us() < deadline and not pause.wait(POLL_SECONDS):
            pass
        return met
