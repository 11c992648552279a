"""Pauses and backfills under rivals: each test is named after the one that must not win."""

from __future__ import annotations

import pytest

from tests.races.conftest import Arena
from tests.races.rivals import MEETINGS, ROLLBACK
from timeball.app.wiring import make_registry
from timeball.executors.registry import FunctionTable
from timeball.service.backfills import BackfillService
from timeball.service.jobs import JobService
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.database import sql

every_meeting = pytest.mark.parametrize("meeting", MEETINGS)
HOUR = 3_600_000_000


def people(store: Store) -> BackfillService:
    functions = FunctionTable()
    functions.register("f", lambda: None)
    jobs = JobService(store, make_registry(Settings(), functions), namespace="default", actor="anna")
    return BackfillService(store, jobs, namespace="default", actor="anna")


@every_meeting
def test_a_start_that_comes_after_the_pause_starts_nothing(arena: Arena, meeting: str) -> None:
    arena.planned(overlap="allow")
    claims = arena.one.claim(arena.a)
    result = arena.meet(
        lambda: arena.one.start(arena.a, claims),
        lambda: people(arena.two.store).pause("job"),
        meeting,
        before=arena.mine.starts._start,
    )
    assert len(result.started) == (meeting == ROLLBACK)


@every_meeting
def test_the_second_of_two_people_who_backfill_one_range_makes_no_run(arena: Arena, meeting: str) -> None:
    arena.one.job(schedule="0 * * * *")
    now = arena.one.now()
    ask = {"since": now - 3 * HOUR, "until": now - HOUR // 60}
    answer = arena.meet(
        lambda: people(arena.one.store).backfill("job", **ask),
        lambda: people(arena.two.store).backfill("job", **ask),
        meeting,
        before=arena.mine.backfills._lock,
    )
    assert len(answer.ticks) == (3 if meeting == ROLLBACK else 0)


@every_meeting
def test_the_second_of_two_people_who_resume_makes_up_for_nothing(arena: Arena, meeting: str) -> None:
    arena.one.job(schedule="0 * * * *")
    people(arena.one.store).pause("job")
    arena.one.execute(
        "UPDATE timeball_job SET pause = :pause",
        pause=f'{{"reason":"","actor":"a","since":{arena.one.now() - 3 * HOUR}}}',
    )
    result = arena.meet(
        lambda: people(arena.one.store).resume("job", make_up="all"),
        lambda: people(arena.two.store).resume("job", make_up="all"),
        meeting,
        before=arena.mine.changes._lock,
    )
    assert result.changed == (meeting == ROLLBACK)
    with arena.mine.database.transaction() as tx:
        runs = tx.all(sql("SELECT due_at FROM timeball_run WHERE kind = 'backfill'"))
    assert len(runs) == len(set(runs)) == 3
