"""Outcomes on disk while the database is away: one append-only file per member id, JSON lines, synced batch by batch.

Whoever holds a file's lock may read it; a process that ends, however it ends, gives its locks back. Settling is
idempotent by run, attempt and fence, so a file that is read twice harms nobody. Knows no database.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from timeball.model.run import Output
from timeball.model.states import SETTLED
from timeball.store.settles import Ending

FOLDER = "timeball-spill"
AUTOMATIC = "auto"
FILE_BYTES_MAX = 1 << 30
_log = logging.getLogger("timeball.engine")
_WHOLE = ("run_id", "job_id", "attempt", "fence", "begun_at", "ended_at")
_TEXT = ("reason", "error", "result")


def spill_folder(setting: str) -> Path | None:
    """The folder that a setting means; None: nothing is spilled."""
    if setting != AUTOMATIC:
        return Path(setting).absolute() if setting else None
    for variable in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        if os.environ.get(variable):
            return Path(os.environ[variable].partition(":")[0]) / FOLDER
    home = Path(os.environ.get("HOME") or "/nonexistent")
    if os.access(home, os.W_OK):
        return home / ".local" / "state" / FOLDER
    return Path(tempfile.gettempdir()) / f"{FOLDER}-{os.geteuid()}"


class Spill:
    """The files of one database and namespace in one folder. `place`: the digest that names both."""

    def __init__(self, folder: Path | None, place: str) -> None:
        self.folder = folder
        self._place = place
        self._own: SpillFile | None = None

    def append(self, instance_id: str, endings: Sequence[Ending]) -> Path:
        """Write and sync. Raises OSError, and then nothing of it counts as written."""
        if self.folder is None:
            raise OSError("spill_dir is empty: outcomes are kept in memory only")
        if self._own is None:
            _make_private(self.folder)
            self._own = SpillFile.create(self.folder / f"{self._place}-{instance_id}.jsonl")
        self._own.append(endings)
        return self._own.path

    @property
    def own(self) -> SpillFile | None:
        """What this process has written and not settled yet."""
        return self._own

    def done(self) -> None:
        """Everything of our own file is settled."""
        if self._own is not None:
            self._own.remove()
        self._own = None

    def close(self) -> None:
        """Leave our file to whoever comes next."""
        if self._own is not None:
            self._own.close()
        self._own = None

    @contextmanager
    def left(self) -> Generator[list[SpillFile]]:
        """Files of processes that have ended, locked for us while the context lasts."""
        files: list[SpillFile] = []
        try:
            if self.folder is not None and self.folder.is_dir():
                own = None if self._own is None else self._own.path
                for path in sorted(self.folder.glob(f"{self._place}-*.jsonl")):
                    file = None if path == own else SpillFile.take(path)
                    if file is not None:
                        files.append(file)
            yield files
        finally:
            for file in files:
                file.close()


class SpillFile:
    """One open and locked file."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: Path) -> SpillFile:
        """A new file of ours; it must not be there."""
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _sync_folder(path)
        return cls(path, descriptor)

    @classmethod
    def take(cls, path: Path) -> SpillFile | None:
        """A file that is there, if its writer has ended and nobody else reads it; None otherwise."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            about = os.fstat(descriptor)
            # Without a name: somebody else has settled and removed it between our two steps.
            if about.st_nlink and about.st_uid == os.geteuid() and stat.S_ISREG(about.st_mode):
                return cls(path, descriptor)
        except OSError:
            pass
        os.close(descriptor)
        return None

    @property
    def instance_id(self) -> str:
        """The member id in its name."""
        return self.path.stem.partition("-")[2]

    def append(self, endings: Sequence[Ending]) -> None:
        """All lines or, as far as it can be helped, none. Raises OSError."""
        data = "".join(_line(ending) for ending in endings).encode()
        before = os.fstat(self._descriptor).st_size
        if before + len(data) > FILE_BYTES_MAX:
            raise OSError(f"{self.path} would be larger than {FILE_BYTES_MAX} bytes")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
            os.fsync(self._descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, before)
            raise

    def read(self) -> list[Ending]:
        """Every outcome in it. A line that cannot be read is told and set aside in a file beside it."""
        with os.fdopen(os.dup(self._descriptor), "rb") as file:  # what we have locked, whatever became of its name
            file.seek(0)
            lines = file.read().splitlines()
        endings: list[Ending] = []
        for number, line in enumerate(lines, 1):
            try:
                endings.append(_ending(line))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                self._set_aside(number, line, error)
        return endings

    def remove(self) -> None:
        """It is settled."""
        with suppress(FileNotFoundError):
            self.path.unlink()
        _sync_folder(self.path)
        self.close()

    def close(self) -> None:
        """Give the lock back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _set_aside(self, number: int, line: bytes, error: Exception) -> None:
        aside = self.path.with_suffix(".corrupt")
        _log.error("%s, line %d cannot be read (%s); it is set aside in %s", self.path, number, error, aside)
        descriptor = os.open(aside, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(line + b"\n")


def _line(ending: Ending) -> str:
    return json.dumps({**ending._asdict(), "outputs": [asdict(output) for output in ending.outputs]}) + "\n"


def _ending(line: bytes) -> Ending:
    values: dict[str, Any] = json.loads(line)
    for name in _WHOLE:
        _demand(type(values[name]) is int, name)
    _demand(values["retry_at"] is None or type(values["retry_at"]) is int, "retry_at")
    for name in _TEXT:
        _demand(values[name] is None or isinstance(values[name], str), name)
    _demand(values["state"] in SETTLED, "state")
    outputs = tuple(Output(**output) for output in values.pop("outputs"))
    return Ending(**values, outputs=outputs)


def _demand(holds: bool, name: str) -> None:
    if not holds:
        raise ValueError(f"{name} is not what it should be")


def _make_private(folder: Path) -> None:
    """Others must not be able to put outcomes there. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise OSError(f"{folder} must be a folder of our own that nobody else can write to (chmod 700)")


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
