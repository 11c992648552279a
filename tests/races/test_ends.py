"""How an attempt ended, told by its owner, by the reaper, and by whoever wants it cancelled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.races.changes import stop
from tests.races.conftest import Arena
from tests.races.rivals import MEETINGS, ROLLBACK
from tests.store.scene import Scene
from tests.store.stepped import eventually
from timeball.errors import Conflict
from timeball.model.states import State
from timeball.store.claims import Started
from timeball.store.database import sql
from timeball.store.jobs import Placement
from timeball.store.reaps import LostRun, Orphan
from timeball.store.rulings import Again, RunChange
from timeball.store.runs import StoredRun

every_meeting = pytest.mark.parametrize("meeting", MEETINGS)
on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
"""Where several can write at once."""


def stored(scene: Scene, started: Started) -> StoredRun:
    return scene.store.runs.get("default", started.run_id)


def lose(arena: Arena, scene: Scene, orphan: Orphan, *, rerun: bool) -> int:
    return scene.store.reaps.lose(arena.term, [LostRun(orphan=orphan, rerun=rerun, reason="gone")])


def orphan_of(arena: Arena) -> Orphan:
    (orphan,) = arena.mine.reaps.orphans(arena.term)
    return orphan


@every_meeting
def test_a_settle_that_comes_after_the_reaper_is_marked_late(arena: Arena, meeting: str) -> None:
    started = arena.orphaned()
    orphan = orphan_of(arena)
    accepted = arena.meet(
        lambda: arena.one.settle(started),
        lambda: lose(arena, arena.two, orphan, rerun=False),
        meeting,
        before=arena.mine.settles._end,
    )
    run = stored(arena.one, started)
    assert accepted
    assert (run.state, bool(run.late)) == ("succeeded", meeting != ROLLBACK)


@every_meeting
def test_a_settle_that_comes_after_the_reaper_has_planned_the_run_again_is_refused(arena: Arena, meeting: str) -> None:
    started = arena.orphaned(on_lost="rerun")
    orphan = orphan_of(arena)
    accepted = arena.meet(
        lambda: arena.one.settle(started),
        lambda: lose(arena, arena.two, orphan, rerun=True),
        meeting,
        before=arena.mine.settles._end,
    )
    run = stored(arena.one, started)
    assert accepted == (meeting == ROLLBACK)
    assert (run.state, run.attempt) == (("succeeded", 1) if meeting == ROLLBACK else ("planned", 2))


def test_a_settle_that_comes_after_the_next_attempt_has_begun_elsewhere_is_refused_and_told(arena: Arena) -> None:
    started = arena.orphaned(on_lost="rerun")
    orphan = orphan_of(arena)

    def run_again() -> None:
        lose(arena, arena.two, orphan, rerun=True)
        (again,) = arena.two.start(arena.b, arena.two.claim(arena.b)).started
        assert (again.attempt, again.fence > started.fence) == (2, True)

    assert not arena.late(lambda: arena.one.settle(started), run_again, before=arena.mine.settles._end)
    assert stored(arena.one, started).state == "running"
    (event,) = arena.mine.events.latest("default", kind="run.superseded")
    assert event.run_id == started.run_id


@pytest.mark.parametrize("stale", [{"attempt": 2}, {"fence": 1 << 40}], ids=["attempt", "fence"])
def test_a_settle_that_names_another_attempt_or_another_fence_is_refused(arena: Arena, stale: dict[str, int]) -> None:
    """Each by itself: a database that failed over with a loss may hand out one of them twice."""
    started = arena.running()
    assert not arena.one.settle(started._replace(**stale))
    assert stored(arena.one, started).state == "running"


@every_meeting
def test_the_second_ending_of_an_attempt_is_refused(arena: Arena, meeting: str) -> None:
    started = arena.running()
    accepted = arena.meet(
        lambda: arena.one.settle(started, "timed_out"),
        lambda: arena.two.settle(started, "succeeded"),
        meeting,
        before=arena.mine.settles._end,
    )
    assert accepted == (meeting == ROLLBACK)
    assert stored(arena.one, started).state == ("timed_out" if meeting == ROLLBACK else "succeeded")


@every_meeting
def test_the_same_ending_told_twice_is_accepted_once_and_repeated_harmlessly(arena: Arena, meeting: str) -> None:
    started = arena.running()
    at = arena.one.now()
    told = {"state": "failed", "at": at, "retry_at": at}
    assert arena.meet(lambda: arena.one.settle(started, **told), lambda: arena.two.settle(started, **told), meeting)
    assert (stored(arena.one, started).state, stored(arena.one, started).attempt) == ("planned", 2)


@every_meeting
@pytest.mark.parametrize("rerun", [False, True], ids=["fail", "rerun"])
def test_the_reaper_that_comes_after_the_settle_finds_nothing(arena: Arena, meeting: str, rerun: bool) -> None:
    """ORPH-003 and ORPH-009: what has ended stays as it ended, however old the reaper's list is."""
    started = arena.orphaned()
    orphan = orphan_of(arena)
    lost = arena.meet(
        lambda: lose(arena, arena.one, orphan, rerun=rerun),
        lambda: arena.two.settle(started),
        meeting,
        before=arena.mine.reaps._lose,
    )
    assert lost == (meeting == ROLLBACK)
    after_loss = "planned" if rerun else "lost"
    assert stored(arena.one, started).state == (after_loss if meeting == ROLLBACK else "succeeded")


