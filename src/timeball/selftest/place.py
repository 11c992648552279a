"""Where the self-test works: a schema or a file of its own, beside what the user has, and gone at the end."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from timeball.errors import InvalidInput, StoreError
from timeball.selftest.addresses import sqlite_file, with_search_path
from timeball.store.database import Database, make_dialect
from timeball.store.scratch import create_schema, drop_schema

PREFIX = "timeball_selftest_"
FOLDER_PREFIX = "timeball-selftest-"
DROP_TRIES_MAX, DROP_PAUSE_SECONDS = 20, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`url`: the database to work in. `folder`: for evidence and logs. `name`: the schema, or the file."""

    url: str
    folder: Path
    name: str


def is_sqlite(url: str) -> bool:
    """Whether the URL is SQLite's. Raises SettingsError for databases that are not supported."""
    return make_dialect(url).name == "sqlite"


@contextlib.contextmanager
def place_beside(url: str, *, keep: bool, way: Callable[[str], str]) -> Generator[Place]:
    """A place beside the given database; removed at the end unless `keep`.

    `way`: the URL by way of a proxy, which leads to wherever the database is by then. The first word is spoken
    directly, so that errors are about what the user has given.

    Raises StoreError where no schema may be created, InvalidInput where no file may.
    """
    if is_sqlite(url):
        with _folder(sqlite_file(url), keep=keep) as folder:
            file = folder / "selftest.db"
            yield Place(url=f"sqlite:///{file}", folder=folder, name=str(file))
        return
    name = PREFIX + secrets.token_hex(4)
    with contextlib.closing(Database(url)) as database:
        create_schema(database, name)
    try:
        with _folder(None, keep=keep) as folder:
            yield Place(url=with_search_path(way(url), name), folder=folder, name=f"schema {name}")
    finally:
        if not keep:
            with contextlib.closing(Database(way(url))) as database:
                _drop(database, name)


def _drop(database: Database, name: str) -> None:
    """The server may have been restarted since, or be busy ending the sessions of who was killed."""
    pause = threading.Event()
    for attempt in range(DROP_TRIES_MAX):
        try:
            return drop_schema(database, name)
        except StoreError:
            if attempt == DROP_TRIES_MAX - 1:
                raise
            pause.wait(DROP_PAUSE_SECONDS)
    return None


@contextlib.contextmanager
def _folder(beside: Path | None, *, keep: bool) -> Generator[Path]:
    try:
        folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=beside.parent if beside else None))
    except OSError as error:
        raise InvalidInput(f"cannot make a folder beside {beside}: {error.strerror}", field="db") from error
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
