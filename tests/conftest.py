"""Databases for the tests: a fresh one each, on every kind that the store supports."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgres_server import NoServer, postgres_server
from timeball.clock import wall_us
from timeball.store import Store, open_store
from timeball.store.migrate import upgrade_schema

NO_SKIP = "TIMEBALL_TEST_NO_SKIP"
_numbers = itertools.count(1)


class HostClock:
    """This host's wall clock, and how far a test has moved it. Only SQLite reads it."""

    def __init__(self) -> None:
        self.moved_us = 0

    def __call__(self) -> int:
        return wall_us() + self.moved_us

    def move(self, by_us: int) -> None:
        self.moved_us += by_us


def need(reason: str) -> None:
    """Skip for want of something outside of the project; a failure where the switch says so."""
    if os.environ.get(NO_SKIP) == "1":
        pytest.fail(f"{reason} ({NO_SKIP} is set)")
    pytest.skip(reason)


@pytest.fixture(autouse=True)
def _no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("TIMEBALL_") and not name.startswith("TIMEBALL_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def postgres_base() -> Iterator[str]:
    try:
        with postgres_server() as base:
            yield base
    except NoServer as error:
        need(str(error))


@pytest.fixture
def postgres_url(postgres_base: str) -> Iterator[str]:
    name = f"t{next(_numbers)}"
    with psycopg.connect(f"{postgres_base}/postgres", autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    yield f"{postgres_base}/{name}"
    with psycopg.connect(f"{postgres_base}/postgres", autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def host_clock() -> HostClock:
    return HostClock()


@pytest.fixture
def store(database_url: str, host_clock: HostClock) -> Iterator[Store]:
    made = open_store(database_url, host_clock=host_clock)
    upgrade_schema(made.database, "default")
    yield made
    made.close()
