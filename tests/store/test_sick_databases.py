"""A database that answers and cannot work is away: everything backs off, and nothing is taken for an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from timeball.errors import Unavailable
from timeball.store.database import Database, sql

STATES = {
    "25006": "read-only: maintenance, a demoted primary",
    "53100": "the disk is full",
    "53200": "out of memory",
    "53300": "too many connections",
    "53400": "a limit of the configuration",
    "57P01": "shut down",
    "57P02": "another session crashed",
    "57P03": "starting up",
    "58000": "a system error",
    "58030": "an error of its disk",
    "58P01": "a file of its own is missing",
}


@pytest.mark.parametrize("state", STATES, ids=STATES.__getitem__)
def test_a_sick_postgresql_is_away(postgres_url: str, state: str) -> None:
    database = Database(postgres_url)
    with pytest.raises(Unavailable), database.transaction() as tx:
        tx.count(sql(f"DO $$ BEGIN RAISE EXCEPTION 'sick' USING ERRCODE = '{state}'; END $$"))
    database.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/x.db")
    with database.transaction() as tx:
        tx.count(sql("CREATE TABLE t (x TEXT)"))
    yield database
    database.close()


@pytest.mark.parametrize("sickness", ["max_page_count = 3", "query_only = on"], ids=["disk-full", "read-only"])
def test_a_sick_sqlite_file_is_away(file: Database, sickness: str) -> None:
    with pytest.raises(Unavailable, match=r"full|readonly"), file.transaction() as tx:
        tx.count(sql(f"PRAGMA {sickness}"))
        tx.count(sql("INSERT INTO t VALUES (:x)"), x="x" * 100_000)
