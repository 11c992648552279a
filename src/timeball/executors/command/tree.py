"""The processes that descend from one: finding them and signalling exactly them. Knows nothing of runs.

On Linux a process that is their subreaper inherits every orphan among its descendants, whatever session or group it has
put itself into: when such a process has no child left, nothing of the tree is left, and the kernel vouches for it.
Elsewhere the tree is the process group of the command.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence

_PROC = "/proc"


class DescendantTree:
    """Everything below one process, which is a subreaper (Linux). `root`: its id."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._has_lists = os.path.exists(f"{_PROC}/self/task/{os.getpid()}/children")  # noqa: PTH110 - imports little

    def alive(self, *, spare: Sequence[int] = ()) -> list[int]:
        """Ids of all descendants that have not ended, parents first; but for `spare` and what is below."""
        return [pid for pid in self._walk(spare) if state_of(pid)[0] not in {"Z", "X", ""}]

    def signal(self, number: int, *, spare: Sequence[int] = ()) -> list[str]:
        """Send a signal to all that live, but for `spare` and what is below; those that may not be signalled, in words.

        Each is held by a descriptor before its parent is looked at, so that a number that went to another process
        in the meantime is never hit.
        """
        refused: list[str] = []
        known = {self._root}
        for pid in self._walk(spare):
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                try:
                    state, parent = state_of(pid)
                    if parent in known and state not in {"Z", "X", ""}:
                        signal.pidfd_send_signal(descriptor, number)
                except PermissionError:
                    refused.append(f"{pid} ({name_of(pid)})")
                finally:
                    os.close(descriptor)
            known.add(pid)
        return refused

    def _walk(self, spare: Sequence[int] = ()) -> list[int]:
        below = self._children if self._has_lists else _parents_of_all().get
        found, seen = [self._root], {self._root, *spare}
        for pid in found:
            fresh = [child for child in below(pid) or () if child not in seen]
            seen.update(fresh)
            found.extend(fresh)
        return found[1:]

    def _children(self, pid: int) -> list[int]:
        found: list[int] = []
        with contextlib.suppress(OSError):
            for task in os.listdir(f"{_PROC}/{pid}/task"):  # noqa: PTH208 - imports little
                with contextlib.suppress(OSError):
                    found += map(int, _read(f"{_PROC}/{pid}/task/{task}/children").split())
        return found


class GroupTree:
    """The process group of a command. `leader`: its first process, which is a child of this one."""

    def __init__(self, leader: int) -> None:
        self._leader = leader

    def alive(self) -> list[int]:
        """The group's id while a process of it lives."""
        try:
            os.killpg(self._leader, 0)
        except ProcessLookupError:
            return []
        except PermissionError:
            pass
        return [self._leader]

    def signal(self, number: int) -> list[str]:
        """Send a signal to the group; it in words when none of it may be signalled."""
        try:
            os.killpg(self._leader, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            return [f"group {self._leader}"]
        return []


Tree = DescendantTree | GroupTree


def state_of(pid: int) -> tuple[str, int]:
    """The letter of a process's state and its parent; an empty letter when it is gone."""
    try:
        state, parent = _read(f"{_PROC}/{pid}/stat").rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return "", 0
    return state, int(parent)


def name_of(pid: int) -> str:
    """What a process is called, or a question mark."""
    try:
        return _read(f"{_PROC}/{pid}/comm").strip()
    except OSError:
        return "?"


def _parents_of_all() -> dict[int, list[int]]:
    """The children of every process, where the kernel keeps no lists of them."""
    found: dict[int, list[int]] = {}
    for name in os.listdir(_PROC):  # noqa: PTH208 - imports little
        if name.isdigit():
            state, parent = state_of(int(name))
            if state:
                found.setdefault(parent, []).append(int(name))
    return found


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - imports little
        return file.read()
