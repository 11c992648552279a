"""Secrets: `${secret:NAME}` in a job's target and args, and what it stands for on this instance.

A secret is the variable `TIMEBALL_SECRET_NAME`, else the file NAME in the setting `secrets_dir`; it is read anew for
each attempt. Owns the syntax and where secrets lie; knows nothing of what they are for. Values are never logged.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from timeball.errors import SecretError

VARIABLE_PREFIX = "TIMEBALL_SECRET_"
CHARS_MIN = 4
"""A shorter value could not be hidden: it would turn up by chance all over the output."""
FILE_BYTES_MAX = 65_536
_REFERENCE = re.compile(r"(\$?)\$\{secret:([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_log = logging.getLogger("timeball.executors")


class Revealed(str):
    """Text that a secret has been put into. Its repr shows nothing, so that no message quotes it by accident."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Resolved(NamedTuple):
    """A value with its secrets put in, and the secrets themselves, to be hidden wherever they turn up."""

    value: Any
    secrets: tuple[str, ...]


class Secrets:
    """The secrets of this process. `directory`: one file per secret; empty: only the environment. Safe for threads."""

    def __init__(self, directory: str = "", environ: Mapping[str, str] | None = None) -> None:
        self._directory = Path(directory) if directory else None
        self._environ = os.environ if environ is None else environ
        self._told: set[str] = set()

    def visible(self) -> bool:
        """Whether this process has secrets at all; one that has none cannot say which are missing elsewhere."""
        return any(name.startswith(VARIABLE_PREFIX) for name in self._environ) or (
            self._directory is not None and self._directory.is_dir()
        )

    def check(self, value: object) -> tuple[str, ...]:
        """Refuse what is malformed or missing in texts, lists and mappings; names that could not be checked here.

        Raises SecretError naming the secret. Nothing is missing for a process that has no secrets.
        """
        names = tuple(dict.fromkeys(_names(value)))
        if not self.visible():
            return names
        for name in names:
            self.find(name)
        return ()

    def resolve(self, value: object, *, marked: bool = True) -> Resolved:
        """Put the secrets into every text of a value (text, lists, mappings). Raises SecretError naming the secret.

        `$${secret:NAME}` stands for the text `${secret:NAME}` itself. `marked`: texts with a secret are `Revealed`.
        """
        if not _mentions(value):
            return Resolved(value, ())
        found: dict[str, str] = {}

        def put(text: str) -> str:
            secret = False

            def one(match: re.Match[str]) -> str:
                nonlocal secret
                if match[1]:
                    return match[0][1:]
                secret = True
                name = _checked(match[2])
                if name not in found:
                    found[name] = self.find(name)
                return found[name]

            filled = _REFERENCE.sub(one, text)
            return Revealed(filled) if secret and marked else filled

        return Resolved(_mapped(value, put), tuple(found.values()))

    def find(self, name: str) -> str:
        """The value of one secret, without a line end behind it. Raises SecretError."""
        value = self._environ.get(VARIABLE_PREFIX + name)
        if value is None:
            value = self._from_file(name)
        value = value.removesuffix("\n").removesuffix("\r")
        if len(value) < CHARS_MIN:
            raise SecretError(
                f"secret {name!r} has fewer than {CHARS_MIN} characters",
                hint="so short a text could not be hidden in what a run leaves",
            )
        return value

    def _from_file(self, name: str) -> str:
        hint = f"it is read from {VARIABLE_PREFIX}{name}"
        if self._directory is None:
            raise SecretError(f"there is no secret {name!r} here", hint=f"{hint}; the setting secrets_dir is not set")
        path = self._directory / name
        try:
            with path.open("rb") as file:
                self._tell_open_doors(path, os.fstat(file.fileno()).st_mode)
                data = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            raise SecretError(f"there is no secret {name!r} here", hint=f"{hint} or {path}") from None
        except OSError as error:
            raise SecretError(f"secret {name!r} cannot be read from {path}: {error.strerror}") from error
        if len(data) > FILE_BYTES_MAX:
            raise SecretError(f"secret {name!r} is longer than {FILE_BYTES_MAX} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise SecretError(f"secret {name!r} in {path} is not UTF-8 text") from None

    def _tell_open_doors(self, path: Path, mode: int) -> None:
        """Say once that others on this host can read or change a secret."""
        if mode & (stat.S_IROTH | stat.S_IWOTH) and str(path) not in self._told:
            self._told.add(str(path))
            _log.warning("every user of this host can read or write the secret %s; chmod o-rw %s", path.name, path)


def has_reference(text: str) -> bool:
    """Whether a text holds a secret, or a reference to one."""
    return isinstance(text, Revealed) or any(not match[1] for match in _REFERENCE.finditer(text))


def without_references(text: str) -> str:
    """A text with `1` where a reference to a secret stands: what can be checked of it before the secret is known."""
    return text if isinstance(text, Revealed) else _REFERENCE.sub("1", text)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in cast("Mapping[object, object]", value).values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in cast("list[object]", value):
            yield from _texts(part)


def _mentions(value: object) -> bool:
    return any("${secret:" in text for text in _texts(value))


def _names(value: object) -> Iterator[str]:
    for text in _texts(value):
        yield from (_checked(match[2]) for match in _REFERENCE.finditer(text) if not match[1])


def _mapped(value: object, put: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return put(value)
    if isinstance(value, Mapping):
        return {key: _mapped(part, put) for key, part in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_mapped(part, put) for part in cast("list[object]", value)]
    return value


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise SecretError(
            f"{name!r} is not the name of a secret",
            hint="letters, digits, _ . and -, at most 100, none of . and - first; $${secret:…} means the text itself",
        )
    return name
