"""What a command's record says, in words. Pure but for one look whether a file is there."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass

from timeball.executors.command.allowed import lies_there
from timeball.executors.command.target import CommandTarget
from timeball.model.states import State

Verdict = tuple[State, str | None, str | None]
"""State, reason, words."""

_CWD = {
    errno.ENOENT: "is not there",
    errno.ENOTDIR: "is no folder",
    errno.EACCES: "may not be entered: permission denied",
}
_LIMITED = {"SIGXCPU": ("cpu_seconds", "used more than"), "SIGXFSZ": ("file_size_bytes", "wrote a file larger than")}


@dataclass(slots=True, kw_only=True)
class Ending:
    """How a command was ended and what of it was left, as far as the record tells.

    `left`: processes that lived on after the command. `waited_us`: how long after TERM it was killed, None when it
    was not. `main_killed`: whether the command itself lived until then.
    """

    left: int = 0
    waited_us: int | None = None
    main_killed: bool = False

    def words(self, *, asked: bool) -> str:
        """`asked`: whether the end was asked for, so that TERM went to all of it."""
        killed = self.waited_us is not None
        if self.main_killed:
            return _ignored(self.waited_us or 0)
        count = f"{self.left} process{'' if self.left == 1 else 'es'}"
        if asked:
            return f"{count} of it ignored TERM, killed" if killed and self.left else ""
        if not self.left:
            return ""
        return f"left {count} behind, {'which ignored TERM, killed' if killed else 'ended'}"


def verdict_on(target: CommandTarget, status: int) -> Verdict:
    """What a command's own end means; `status` below zero is a signal."""
    if status in target.success_codes:
        return State.SUCCEEDED, None, None
    if status >= 0:
        return State.FAILED, "exit-code", f"exit code {status}"
    name = _signal_name(-status)
    words = f"ended by {name} (signal {-status})"
    limit, excess = _LIMITED.get(name, ("", ""))
    if limit in target.limits:
        words += f": it {excess} its limit {limit} of {target.limits[limit]}"
    elif name == "SIGKILL":
        words += ", not by this instance: by hand, or out of memory"
    return State.FAILED, "signal", words


def start_trouble(target: CommandTarget, path: str | None, step: str, number: int) -> str:
    """Why a command could not be started. `path`: what was to run; `step`, `number`: as the keeper tells them."""
    name, says = target.full_argv[0], os.strerror(number)
    if step == "exec":
        return _exec_trouble(name, path, number)
    known = {
        "cwd": f"its working directory {target.cwd or 'that of the instance'!r} {_CWD.get(number, says)}",
        "nice": f"nice {target.nice} is not allowed: this instance does not run as root",
        "memory": f"{name!r} does not fit into its limit memory_bytes of {target.limits.get('memory_bytes')}",
        "fork": f"{name!r} could not be started, this host has no process or memory left: {says}",
    }
    return known.get(step, f"{name!r} could not be started ({step}): {says}")


def not_found(target: CommandTarget) -> str:
    """Why there is no file to run."""
    lies = lies_there(target)
    if lies is not None:
        return f"{target.argv[0]!r} is not executable: permission denied for {lies!r}"
    return f"{target.argv[0]!r} is not there, in no folder of its PATH"


def _exec_trouble(name: str, path: str | None, number: int) -> str:
    if number == errno.ENOENT and path and os.path.isfile(path):  # noqa: PTH113 - a link to nothing is not there
        return f"{name!r} is there, but not the interpreter that its first line names"
    says = {
        errno.ENOENT: f"{name!r} is not there",
        errno.ENOTDIR: f"{name!r} is not there",
        errno.EACCES: f"{name!r} is not executable: permission denied",
        errno.ENOEXEC: f"{name!r} is neither a program nor a script: its first line does not begin with #!",
        errno.E2BIG: f"{name!r} gets more arguments and environment than this host allows",
        errno.ETXTBSY: f"{name!r} is being written to",
    }
    return says.get(number, f"{name!r} could not be started: {os.strerror(number)}")


def _ignored(waited_us: int) -> str:
    return f"ignored TERM for {waited_us / 1e6:.1f} s, killed" if waited_us >= 50_000 else "killed"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a signal"
