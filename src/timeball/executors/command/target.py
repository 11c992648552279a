"""A command's target: what may stand in it, and whether it may run here. Pure but for looking at the file system."""

from __future__ import annotations

import fnmatch
import os
import pwd
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from timeball.errors import TargetError

PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEYS = ("argv", "cwd", "env", "stdin", "success_codes", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTarget:
    """What to run. `env` is added to a clean environment; `success_codes`: exit codes that count as success."""

    argv: tuple[str, ...]
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: str | None = None
    user: str | None = None
    success_codes: frozenset[int] = frozenset({0})


def read_target(target: Mapping[str, Any]) -> CommandTarget:
    """Read and check the shape of a target. Raises TargetError that names the key."""
    for key in target:
        if key not in _KEYS:
            raise TargetError(f"a command has no {key!r}", hint=f"known: {', '.join(_KEYS)}", field="target")
    argv = target.get("argv")
    if not isinstance(argv, list | tuple) or not argv:
        raise TargetError("a command needs argv, a list with at least the executable", field="target")
    env = target.get("env") or {}
    if not isinstance(env, Mapping):
        raise TargetError("env must be an object of texts", field="target")
    environment = cast("Mapping[object, object]", env)
    for key, value in environment.items():
        if "=" in _text("env", key):
            raise TargetError(f"env: {key!r} is not a name of a variable", field="target")
        _text("env", value)
    return CommandTarget(
        argv=tuple(_text("argv", part) for part in cast("Sequence[object]", argv)),
        cwd=_optional(target, "cwd"),
        env=cast("Mapping[str, str]", dict(environment)),
        stdin=_optional(target, "stdin"),
        user=_optional(target, "user"),
        success_codes=_codes(target.get("success_codes", [0])),
    )


def check_allowed(target: CommandTarget, allow: Sequence[str]) -> None:
    """Refuse an executable that the operator does not allow. Raises TargetError."""
    if not allow:
        raise TargetError(
            "commands are off on this instance",
            hint="the setting command_allow lists the executables that may run; '*' allows all",
            field="target",
        )
    if "*" in allow:
        return
    resolved = find_executable(target)
    names = {resolved, os.path.realpath(resolved)} if resolved else set[str]()
    if any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in allow):
        return
    raise TargetError(
        f"{target.argv[0]!r} may not run here",
        hint=f"the setting command_allow lists {', '.join(allow)}",
        field="target",
    )


def find_executable(target: CommandTarget) -> str | None:
    """The absolute path that would run, found as the command itself would find it; None when there is none."""
    name = target.argv[0]
    if "/" in name:
        return os.path.normpath(os.path.join(target.cwd or os.getcwd(), name))  # noqa: PTH109, PTH118 - no links resolved
    return shutil.which(name, path=target.env.get("PATH", PATH_DEFAULT))


def clean_environment(target: CommandTarget, run: Mapping[str, str]) -> dict[str, str]:
    """A fresh environment: nothing of the server's own, so none of its secrets; then the target's, then the run's."""
    uid = os.getuid()
    try:
        account = pwd.getpwnam(target.user) if target.user else pwd.getpwuid(uid)
        who = {"HOME": account.pw_dir, "LOGNAME": account.pw_name, "USER": account.pw_name}
    except KeyError:
        who = {"HOME": "/"}
    ours = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TZ") if name in os.environ}
    return {"PATH": PATH_DEFAULT, "SHELL": "/bin/sh", **who, **ours, **target.env, **run}


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise TargetError(f"{key} must hold texts, not {value!r}", field="target")
    if "\x00" in value:
        raise TargetError(f"{key} must not hold a NUL byte", field="target")
    return value


def _optional(target: Mapping[str, Any], key: str) -> str | None:
    value = target.get(key)
    return None if value is None else _text(key, value)


def _codes(value: object) -> frozenset[int]:
    if not isinstance(value, list | tuple) or not value:
        raise TargetError("success_codes must be a list of exit codes such as [0, 1]", field="target")
    codes = cast("Sequence[object]", value)
    for code in codes:
        if not isinstance(code, int) or isinstance(code, bool) or not 0 <= code <= 255:
            raise TargetError(f"success_codes: {code!r} is not an exit code (0 to 255)", field="target")
    return frozenset(cast("Sequence[int]", codes))