def test_the_reaper_that_comes_after_the_next_attempt_has_begun_leaves_it_alone(arena: Arena) -> None:
    started = arena.orphaned(on_lost="rerun")
    orphan = orphan_of(arena)

    def fail_and_try_again() -> None:
        assert arena.two.settle(started, "failed", retry_at=arena.two.now())
        assert len(arena.two.start(arena.b, arena.two.claim(arena.b)).started) == 1

    def reap() -> int:
        return lose(arena, arena.one, orphan, rerun=True)

    assert arena.late(reap, fail_and_try_again, before=arena.mine.reaps._lose) == 0
    assert (stored(arena.one, started).state, stored(arena.one, started).attempt) == ("running", 2)


@pytest.mark.parametrize("stale", [{"attempt": 2}, {"fence": 1 << 40}], ids=["attempt", "fence"])
def test_the_reaper_that_names_another_attempt_or_another_fence_finds_nothing(
    arena: Arena, stale: dict[str, int]
) -> None:
    started = arena.orphaned()
    assert lose(arena, arena.one, replace(orphan_of(arena), **stale), rerun=False) == 0
    assert stored(arena.one, started).state == "running"


@every_meeting
def test_the_second_of_two_reapers_finds_nothing(arena: Arena, meeting: str) -> None:
    started = arena.orphaned(on_lost="rerun")
    orphan = orphan_of(arena)
    lost = arena.meet(
        lambda: lose(arena, arena.one, orphan, rerun=True),
        lambda: lose(arena, arena.two, orphan, rerun=True),
        meeting,
        before=arena.mine.reaps._lose,
    )
    if meeting == ROLLBACK:  # where it met the other's open transaction it comes back in its next step
        lost = lost or lose(arena, arena.one, orphan, rerun=True)
    assert lost == (meeting == ROLLBACK)
    assert stored(arena.one, started).attempt == 2


@every_meeting
def test_a_rerun_that_comes_after_the_stop_stays_lost(arena: Arena, meeting: str) -> None:
    started = arena.orphaned(on_lost="rerun")
    orphan = orphan_of(arena)
    job = arena.mine.jobs.get("default", "job")
    arena.meet(
        lambda: lose(arena, arena.one, orphan, rerun=True),
        lambda: stop(arena.two, job),
        meeting,
        before=arena.mine.reaps._lock_jobs,
    )
    assert stored(arena.one, started).state == ("planned" if meeting == ROLLBACK else "lost")


