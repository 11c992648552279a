"""Looking at processes, for tests of commands."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from timeball.executors.command.link import Link
from timeball.executors.command.tree import DescendantTree, name_of, state_of


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has reaped yet does not."""
    return state_of(pid)[0] not in {"Z", "X", ""}


def below(pid: int) -> list[int]:
    """All that descends from a process and has not ended."""
    return DescendantTree(pid).alive()


def launcher_of(link: Link) -> int:
    """The process that forks for an executor; one that is not there has no number, least of all 0, our own group."""
    pid = link.pid()
    assert pid
    return pid


def names_below(pid: int | None) -> list[str]:
    """What the processes are called that descend from one, if that is there yet."""
    return [] if pid is None else [name_of(child) for child in below(pid)]


def zombies(of: int | None = None) -> list[str]:
    """Children of a process, by default this one, that ended and were not reaped."""
    parent = os.getpid() if of is None else of
    found: list[str] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if state_of(int(stat.parent.name)) == ("Z", parent):
                found.append(stat.parent.name)
    return found


def children(pid: int) -> list[int]:
    """The direct children of a process that have not ended."""
    return [child for child in below(pid) if state_of(child)[1] == pid]


def written(path: Path) -> list[int]:
    """The process ids that stand in a file, one a line, so far."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []
