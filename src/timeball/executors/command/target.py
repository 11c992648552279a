"""A command's target: what may stand in it. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

from timeball.errors import TargetError

SHELL = "/bin/sh"
MEMORY_BYTES_MIN = 1_048_576
_WHOLE_MAX = 2**53
_LIMITS = {"cpu_seconds": 1, "memory_bytes": MEMORY_BYTES_MIN, "file_size_bytes": 0}
_VARIABLE = re.compile(r"[^=\x00]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTarget:
    """What to run.

    `shell`: `argv` is one text for /bin/sh. `env` is added to a clean environment. `umask`: octal digits. `nice`: added
    to the instance's own. `limits`, for each process: `cpu_seconds`, `memory_bytes` (of address space),
    `file_size_bytes`. `success_codes`: exit codes that count as success.
    """

    argv: tuple[str, ...]
    shell: bool = False
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: str | None = None
    user: str | None = None
    umask: str | None = None
    nice: int = 0
    limits: Mapping[str, int] = field(default_factory=dict[str, int])
    success_codes: frozenset[int] = frozenset({0})

    @property
    def full_argv(self) -> tuple[str, ...]:
        """What is run, the shell included."""
        return (SHELL, "-c", *self.argv) if self.shell else self.argv


def read_target(target: Mapping[str, Any]) -> CommandTarget:
    """Read and check the shape of a target. Raises TargetError that names the field, e.g. `target.umask`."""
    known = [item.name for item in fields(CommandTarget)]
    for key in target:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
            raise TargetError(f"a command has no {key!r}", hint=hint, field=f"target.{key}")
    if "argv" not in target:
        raise TargetError("a command needs argv, a list with at least the executable", field="target.argv")
    read = CommandTarget(**{key: _READERS[key](key, value) for key, value in target.items()})
    if read.shell and len(read.argv) != 1:
        raise TargetError(
            "with shell, argv is one text for the shell",
            hint='{"shell": true, "argv": ["date | wc -c"]}',
            field="target.argv",
        )
    return read


def _wrong(key: str, what: str, value: object, hint: str | None = None) -> TargetError:
    shown = repr(value)
    return TargetError(
        f"{key} must be {what}, not {shown if len(shown) < 60 else shown[:60] + '…'}", hint=hint, field=f"target.{key}"
    )


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(key, "text", value)
    if "\x00" in value:
        raise TargetError(f"{key} must not hold a NUL byte", field=f"target.{key}")
    return value


def _optional(key: str, value: object) -> str | None:
    return None if value is None else _text(key, value)


def _argv(key: str, value: object) -> tuple[str, ...]:
    parts = cast("Sequence[object]", value)
    if not isinstance(value, list | tuple) or not parts:
        raise _wrong(key, "a list with at least the executable", value, '["/bin/echo", "hello"]')
    argv = tuple(_text(key, part) for part in parts)
    if not argv[0].strip():
        raise TargetError("argv begins with an empty executable", field="target.argv")
    return argv


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong(key, "true or false", value)
    return value


def _folder(key: str, value: object) -> str | None:
    folder = _optional(key, value)
    if folder is not None and not folder.startswith("/"):
        raise _wrong(key, "an absolute path", folder, "instances may have been started in different folders")
    return folder


def _environment(key: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _wrong(key, "an object of texts", value)
    found: dict[str, str] = {}
    for name, content in cast("Mapping[object, object]", value).items():
        if not _VARIABLE.fullmatch(_text(key, name)):
            raise TargetError(f"env: {name!r} is not a name of a variable", field="target.env")
        if str(name).startswith("TIMEBALL_"):
            raise TargetError(f"env: {name!r} is one that Timeball sets", hint="another name", field="target.env")
        if isinstance(content, int) and not isinstance(content, bool):
            content = str(content)  # noqa: PLW2901 - a number means its digits
        if not isinstance(content, str):
            raise _wrong(key, f"an object of texts; {name!r} is", content, 'put it in quotes: "1.10"')
        found[str(name)] = _text(key, content)
    return found


def _umask(key: str, value: object) -> str | None:
    if value is None or (isinstance(value, str) and re.fullmatch(r"0?[0-7]{3}", value)):
        return value
    raise _wrong(key, "three octal digits as text", value, 'such as "022" or "027"')


def _whole(key: str, value: object, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise _wrong(key, f"a whole number from {low} to {high}", value)
    return value


def _limits(key: str, value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise _wrong(key, "an object", value, '{"cpu_seconds": 60}')
    found: dict[str, int] = {}
    for name, limit in cast("Mapping[str, object]", value).items():
        if name not in _LIMITS:
            raise TargetError(
                f"limits has no {name!r}", hint=f"known: {', '.join(_LIMITS)}", field=f"target.limits.{name}"
            )
        found[name] = _whole(f"limits.{name}", limit, _LIMITS[name], _WHOLE_MAX)
    return found


def _codes(key: str, value: object) -> frozenset[int]:
    codes = cast("Sequence[object]", value)
    if not isinstance(value, list | tuple) or not codes:
        raise _wrong(key, "a list of exit codes", value, "such as [0, 1]")
    return frozenset(_whole(key, code, 0, 255) for code in codes)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "argv": _argv,
    "shell": _flag,
    "cwd": _folder,
    "env": _environment,
    "stdin": _optional,
    "user": _optional,
    "umask": _umask,
    "nice": lambda key, value: _whole(key, value, -20, 19),
    "limits": _limits,
    "success_codes": _codes,
}
