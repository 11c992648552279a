"""`run.fence.check(connection)`: which connections it takes, what it says of others, and what it is for."""

from __future__ import annotations

import pickle
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests.executors.apart import checks_its_fence
from tests.executors.bench_of_work import make_work
from tests.store.scene import Scene
from tests.store.stepped import Bench, eventually
from timeball.errors import InvalidInput, Superseded
from timeball.executors.function.fence import Fence
from timeball.store import Store
from timeball.store.fences import fence_check

ROOT = Path(__file__).resolve().parents[2]
on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def fence(store: Store, database_url: str) -> Fence:
    """The fence of a run that is running."""
    scene = Scene(store)
    me = scene.join("a")
    scene.plan(scene.lead(me), scene.job(), [scene.now()])
    started = scene.start(me, scene.claim(me)).started[0]
    work = make_work("function", {"name": "f"})._replace(
        run_id=started.run_id, attempt=started.attempt, fence=started.fence
    )
    return Fence(work, fence_check(database_url))


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """The application's own."""
    made = create_engine(make_url(database_url).set(drivername=driver(database_url)))
    yield made
    made.dispose()


def driver(url: str) -> str:
    return "sqlite" if url.startswith("sqlite") else "postgresql+psycopg"


def file_of(url: str) -> str:
    return make_url(url).database or ""


def older(fence: Fence) -> Fence:
    """That of an attempt that counts no more."""
    work = make_work("function", {})._replace(run_id=fence._run_id, attempt=fence._attempt, fence=fence - 1)
    return Fence(work, fence._check)


def test_a_connection_of_sqlalchemy_is_taken(engine: Engine, fence: Fence) -> None:
    with engine.begin() as connection:
        fence.check(connection)
    with engine.begin() as connection, pytest.raises(Superseded):
        older(fence).check(connection)


def test_a_session_of_sqlalchemy_is_taken_and_its_work_goes_on_in_the_same_transaction(
    engine: Engine, fence: Fence
) -> None:
    for make in (lambda: Session(engine), scoped_session(sessionmaker(engine))):
        session: Any = make()
        fence.check(session)
        assert session.connection().in_transaction()
        with pytest.raises(Superseded):
            older(fence).check(session)
        session.rollback()
        session.close()


ASYNCHRONOUS = """
import asyncio, sys
import psycopg
from sqlalchemy.ext.asyncio import create_async_engine
from tests.executors.bench_of_work import make_work
from timeball.errors import InvalidInput
from timeball.executors.function.fence import Fence
from timeball.store.fences import FenceCheck

url, run_id, attempt, number = sys.argv[1], *map(int, sys.argv[2:])
work = make_work("function", {})._replace(run_id=run_id, attempt=attempt, fence=number)
fence = Fence(work, FenceCheck("postgresql"))

def refused(connection):
    try:
        fence.check(connection)
    except InvalidInput as error:
        print(error)

async def main():
    engine = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    async with engine.begin() as connection:
        await connection.run_sync(fence.check)
        refused(connection)
    await engine.dispose()
    async with await psycopg.AsyncConnection.connect(url) as bare:
        refused(bare)

asyncio.run(main())
"""


