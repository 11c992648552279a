"""Databases for the tests: a fresh one each, on every kind that the store supports."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgres_server import NoServer, postgres_server
from timeball.clock import wall_us
from timeball.store import Store, open_store
from timeball.store.migrate import upgrade_schema

CLUSTER_SECONDS_MAX = 300
"""Processes that start beside many others take their time; what a test promises of time it says itself."""
NO_SKIP = "TIMEBALL_TEST_NO_SKIP"
BESIDE = 2
"""How many workers begin with the tests of real processes, which mostly wait; the others have the processors then."""
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


def pytest_configure() -> None:
    """A shell's background job ignores SIGINT, and so would every process that a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deal the tests out in the blocks that xdist gives to its workers, those of real processes to the first ones."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if item.get_closest_marker("cluster")]
    quick = [item for item in items if not item.get_closest_marker("cluster")]
    for item in slow:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(CLUSTER_SECONDS_MAX))
    if workers <= BESIDE:
        return
    size = len(items) // workers
    dealt: list[pytest.Item] = []
    for first in range(BESIDE):
        mine = slow[first::BESIDE]
        rest = max(0, size - len(mine))
        dealt += mine + quick[:rest]
        del quick[:rest]
    items[:] = dealt + quick


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


@pytest.fixture(scope="session")
def postgres_schema(postgres_base: str) -> str:
    """A database to make others from: it has the schema, and nothing else."""
    create_database(postgres_base, "schema_only", like="template1")
    apply_schema(f"{postgres_base}/schema_only")
    return "schema_only"


@pytest.fixture(scope="session")
def sqlite_schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a file."""
    file = tmp_path_factory.mktemp("schema") / "only.db"
    apply_schema(f"sqlite:///{file}")
    return file


@pytest.fixture
def with_schema() -> None:
    """Ask for it, and the database of the test has the schema already, at a fraction of the cost."""


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, postgres_base: str) -> Iterator[str]:
    name = f"t{next(_numbers)}"
    ready = with_schema.__name__ in request.fixturenames
    create_database(postgres_base, name, like=request.getfixturevalue("postgres_schema") if ready else "template1")
    yield f"{postgres_base}/{name}"
    with psycopg.connect(f"{postgres_base}/postgres", autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")  # pyright: ignore


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")
    if with_schema.__name__ in request.fixturenames:
        shutil.copy(request.getfixturevalue("sqlite_schema"), tmp_path / "test.db")
    return f"sqlite:///{tmp_path}/test.db"


@pytest.fixture
def host_clock() -> HostClock:
    return HostClock()


@pytest.fixture
def store(with_schema: None, database_url: str, host_clock: HostClock) -> Iterator[Store]:
    made = open_store(database_url, host_clock=host_clock)
    yield made
    made.close()


def create_database(base: str, name: str, *, like: str) -> None:
    """Copied file by file, which is faster here than by the log of changes; before PostgreSQL 15 that goes unsaid."""
    with psycopg.connect(f"{base}/postgres", autocommit=True) as admin:
        strategy = "STRATEGY file_copy" if admin.info.server_version >= 150000 else ""
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {like} {strategy}")  # pyright: ignore


def apply_schema(url: str) -> None:
    made = open_store(url)
    upgrade_schema(made.database, "default")
    made.close()