@every_meeting
def test_a_retry_that_comes_after_the_stop_is_not_planned(arena: Arena, meeting: str) -> None:
    started = arena.running()
    job = arena.mine.jobs.get("default", "job")
    arena.meet(
        lambda: arena.one.settle(started, "failed", retry_at=arena.one.now()),
        lambda: stop(arena.two, job),
        meeting,
        before=arena.mine.settles._lock_jobs,
    )
    assert stored(arena.one, started).state == ("planned" if meeting == ROLLBACK else "failed")


@on_postgresql
@pytest.mark.parametrize("ending", ["retry", "rerun"])
def test_who_wants_a_run_again_waits_for_the_stop_with_the_run_still_free(arena: Arena, ending: str) -> None:
    """Both lock the job and then its runs: in opposite orders each would wait for the other."""
    started = arena.orphaned(on_lost="rerun")
    orphan = orphan_of(arena)
    job = arena.mine.jobs.get("default", "job")

    def again() -> object:
        if ending == "retry":
            return arena.one.settle(started, "failed", retry_at=arena.one.now())
        return lose(arena, arena.one, orphan, rerun=True)

    with arena.standing(lambda: stop(arena.two, job), before=arena.theirs.changes._live_runs) as stopping:
        waiting = arena.beside(again)
        eventually(lambda: arena.waiting() or waiting.done)
        with arena.mine.database.transaction() as tx:
            free = tx.all(sql("SELECT id FROM timeball_run WHERE id = :id FOR UPDATE NOWAIT"), id=started.run_id)
        assert [row[0] for row in free] == [started.run_id]
    stopping.result()
    waiting.result()
    assert stored(arena.one, started).state in {"failed", "lost"}
    assert arena.one.claim(arena.b) == []


@every_meeting
def test_a_wish_to_cancel_that_comes_after_the_settle_reaches_nobody(arena: Arena, meeting: str) -> None:
    started = arena.running()
    wish = arena.mine.starts._cancel

    def ask() -> int:
        with arena.mine.database.transaction() as tx:
            return len(tx.all(wish, ids=tx.list([started.run_id])))

    asked = arena.meet(ask, lambda: arena.two.settle(started), meeting, before=wish)
    assert asked == (meeting == ROLLBACK)
    assert bool(arena.mine.runs.wishes_to_cancel([started.run_id])) == (meeting == ROLLBACK)
    assert stored(arena.one, started).cancel_reason is None or meeting == ROLLBACK


@every_meeting
def test_a_settle_that_comes_after_the_wish_to_cancel_says_what_really_happened(arena: Arena, meeting: str) -> None:
    started = arena.running()

    def ask() -> None:
        with arena.theirs.database.transaction() as tx:
            tx.all(arena.theirs.starts._cancel, ids=tx.list([started.run_id]))

    assert arena.meet(lambda: arena.one.settle(started), ask, meeting, before=arena.mine.settles._end)
    assert stored(arena.one, started).state == "succeeded"


def rerun_by_hand(scene: Scene, started: Started) -> RunChange:
    return scene.store.rulings.rerun(
        "default",
        started.run_id,
        plan=lambda _: Again(placement=Placement(handler="function:f", requires=""), follows_runs=False),
        actor="anna",
        attempt=started.attempt,
    )


@every_meeting
def test_the_second_of_two_people_who_rerun_a_run_changes_nothing(arena: Arena, meeting: str) -> None:
    started = arena.orphaned()
    lose(arena, arena.one, orphan_of(arena), rerun=False)
    answer = arena.meet(
        lambda: rerun_by_hand(arena.one, started),
        lambda: rerun_by_hand(arena.two, started),
        meeting,
        before=arena.mine.rulings._lock_run,
    )
    assert (answer.changed, answer.attempt) == (meeting == ROLLBACK, 2)
    assert stored(arena.one, started).attempt == 2


