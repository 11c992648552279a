"""The demo: real instances as processes, a killed leader, an audit. Owns the processes; shows nothing itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from timeball.app.schema import ensure_schema
from timeball.app.wiring import connect
from timeball.clock import monotonic_us, pause_us, seconds_to_us
from timeball.model.job import Definition
from timeball.service.audit import Report, audit
from timeball.service.cluster import ClusterStatus, cluster_status
from timeball.settings import load_settings
from timeball.store.runs import RunFilter, StoredRun

KILL_AT = 1 / 3
RETURN_AFTER_SECONDS = 8.0
STEP_SECONDS = 0.5
END_SECONDS = 20.0
RUNS_SHOWN = 12

JOBS: dict[str, Definition] = {
    name: Definition(schedule=schedule, executor="command", target={"argv": list(argv)}, overlap=overlap)
    for name, schedule, overlap, argv in (
        ("every-second", "* * * * * *", "allow", ("/bin/echo", "tick")),
        (
            "every-two-seconds",
            "*/2 * * * * *",
            "allow",
            ("/bin/sh", "-c", "echo $TIMEBALL_JOB is due $TIMEBALL_DUE_AT"),
        ),
        ("three-second-report", "*/5 * * * * *", "skip", ("/bin/sleep", "3")),
        ("now-and-then-fails", "*/7 * * * * *", "skip", ("/bin/sh", "-c", "exit $((TIMEBALL_RUN_ID % 2))")),
        ("never-finishes-in-time", "@every 10s", "skip", ("/bin/sleep", "12")),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What the demo looks like at one moment."""

    elapsed_seconds: float
    minutes: float
    status: ClusterStatus
    runs: list[StoredRun]
    story: list[str]
    killed: frozenset[str]
    """Names of instances that are dead, though the cluster may not know it yet."""


@dataclass(slots=True)
class Demo:
    """`run` tells the whole story; whatever happens, every process has ended when it returns."""

    database_url: str
    folder: Path
    instances: int
    minutes: float
    show: Callable[[Picture], None]
    story: list[str] = field(default_factory=list[str])
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, "subprocess.Popen[bytes]"])
    _began: int = 0

    def run(self) -> Report:
        """Play it and audit it. KeyboardInterrupt ends it early, with the audit of what there was."""
        parts = connect(load_settings({"database_url": self.database_url, "command_allow": "*"}))
        try:
            ensure_schema(parts.store, parts.settings, upgrade=True)
            for number in range(self.instances):
                self._launch(f"mast-{number + 1}")
            service = parts.jobs("demo")
            for name, definition in JOBS.items():
                service.declare(name, definition)
            self._began = monotonic_us()
            try:
                self._play(lambda: cluster_status(parts.store, parts.settings.namespace), parts.store.runs.list)
            except KeyboardInterrupt:
                self._say("interrupted; ending in order")
            for name in JOBS:
                service.stop(name)
            self._end_all()
            return audit(parts.store, parts.settings.namespace)
        finally:
            self._kill_all()
            parts.store.close()

    def _play(self, status: Callable[[], ClusterStatus], runs: Callable[[str, RunFilter], list[StoredRun]]) -> None:
        length = self.minutes * 60
        victim: str | None = None
        back = False
        while (elapsed := (monotonic_us() - self._began) / 1e6) < length:
            now = status()
            listed = [r for r in runs("default", RunFilter(limit=200)) if r.started_at is not None]
            self.show(
                Picture(
                    elapsed_seconds=elapsed,
                    minutes=self.minutes,
                    status=now,
                    runs=sorted(listed, key=lambda r: -(r.started_at or 0))[:RUNS_SHOWN],
                    story=self.story,
                    killed=frozenset({victim} if victim is not None and not back else ()),
                )
            )
            if victim is None and elapsed >= length * KILL_AT and now.leader is not None:
                victim = self._kill_leader(now.leader.name)
            elif victim is not None and not back and elapsed >= length * KILL_AT + RETURN_AFTER_SECONDS:
                back = True
                self._launch(victim)
            pause_us(seconds_to_us(STEP_SECONDS))

    def _kill_leader(self, name: str) -> str:
        process = self._processes.pop(name)
        process.kill()
        process.wait()
        self._say(f"{name} led: killed with -9; the ticks of the gap are planned already, so the others run them")
        return name

    def _launch(self, name: str) -> None:
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("TIMEBALL_")},
            "TIMEBALL_COMMAND_ALLOW": "*",
        }
        command = [sys.executable, "-m", "timeball", "serve", "--db", self.database_url, "--name", name, "--no-http"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self._say(f"{name} started")

    def _end_all(self) -> None:
        for process in self._processes.values():
            process.terminate()
        deadline = monotonic_us() + seconds_to_us(END_SECONDS)
        for name, process in self._processes.items():
            try:
                process.wait(max(0.1, (deadline - monotonic_us()) / 1e6))
            except subprocess.TimeoutExpired:
                self._say(f"{name} did not end in {END_SECONDS:g} s")
        self._say("every instance has ended in order")

    def _kill_all(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def _say(self, text: str) -> None:
        at = (monotonic_us() - self._began) / 1e6 if self._began else 0.0
        self.story.append(f"{at:6.1f} s  {text}")
