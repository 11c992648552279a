"""The file of an SQLite database is the one at its path: who goes on writing into another one is in no cluster.

A file that was moved away or replaced (a backup that is put back) stays open in who has it open. It would lead there,
beside whoever leads at the path, and every tick would run twice.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError


class SamePlace:
    """Holds for one engine: no connection is used whose file is not the one at the path."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = False

    def watch(self, engine: Engine) -> None:
        """Look whenever a connection is made or taken out of the pool."""
        event.listen(engine, "do_connect", self._before_connect)
        event.listen(engine, "connect", self._connected)
        event.listen(engine, "checkout", self._taken)

    def _before_connect(self, *_: object) -> None:
        """Never make an empty database in place of one that was there. Raises FileNotFoundError."""
        if self._seen and not Path(self._path).exists():
            raise FileNotFoundError(f"the file {self._path} is gone")

    def _connected(self, _connection: object, record: Any) -> None:
        record.info["file"] = self._identity()
        self._seen = True

    def _taken(self, _connection: object, record: Any, _proxy: object) -> None:
        """The pool closes a connection to another file, and makes a new one."""
        if record.info.get("file") != self._identity():
            raise DisconnectionError(f"the file at {self._path} is another one now")

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116 - on the way of every transaction
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino
