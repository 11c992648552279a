"""Permits of named limits under rivals: each test is named after the one that must not win."""

from __future__ import annotations

import pytest

from tests.races.conftest import Arena
from tests.races.rivals import MEETINGS, ROLLBACK
from timeball.errors import Conflict, InvalidInput
from timeball.model.limit import LimitRule
from timeball.store.claims import Claim

every_meeting = pytest.mark.parametrize("meeting", MEETINGS)


def limited(arena: Arena, **rule: float) -> tuple[Claim, Claim]:
    """Claims of two jobs that share a limit, by two instances."""
    arena.mine.limits.set("default", "one", LimitRule(**rule), actor="anna")  # type: ignore[arg-type]
    for name in ("first", "second"):
        job = arena.one.job(name, overlap="allow", limits=["one"])
        arena.one.plan(arena.term, job, [arena.one.now()])
    return arena.one.claim(arena.a, limit=1)[0], arena.two.claim(arena.b, limit=1)[0]


@every_meeting
@pytest.mark.parametrize(
    "rule", [{"running_max": 1}, {"started_max": 1, "window_seconds": 3600}], ids=["running", "started"]
)
def test_the_second_start_under_a_limit_waits_though_its_job_is_another(
    arena: Arena, meeting: str, rule: dict[str, float]
) -> None:
    first, second = limited(arena, **rule)
    result = arena.meet(
        lambda: arena.one.start(arena.a, [first]),
        lambda: arena.two.start(arena.b, [second]),
        meeting,
        before=arena.mine.starts._permits._lock,
    )
    assert len(result.started) == (meeting == ROLLBACK)


@every_meeting
def test_a_start_that_comes_after_a_limit_was_lowered_is_judged_by_the_new_one(arena: Arena, meeting: str) -> None:
    first, second = limited(arena, running_max=2)
    assert arena.two.start(arena.b, [second]).started
    result = arena.meet(
        lambda: arena.one.start(arena.a, [first]),
        lambda: arena.two.store.limits.set("default", "one", LimitRule(running_max=1), actor="ben"),
        meeting,
        before=arena.mine.starts._permits._lock,
    )
    assert len(result.started) == (meeting == ROLLBACK)


@every_meeting
def test_a_job_that_is_saved_after_its_limit_was_deleted_is_refused(arena: Arena, meeting: str) -> None:
    arena.mine.limits.set("default", "one", LimitRule(running_max=1), actor="anna")

    def save() -> bool:
        try:
            arena.one.job(limits=["one"])
        except InvalidInput:
            return False
        return True

    saved = arena.meet(
        save,
        lambda: arena.two.store.limits.delete("default", "one", actor="ben"),
        meeting,
        before=arena.mine.jobs._limits._lock_shared,
    )
    assert saved == (meeting == ROLLBACK)


@every_meeting
def test_a_limit_that_is_deleted_after_a_job_was_saved_with_it_stays(arena: Arena, meeting: str) -> None:
    arena.mine.limits.set("default", "one", LimitRule(running_max=1), actor="anna")

    def delete() -> bool:
        try:
            arena.mine.limits.delete("default", "one", actor="ben")
        except Conflict:
            return False
        return True

    deleted = arena.meet(delete, lambda: arena.two.job(limits=["one"]), meeting, before=arena.mine.limits._lock)
    assert deleted == (meeting == ROLLBACK)
