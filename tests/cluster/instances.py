"""Real `timeball serve` processes for a test; all have ended when the block ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from timeball.clock import monotonic_us


class Instances:
    """Starts, kills and ends instances by name; keeps their logs."""

    def __init__(self, url: str, folder: Path, *flags: str, **environment: str) -> None:
        self.url = url
        self.folder = folder
        self._flags = flags
        self._environment = {"TIMEBALL_COMMAND_ALLOW": "*", **environment}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def start(self, name: str, *flags: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [
                    *(sys.executable, "-m", "timeball", "serve", "--db", self.url, "--name", name, "--no-http"),
                    *self._flags,
                    *flags,
                ],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **self._environment},
            )

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def end(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGTERM)
        assert self.processes[name].wait(60) == 0, self.log(name)

    def end_all(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for name, process in self.processes.items():
            if process.poll() is None:
                assert process.wait(60) == 0, self.log(name)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def ask(self, *arguments: str, status: int = 0) -> Any:
        """A command's JSON answer."""
        at = arguments.index("--") if "--" in arguments else len(arguments)
        options = ("--db", self.url, "--json")
        command = [sys.executable, "-m", "timeball", *arguments[:at], *options, *arguments[at:]]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder, env={**os.environ, **self._environment}
        )
        assert done.returncode == status, f"{arguments}: {done.returncode}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return json.loads(done.stdout)

    def leader(self) -> str | None:
        leader = self.ask("cluster", "status")["lease"]["leader"]
        return leader["name"] if isinstance(leader, dict) else leader


class Story:
    """The clock of a test that plays a story in real time: `at` waits for a moment after its begin."""

    def __init__(self) -> None:
        self._began = monotonic_us()
        self._never = threading.Event()

    def at(self, seconds: float) -> None:
        self._never.wait(max(0.0, seconds - (monotonic_us() - self._began) / 1e6))


def eventually(condition: Any, seconds: float = 60.0) -> None:
    """Look again and again until a condition holds; fails after a deadline."""
    deadline, never = monotonic_us() + int(seconds * 1e6), threading.Event()
    while not condition():
        assert monotonic_us() < deadline, "it did not come true in time"
        never.wait(0.1)