@every_meeting
def test_who_reruns_by_hand_after_the_reaper_has_makes_no_second_attempt(arena: Arena, meeting: str) -> None:
    """ORPH-015."""
    started = arena.orphaned(on_lost="rerun")
    orphan = orphan_of(arena)

    def by_hand() -> bool:
        try:
            return rerun_by_hand(arena.one, started).changed
        except Conflict:  # it has not ended
            return True

    refused = arena.meet(
        by_hand,
        lambda: lose(arena, arena.two, orphan, rerun=True),
        meeting,
        before=arena.mine.rulings._lock_run,
    )
    assert refused == (meeting == ROLLBACK)
    run = stored(arena.one, started)
    assert (run.state, run.attempt) == (("running", 1) if meeting == ROLLBACK else ("planned", 2))


@every_meeting
def test_who_reruns_by_hand_after_a_late_outcome_was_taken_is_refused(arena: Arena, meeting: str) -> None:
    started = arena.orphaned()
    lose(arena, arena.one, orphan_of(arena), rerun=False)

    def by_hand() -> bool:
        try:
            return rerun_by_hand(arena.one, started).changed
        except Conflict:  # it succeeded
            return False

    made = arena.meet(by_hand, lambda: arena.two.settle(started), meeting, before=arena.mine.rulings._lock_run)
    assert made == (meeting == ROLLBACK)
    assert stored(arena.one, started).state == ("planned" if meeting == ROLLBACK else "succeeded")


@every_meeting
def test_an_outcome_that_comes_after_a_persons_word_is_refused(arena: Arena, meeting: str) -> None:
    started = arena.orphaned()
    lose(arena, arena.one, orphan_of(arena), rerun=False)
    accepted = arena.meet(
        lambda: arena.one.settle(started),
        lambda: arena.two.store.rulings.settle("default", started.run_id, State.FAILED, "", actor="anna"),
        meeting,
        before=arena.mine.settles._end,
    )
    assert accepted == (meeting == ROLLBACK)
    assert stored(arena.one, started).state == ("succeeded" if meeting == ROLLBACK else "failed")


@every_meeting
def test_a_rerun_by_hand_that_comes_after_the_stop_is_refused(arena: Arena, meeting: str) -> None:
    started = arena.orphaned()
    lose(arena, arena.one, orphan_of(arena), rerun=False)
    job = arena.mine.jobs.get("default", "job")

    def by_hand() -> bool:
        try:
            return rerun_by_hand(arena.one, started).changed
        except Conflict:
            return False

    made = arena.meet(by_hand, lambda: stop(arena.two, job), meeting, before=arena.mine.rulings._lock_job)
    assert made == (meeting == ROLLBACK)


@every_meeting
def test_who_cancels_a_run_that_has_started_meanwhile_asks_its_owner(arena: Arena, meeting: str) -> None:
    claim = arena.claimed()
    answer = arena.meet(
        lambda: arena.one.store.rulings.cancel("default", claim.run_id, actor="anna"),
        lambda: arena.two.start(arena.a, [claim]),
        meeting,
        before=arena.mine.rulings._lock_run,
    )
    assert (answer.state, answer.changed) == ("cancelled" if meeting == ROLLBACK else "running", True)
    wishes = arena.mine.runs.wishes_to_cancel([claim.run_id])
    assert wishes == ({} if meeting == ROLLBACK else {claim.run_id: "cancelled by anna"})


@every_meeting
def test_a_start_that_comes_after_the_cancel_starts_nothing(arena: Arena, meeting: str) -> None:
    claim = arena.claimed()
    started = arena.meet(
        lambda: arena.one.start(arena.a, [claim]).started,
        lambda: arena.two.store.rulings.cancel("default", claim.run_id, actor="anna"),
        meeting,
        before=arena.mine.starts._start,
    )
    assert len(started) == (1 if meeting == ROLLBACK else 0)
