"""Who leads and who is a member: renewals, takeovers, heartbeats, and leaders who have been replaced."""

from __future__ import annotations

import pytest

from tests.races.conftest import Arena
from tests.races.rivals import COMMIT, LATE, MEETINGS, ROLLBACK
from tests.store.scene import ANY, HOUR, SECOND, Scene
from timeball.errors import ClaimLost
from timeball.model.cluster import Term
from timeball.store.leases import Held

every_meeting = pytest.mark.parametrize("meeting", MEETINGS)
LIFETIME = 10 * SECOND


def hold(scene: Scene, holder: str) -> Held:
    return scene.store.leases.hold("default", holder, lifetime_us=LIFETIME)


def lease_runs_out(arena: Arena) -> None:
    arena.one.execute("UPDATE timeball_lease SET expires_at = 1")


@every_meeting
def test_a_renewal_that_comes_after_the_takeover_is_refused(arena: Arena, meeting: str) -> None:
    lease_runs_out(arena)
    held = arena.meet(
        lambda: hold(arena.one, arena.boss), lambda: hold(arena.two, arena.b), meeting, before=arena.mine.leases._lock
    )
    assert held.term == (arena.term if meeting == ROLLBACK else None)


@every_meeting
def test_the_takeover_that_comes_after_a_renewal_gets_no_term(arena: Arena, meeting: str) -> None:
    lease_runs_out(arena)
    held = arena.meet(
        lambda: hold(arena.one, arena.b), lambda: hold(arena.two, arena.boss), meeting, before=arena.mine.leases._lock
    )
    assert (held.term is not None) == (meeting == ROLLBACK)


@every_meeting
def test_the_second_of_two_takeovers_gets_no_term(arena: Arena, meeting: str) -> None:
    lease_runs_out(arena)
    held = arena.meet(
        lambda: hold(arena.one, arena.a), lambda: hold(arena.two, arena.b), meeting, before=arena.mine.leases._lock
    )
    assert (held.term is not None) == (meeting == ROLLBACK)
    assert arena.mine.leases.read("default").epoch == arena.term.epoch + 1


@pytest.mark.parametrize("rolled_back", [False, True], ids=[COMMIT, ROLLBACK])
def test_a_renewal_that_waited_for_the_row_has_its_whole_lifetime_from_then_on(arena: Arena, rolled_back: bool) -> None:
    """A statement that waits for the lock has computed its times before the wait: lock first, then read the clock."""
    until: list[int] = []
    held = arena.blocked(
        lambda: hold(arena.one, arena.boss),
        lambda: hold(arena.two, arena.boss),
        rolled_back=rolled_back,
        then=lambda: until.append(arena.one.now()),
    )
    assert held.term == arena.term
    assert arena.mine.leases.read("default").expires_at >= until[0] + LIFETIME


@every_meeting
def test_a_release_that_comes_after_the_takeover_frees_nothing(arena: Arena, meeting: str) -> None:
    lease_runs_out(arena)
    freed = arena.meet(
        lambda: arena.mine.leases.release(arena.term, actor="boss"),
        lambda: hold(arena.two, arena.b),
        meeting,
        before=arena.mine.leases._release,
    )
    assert freed == (meeting == ROLLBACK)


def take_over(arena: Arena) -> Term:
    arena.two.execute("UPDATE timeball_lease SET expires_at = 1")
    term = hold(arena.two, arena.b).term
    assert term is not None
    return term


LEADERS_WORK = {
    "plan": lambda arena: arena.one.plan(arena.term, arena.mine.jobs.get("default", "job"), [arena.one.now()]),
    "reap": lambda arena: arena.mine.reaps.expire_members(arena.term),
    "lose": lambda arena: arena.mine.reaps.lose(arena.term, []),
    "misfire": lambda arena: arena.mine.reaps.resolve_misfires(arena.term, lambda _: None),
    "claim": lambda arena: arena.mine.claims.claim(
        arena.boss, ANY, prefetch_us=HOUR, slack_us=HOUR, limit=9, term=arena.term
    ),
    "take": lambda arena: arena.mine.claims.take(arena.boss, ANY, limit=9, term=arena.term),
    "tzdata": lambda arena: arena.mine.plans.adopt_tzdata(arena.term, [1], tzdata="y"),
}


@pytest.mark.parametrize("work", LEADERS_WORK)
def test_a_leader_who_comes_after_the_takeover_does_no_leaders_work(arena: Arena, work: str) -> None:
    """It had asked its own clock, and was stopped between that and its transaction."""
    arena.planned()

    def act() -> str:
        try:
            return str(LEADERS_WORK[work](arena))
        except ClaimLost:
            return "lost"

    assert arena.late(act, lambda: take_over(arena), before=arena.mine.leases._prove) == "lost"


@pytest.mark.parametrize("rolled_back", [False, True], ids=[COMMIT, ROLLBACK])
def test_a_change_of_hands_during_a_leaders_transaction_waits_for_its_end(arena: Arena, rolled_back: bool) -> None:
    """Not even the leader itself frees the lease between the proof and the commit."""
    job = arena.one.job()
    holders: list[str | None] = []
    assert arena.blocked(
        lambda: arena.mine.leases.release(arena.term, actor="boss"),
        lambda: arena.two.plan(arena.term, job, [arena.two.now()]),
        rolled_back=rolled_back,
        then=lambda: holders.append(arena.mine.leases.read("default").holder),
    )
    assert holders == [arena.boss]
    assert arena.mine.leases.read("default").holder is None
    assert len(arena.one.claim(arena.a)) == (not rolled_back)


@every_meeting
def test_a_heartbeat_that_comes_after_the_expiry_is_refused(arena: Arena, meeting: str) -> None:
    arena.one.expire(arena.a)
    alive = arena.meet(
        lambda: arena.mine.members.heartbeat(arena.a, lifetime_us=HOUR, handlers=()),
        lambda: arena.theirs.reaps.expire_members(arena.term),
        meeting,
        before=arena.mine.members._beat,
    )
    assert alive == (meeting == ROLLBACK)


@every_meeting
def test_the_expiry_that_comes_after_the_heartbeat_gives_nobody_up(arena: Arena, meeting: str) -> None:
    arena.one.expire(arena.a)
    names = arena.meet(
        lambda: arena.mine.reaps.expire_members(arena.term),
        lambda: arena.theirs.members.heartbeat(arena.a, lifetime_us=HOUR, handlers=()),
        meeting,
        before=arena.mine.reaps._expired,
    )
    if meeting == LATE or arena.sqlite:
        assert names == (["a"] if meeting == ROLLBACK else [])
    else:
        assert names == [], "a heartbeat in flight is passed over; the next pass looks again"


def test_a_member_whose_time_has_not_come_is_not_given_up(arena: Arena) -> None:
    assert arena.mine.reaps.expire_members(arena.term) == []
    arena.one.expire(arena.a)
    assert arena.mine.reaps.expire_members(arena.term) == ["a"]
