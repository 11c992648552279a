"""A job's own transaction that checks its fence, against the reaper that gives the run up."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.races.conftest import Arena
from tests.races.rivals import Side
from tests.store.stepped import eventually
from timeball.errors import Superseded
from timeball.store.claims import Started
from timeball.store.fences import fence_check
from timeball.store.reaps import LostRun, Orphan

on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
Connect = Callable[[], Any]


@pytest.fixture
def connect(database_url: str) -> Iterator[Connect]:
    """The job's own connections."""
    opened: list[Any] = []

    def one() -> Any:
        if database_url.startswith("sqlite"):
            made: Any = sqlite3.connect(make_url(database_url).database or "", timeout=30, check_same_thread=False)
        else:
            made = psycopg.connect(database_url)
        opened.append(made)
        return made

    yield one
    for connection in opened:
        connection.close()


def check(arena: Arena, connection: Any, started: Started) -> None:
    fence_check(arena.mine.database.url)(
        connection, run_id=started.run_id, attempt=started.attempt, fence=started.fence
    )


def lose(arena: Arena, orphan: Orphan, *, rerun: bool = False) -> int:
    return arena.theirs.reaps.lose(arena.term, [LostRun(orphan=orphan, rerun=rerun, reason="gone")])


def orphan_of(arena: Arena) -> Orphan:
    (orphan,) = arena.mine.reaps.orphans(arena.term)
    return orphan


def test_the_reaper_waits_until_the_transaction_that_has_checked_its_fence_ends(arena: Arena, connect: Connect) -> None:
    started = arena.orphaned()
    orphan = orphan_of(arena)
    job = connect()
    check(arena, job, started)
    reaping = arena.beside(lambda: eventually(lambda: lose(arena, orphan) == 1))
    for _ in range(3 if not arena.sqlite else 0):  # SQLite's one writer is the job
        assert lose(arena, orphan) == 0
        assert arena.mine.reaps.orphans(arena.term) == []
    assert not reaping.done
    assert arena.one.state(started.run_id) == "running"
    job.commit()
    reaping.result()
    assert arena.one.state(started.run_id) == "lost"


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_check_that_meets_the_reaper_waits_and_finds_what_it_did(
    arena: Arena, connect: Connect, rolled_back: bool
) -> None:
    started = arena.orphaned(on_lost="rerun")
    orphan = orphan_of(arena)
    job = connect()
    with arena.standing(lambda: lose(arena, orphan, rerun=True), before=arena.theirs.reaps._rerun) as reaping:
        checking = Side(lambda: check(arena, job, started))
        eventually(lambda: arena.waiting() or checking.done)
        if rolled_back:  # the reaper's host dies, and its transaction with it
            arena.theirs.reaps._rerun.text = "SELECT no_such_column"  # pyright: ignore
    if rolled_back:
        with pytest.raises(Exception, match="no_such_column"):
            reaping.result()
        checking.result()
    else:
        assert reaping.result() == 1
        with pytest.raises(Superseded, match="attempt 2 is planned"):
            checking.result()
    job.rollback()


def test_a_check_after_the_loss_is_refused(arena: Arena, connect: Connect) -> None:
    started = arena.orphaned()
    assert lose(arena, orphan_of(arena)) == 1
    with pytest.raises(Superseded, match="attempt 1 is lost"):
        check(arena, connect(), started)


def test_a_check_after_the_end_is_refused(arena: Arena, connect: Connect) -> None:
    started = arena.running()
    arena.one.settle(started)
    with pytest.raises(Superseded, match="is succeeded"):
        check(arena, connect(), started)


def test_a_check_names_its_attempt_and_its_fence(arena: Arena, connect: Connect) -> None:
    started = arena.running()
    for wrong in (started._replace(attempt=2), started._replace(fence=started.fence + 1), started._replace(run_id=99)):
        job = connect()
        with pytest.raises(Superseded):
            check(arena, job, wrong)
        job.rollback()
    check(arena, connect(), started)


@on_postgresql
def test_a_transaction_whose_snapshot_is_older_than_the_loss_is_refused(arena: Arena, connect: Connect) -> None:
    started = arena.orphaned()
    job = connect()
    job.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    job.execute("SELECT 1 FROM timeball_run").fetchall()
    assert lose(arena, orphan_of(arena)) == 1
    with pytest.raises(psycopg.errors.SerializationFailure):
        check(arena, job, started)


@on_postgresql
def test_a_transaction_that_is_left_open_holds_up_no_stop_no_cancel_and_no_end(arena: Arena, connect: Connect) -> None:
    started = arena.running()
    job = connect()
    check(arena, job, started)
    assert arena.one.store.rulings.cancel("default", started.run_id, actor="anna").changed
    assert arena.one.settle(started)
    assert arena.one.state(started.run_id) == "succeeded"
    job.commit()
