"""What the work itself writes down, outside of the database: one line where it begins, one where it ends.

A line is one write(2) to a file opened with O_APPEND, so that a kill leaves it whole or not at all. The checker
believes these lines, not the scheduler's tables, about what ran.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from timeball.clock import monotonic_us, wall_us

FOLDER_VARIABLE = "SELFTEST_EVIDENCE"
INSTANCE_VARIABLE = "SELFTEST_INSTANCE"
BEGIN, END = "begin", "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One line. `wall_us` and `mono_us` are clocks of this host, in microseconds, the second shared by all processes.

    `wall_us` may be made wrong on purpose, `mono_us` never is: everything is reckoned by it.

    `kind`: how the run came to be, empty where the work cannot know it. `edition`: which edit of the job it saw.
    """

    what: str
    job: str
    kind: str
    due_at: int
    run_id: int
    attempt: int
    fence: int
    instance: str
    pid: int
    wall_us: int
    mono_us: int
    edition: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """The attempt it is about."""
        return (self.run_id, self.attempt)


@dataclass(slots=True)
class Writer:
    """Appends to one file; opened at the first mark."""

    path: Path
    instance: str
    _descriptor: int = -1

    def mark(
        self, what: str, *, job: str, kind: str, due_at: int, run_id: int, attempt: int, fence: int, edition: int = 0
    ) -> None:
        """Write one line, now."""
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        line = Mark(
            what=what,
            job=job,
            kind=kind,
            due_at=due_at,
            run_id=run_id,
            attempt=attempt,
            fence=fence,
            instance=self.instance,
            pid=os.getpid(),
            wall_us=wall_us(),
            mono_us=monotonic_us(),
            edition=edition,
        )
        os.write(self._descriptor, (json.dumps(asdict(line), separators=(",", ":")) + "\n").encode())


def writer_of(environ: Mapping[str, str], name: str | None = None) -> Writer:
    """The writer of this process, or of all processes that share a `name`."""
    instance = environ.get(INSTANCE_VARIABLE, "")
    folder = Path(environ.get(FOLDER_VARIABLE, "."))
    return Writer(path=folder / f"{name or f'{instance}-{os.getpid()}'}.jsonl", instance=instance)


def read_marks(folder: Path) -> tuple[list[Mark], list[str]]:
    """All lines of a folder in the order of their instants, and what could not be read."""
    marks: list[Mark] = []
    broken: list[str] = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                marks.append(Mark(**json.loads(line)))
            except (ValueError, TypeError):
                broken.append(f"{path.name}: {line[:200]!r}")
    return sorted(marks, key=lambda mark: mark.mono_us), broken
