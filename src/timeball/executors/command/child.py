"""From fork to exec: what a fresh process does to itself before it becomes the command.

Only for a process with one thread: what runs between fork and exec could find the locks of other threads held for ever.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

ERROR_CODE = 127
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
_LIMITS = {"cpu_seconds": resource.RLIMIT_CPU, "file_size_bytes": resource.RLIMIT_FSIZE}
_IGNORED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE})
IS_LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True) if IS_LINUX else None


def prctl(option: int, value: Any) -> None:
    """Set an attribute of this process (Linux). Raises OSError."""
    assert _libc is not None
    if _libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def become(order: Mapping[str, Any], streams: Sequence[int], trouble: int, parent: int) -> NoReturn:
    """Become the command; what fails is written to `trouble` as "STEP ERRNO". Never returns.

    `order`: as `Link.begin` takes it. `streams`: what becomes standard input, output and error.
    `parent`: the keeper's process id.
    """
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("session", os.setsid),
        ("streams", lambda: _place(streams)),
        ("umask", lambda: None if order["umask"] is None else os.umask(order["umask"])),
        ("nice", lambda: os.nice(order["nice"]) if order["nice"] else None),
        ("limits", lambda: _limit(order["limits"])),
        ("user", lambda: _become_user(order["user"])),
        ("cwd", lambda: os.chdir(order["cwd"])),
        ("signals", _default_signals),
        ("parent", lambda: _die_with(parent)),
        ("memory", lambda: _limit_memory(order["limits"])),
        ("exec", lambda: os.execve(order["path"], order["argv"], order["env"])),  # noqa: S606 - the very point
    )
    for name, step in steps:
        try:
            step()
        except MemoryError:
            _give_up(trouble, "memory", 0)
        except OSError as error:
            _give_up(trouble, name, error.errno or 0)
        except BaseException:  # noqa: BLE001 - whatever it is, this process must not go on as another keeper
            _give_up(trouble, name, 0)
    os._exit(ERROR_CODE)


def _give_up(trouble: int, step: str, number: int) -> NoReturn:
    os.write(trouble, f"{step} {number}".encode())
    os._exit(ERROR_CODE)


def _place(streams: Sequence[int]) -> None:
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number, inheritable=True)


def _limit(limits: Mapping[str, int]) -> None:
    """The command gets a signal at the limit (XCPU, XFSZ); who outlives that for a second of CPU is killed."""
    for name, value in limits.items():
        if name in _LIMITS:
            most = resource.getrlimit(_LIMITS[name])[1]
            soft, hard = (_least(value, most), _least(value + 1, most))
            resource.setrlimit(_LIMITS[name], (soft, hard if name == "cpu_seconds" else soft))


def _limit_memory(limits: Mapping[str, int]) -> None:
    """Last of all: from here on this process can hardly allocate."""
    if "memory_bytes" in limits:
        most = _least(limits["memory_bytes"], resource.getrlimit(resource.RLIMIT_AS)[1])
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _least(value: int, most: int) -> int:
    return value if most == resource.RLIM_INFINITY else min(value, most)


def _become_user(user: Sequence[Any] | None) -> None:
    if user is not None:
        uid, gid, groups = user
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)


def ignore_signals() -> None:
    """All signals at their defaults but those that a supervisor may send to every process it finds.

    Whether keepers end is for the instance to decide. What the instance itself inherited ignored is not handed on.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN if number in _IGNORED else signal.SIG_DFL)


def _default_signals() -> None:
    """The command finds every signal as a login shell would leave it: nothing ignored, nothing blocked."""
    signal.set_wakeup_fd(-1)
    for number in (*_IGNORED, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _die_with(parent: int) -> None:
    """The second guard: when its keeper is killed, the kernel kills the command. A change of user would undo it."""
    if IS_LINUX:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(ERROR_CODE)
