"""An SQLite file that is moved away or replaced under a running instance."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.store.scene import Scene
from timeball.errors import Unavailable
from timeball.store import open_store
from timeball.store.migrate import upgrade_schema


def test_who_has_the_old_file_open_goes_over_to_the_one_that_was_put_in_its_place(tmp_path: Path) -> None:
    file = tmp_path / "d.db"
    store = open_store(f"sqlite:///{file}")
    upgrade_schema(store.database, "default")
    with contextlib.closing(sqlite3.connect(file)) as backup:
        backup.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    Scene(store).join("one")
    assert [member.name for member in store.members.live("default")] == ["one"]
    for name in ("d.db", "d.db-wal", "d.db-shm"):
        (tmp_path / name).rename(tmp_path / f"old-{name}")
    (tmp_path / "backup.db").rename(file)
    assert store.members.live("default") == []
    with store.database.transaction(coordination=True):
        pass
    store.close()


def test_a_file_that_was_moved_away_is_a_database_out_of_reach_and_no_new_one_is_made(tmp_path: Path) -> None:
    file = tmp_path / "d.db"
    store = open_store(f"sqlite:///{file}")
    upgrade_schema(store.database, "default")
    moved = file.rename(tmp_path / "elsewhere.db")
    with pytest.raises(Unavailable, match="is gone"):
        store.members.clock()
    assert not file.exists()
    moved.rename(file)
    assert store.members.clock() > 0
    store.close()