@on_postgresql
def test_asynchronous_connections_are_refused_in_words_and_run_sync_helps(database_url: str, fence: Fence) -> None:
    """In a process of its own: greenlets upset the interpreter of the tests."""
    words = [sys.executable, "-c", ASYNCHRONOUS, database_url]
    numbers = [str(int(n)) for n in (fence._run_id, fence._attempt, fence)]
    done = subprocess.run([*words, *numbers], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert "AsyncConnection is asynchronous (await connection.run_sync(run.fence.check))" in told[0]
    assert "this connection is asynchronous" in told[1]


@on_postgresql
def test_a_connection_that_commits_each_statement_proves_nothing_and_is_refused(
    database_url: str, engine: Engine, fence: Fence
) -> None:
    with (
        psycopg.connect(database_url, autocommit=True) as bare,
        pytest.raises(InvalidInput, match="not in a transaction"),
    ):
        fence.check(bare)
    with (
        engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection,
        pytest.raises(InvalidInput, match="not in a transaction"),
    ):
        fence.check(connection)
    with psycopg.connect(database_url, autocommit=True) as bare, bare.transaction():
        fence.check(bare)


@on_sqlite
def test_a_sqlite_connection_without_a_transaction_is_refused(database_url: str, engine: Engine, fence: Fence) -> None:
    bare = sqlite3.connect(file_of(database_url), isolation_level=None)
    with pytest.raises(InvalidInput, match="not in a transaction"):
        fence.check(bare)
    bare.execute("BEGIN IMMEDIATE")
    fence.check(bare)
    bare.execute("COMMIT")
    bare.close()
    with (
        engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection,
        pytest.raises(InvalidInput, match="not in a transaction"),
    ):
        fence.check(connection)


@on_sqlite
def test_pythons_own_transactions_on_sqlite_are_taken(database_url: str, fence: Fence) -> None:
    connection = sqlite3.connect(file_of(database_url))
    fence.check(connection)
    assert connection.in_transaction
    connection.close()


def test_another_database_is_told_in_words(database_url: str, postgres_base: str, fence: Fence, tmp_path: Any) -> None:
    if database_url.startswith("sqlite"):
        bare: Any = sqlite3.connect(tmp_path / "other.db")
        other = create_engine(postgres_base.replace("postgresql:", "postgresql+psycopg:") + "/postgres")
    else:
        bare = psycopg.connect(f"{postgres_base}/postgres")
        other = create_engine(f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(InvalidInput, match="no runs of Timeball"):
        fence.check(bare)
    bare.close()
    with other.connect() as connection, pytest.raises(InvalidInput, match="this connection leads to"):
        fence.check(connection)
    other.dispose()


def test_what_is_no_connection_is_told_in_words(engine: Engine, fence: Fence) -> None:
    for wrong, words in ((engine, "an Engine is not"), ("postgresql://x", "str is no connection"), (None, "NoneType")):
        with pytest.raises(InvalidInput, match=words):
            fence.check(wrong)


def test_a_fence_is_a_number_wherever_it_goes(fence: Fence, engine: Engine) -> None:
    assert fence == int(fence)
    assert f"{fence}" == str(int(fence)) == repr(fence)
    assert type(pickle.loads(pickle.dumps(fence))) is int
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE seen (fence BIGINT)")
        mark = "%s" if engine.dialect.name == "postgresql" else "?"
        connection.exec_driver_sql(f"INSERT INTO seen VALUES ({mark})", (fence,))
        assert connection.exec_driver_sql("SELECT fence FROM seen").scalar() == fence
    with pytest.raises(InvalidInput, match="no ledger"):
        Fence(make_work("function", {})).check(None)


def test_a_function_in_a_process_of_its_own_checks_its_fence_too(bench: Bench) -> None:
    bench.functions.register("apart", checks_its_fence, isolation="process")
    one = bench.instance("one")
    one.lease.step()
    url = make_url(bench.url).set(drivername=driver(bench.url)).render_as_string(hide_password=False)
    bench.jobs.create("job", bench.define("none", "apart", args={"url": url}))
    bench.jobs.trigger("job")

    def ended() -> bool:
        bench.round(one)
        return bench.runs("job")[0].state not in {"planned", "claimed", "running"}

    eventually(ended)
    run = bench.runs("job")[0]
    assert (run.state, run.result) == ("succeeded", '"holds"'), run.error


def test_who_wakes_after_the_takeover_writes_nothing(bench: Bench) -> None:
    """A paused instance is given up, another one runs the job again, and then the first one goes on."""
    asleep, wake = threading.Event(), threading.Event()
    engine = create_engine(make_url(bench.url).set(drivername=driver(bench.url)))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE paid (run BIGINT, attempt BIGINT)")
    told: list[BaseException] = []

    def pay(run: Any) -> None:
        if run.attempt == 1:
            asleep.set()
            assert wake.wait(60)
        try:
            with engine.begin() as connection:
                run.fence.check(connection)
                connection.exec_driver_sql(f"INSERT INTO paid VALUES ({run.id}, {run.attempt})")
        except Superseded as error:
            told.append(error)
            raise

    bench.functions.register("pay", pay)
    one, two = bench.instance("one"), bench.instance("two")
    one.lease.step()
    bench.jobs.create("job", bench.define("none", "pay", on_lost="rerun"))
    bench.jobs.trigger("job")
    one.claimer.step()
    one.starter.step()
    assert asleep.wait(60)
    bench.administer("UPDATE timeball_instance SET expires_at = 1 WHERE name = 'one'")
    bench.hand_over(one, two)

    def ended() -> bool:
        bench.round(two)
        return bench.runs("job")[0].state == "succeeded"

    eventually(ended)
    wake.set()
    eventually(lambda: bool(told) and one.runner.load() == 0)
    one.settler.step()
    with engine.begin() as connection:
        assert [row[1] for row in connection.exec_driver_sql("SELECT run, attempt FROM paid")] == [2]
    assert bench.runs("job")[0].state == "succeeded"
    engine.dispose()
