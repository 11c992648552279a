"""Who may start a run, and who holds it: each test is named after the rival that must not win."""

from __future__ import annotations

import pytest

from tests.races.changes import break_job, delete, edit, stop
from tests.races.conftest import Arena
from tests.races.rivals import COMMIT, MEETINGS, ROLLBACK
from tests.store.scene import ANY, HOUR, SECOND, Scene
from timeball.store.claims import Claim
from timeball.store.reaps import MisfireVerdict, OverdueJob

every_meeting = pytest.mark.parametrize("meeting", MEETINGS)


def reclaim(arena: Arena) -> list[int]:
    return [claim.run_id for claim in arena.two.claim(arena.b)]


def run_out(arena: Arena) -> None:
    arena.one.execute("UPDATE timeball_run SET claimable_at = 1 WHERE state = 'claimed'")


@every_meeting
def test_a_start_that_comes_after_the_stop_starts_nothing(arena: Arena, meeting: str) -> None:
    job = arena.planned(overlap="allow")
    claims = arena.one.claim(arena.a)
    starts = arena.mine.starts
    result = arena.meet(
        lambda: arena.one.start(arena.a, claims), lambda: stop(arena.two, job), meeting, before=starts._start
    )
    assert len(result.started) == (meeting == ROLLBACK)


@every_meeting
def test_a_start_that_comes_after_the_delete_starts_nothing(arena: Arena, meeting: str) -> None:
    job = arena.planned(overlap="allow")
    claims = arena.one.claim(arena.a)
    result = arena.meet(
        lambda: arena.one.start(arena.a, claims),
        lambda: delete(arena.two, job),
        meeting,
        before=arena.mine.starts._start,
    )
    assert len(result.started) == (meeting == ROLLBACK)


@every_meeting
def test_a_start_that_comes_after_the_edit_starts_nothing_of_the_old_version(arena: Arena, meeting: str) -> None:
    job = arena.planned(overlap="allow")
    claims = arena.one.claim(arena.a)
    result = arena.meet(
        lambda: arena.one.start(arena.a, claims),
        lambda: edit(arena.two, job, priority=7),
        meeting,
        before=arena.mine.starts._start,
    )
    assert len(result.started) == (meeting == ROLLBACK)
    assert arena.one.state(claims[0].run_id) == ("running" if meeting == ROLLBACK else "planned")


def test_a_start_of_an_old_claim_leaves_the_run_to_the_newer_claim_of_the_same_instance(arena: Arena) -> None:
    """The run follows the edit, and we claim it anew before the start by the old claim comes."""
    job = arena.planned(overlap="allow")
    old = arena.one.claim(arena.a)

    def edit_and_claim() -> None:
        edit(arena.two, job, overlap="skip")
        assert [c.job_version for c in arena.two.claim(arena.a)] == [2]

    result = arena.late(lambda: arena.one.start(arena.a, old), edit_and_claim, before=arena.mine.starts._start)
    assert not result.started
    assert arena.one.state(old[0].run_id) == "claimed"


def test_a_start_that_comes_after_its_job_was_set_aside_starts_nothing(arena: Arena) -> None:
    """Setting aside touches no run: the look at the job is the only guard."""
    job = arena.planned(overlap="allow")
    claims = arena.one.claim(arena.a)
    result = arena.late(
        lambda: arena.one.start(arena.a, claims),
        lambda: break_job(arena.two, arena.term, job),
        before=arena.mine.starts._start,
    )
    assert not result.started


@every_meeting
def test_a_start_that_comes_after_the_reclaim_starts_nothing(arena: Arena, meeting: str) -> None:
    claim = arena.claimed(overlap="allow")
    run_out(arena)
    result = arena.meet(
        lambda: arena.one.start(arena.a, [claim]), lambda: reclaim(arena), meeting, before=arena.mine.starts._start
    )
    assert len(result.started) == (meeting == ROLLBACK)
    assert arena.one.state(claim.run_id) == ("running" if meeting == ROLLBACK else "claimed")


def test_dup_001_a_start_that_comes_after_another_instance_has_fired_the_run_starts_nothing(arena: Arena) -> None:
    """DUP-001: the state may be the same again; claim, instance and attempt are not."""
    claim = arena.claimed(overlap="allow")
    run_out(arena)

    def fired() -> None:
        (again,) = arena.two.claim(arena.b)
        (started,) = arena.two.start(arena.b, [again]).started
        assert arena.two.settle(started, "failed", retry_at=arena.two.now())
        assert len(arena.two.claim(arena.b)) == 1  # claimed again, for its second attempt

    result = arena.late(lambda: arena.one.start(arena.a, [claim]), fired, before=arena.mine.starts._start)
    assert not result.started
    assert arena.one.state(claim.run_id) == "claimed"


@every_meeting
def test_the_reclaim_that_comes_after_the_start_takes_nothing(arena: Arena, meeting: str) -> None:
    claim = arena.claimed(overlap="allow")
    run_out(arena)
    got = arena.meet(
        lambda: arena.one.claim(arena.b),
        lambda: arena.two.start(arena.a, [claim]),
        meeting,
        before=arena.mine.claims._claim,
    )
    assert got == [] or meeting == ROLLBACK
    assert arena.one.state(claim.run_id) in ({"claimed"} if meeting == ROLLBACK else {"running"})


@every_meeting
def test_the_second_of_two_claims_gets_nothing(arena: Arena, meeting: str) -> None:
    """DUP-008: the statement of the loser names the state it saw, and changes no row."""
    arena.planned(overlap="allow")
    got = arena.meet(lambda: arena.one.claim(arena.a), lambda: reclaim(arena), meeting, before=arena.mine.claims._claim)
    assert not got or meeting == ROLLBACK


def test_a_claim_whose_deadline_is_near_is_not_taken_from_its_owner(arena: Arena) -> None:
    """Others look ahead by the prefetch: what is claimed comes into their sight before its deadline has passed."""
    arena.planned(overlap="allow")
    assert len(arena.one.claim(arena.a, slack_us=5 * SECOND)) == 1
    assert arena.two.claim(arena.b) == []


@every_meeting
def test_the_second_of_two_takes_starts_nothing(arena: Arena, meeting: str) -> None:
    arena.planned(overlap="allow")
    got = arena.meet(
        lambda: arena.mine.claims.take(arena.a, ANY, limit=10),
        lambda: arena.theirs.claims.take(arena.b, ANY, limit=10),
        meeting,
        before=arena.mine.claims._take,
    )
    assert not got or meeting == ROLLBACK


@every_meeting
def test_the_second_start_of_one_claim_starts_nothing(arena: Arena, meeting: str) -> None:
    claim = arena.claimed(overlap="allow")
    result = arena.meet(
        lambda: arena.one.start(arena.a, [claim]),
        lambda: arena.two.start(arena.a, [claim]),
        meeting,
        before=arena.mine.starts._start,
    )
    assert len(result.started) == (meeting == ROLLBACK)


@every_meeting
def test_the_second_start_of_a_job_that_must_not_overlap_waits_its_turn(arena: Arena, meeting: str) -> None:
    arena.planned(2, overlap="skip")
    first = arena.one.claim(arena.a, limit=1)
    second = arena.two.claim(arena.b, limit=1)
    result = arena.meet(
        lambda: arena.one.start(arena.a, first),
        lambda: arena.two.start(arena.b, second),
        meeting,
        before=arena.mine.starts._gate,
    )
    assert len(result.started) == (meeting == ROLLBACK)
    assert arena.one.state(first[0].run_id) == ("running" if meeting == ROLLBACK else "claimed")


@every_meeting
def test_a_give_back_that_comes_after_the_reclaim_takes_nothing_away(arena: Arena, meeting: str) -> None:
    claim = arena.claimed(overlap="allow")
    run_out(arena)
    given = arena.meet(
        lambda: arena.mine.claims.give_back(arena.a, [claim.run_id]),
        lambda: reclaim(arena),
        meeting,
        before=arena.mine.claims._give_back,
    )
    assert given == (meeting == ROLLBACK)
    assert arena.one.state(claim.run_id) == ("planned" if meeting == ROLLBACK else "claimed")


@every_meeting
def test_the_give_back_that_comes_after_the_start_leaves_the_run_running(arena: Arena, meeting: str) -> None:
    claim = arena.claimed(overlap="allow")
    given = arena.meet(
        lambda: arena.mine.claims.give_back(arena.a, [claim.run_id]),
        lambda: arena.two.start(arena.a, [claim]),
        meeting,
        before=arena.mine.claims._give_back,
    )
    assert given == (meeting == ROLLBACK)
    assert arena.one.state(claim.run_id) == ("planned" if meeting == ROLLBACK else "running")


@every_meeting
def test_a_start_that_comes_after_the_give_back_of_a_drain_starts_nothing(arena: Arena, meeting: str) -> None:
    claim = arena.claimed(overlap="allow")
    result = arena.meet(
        lambda: arena.one.start(arena.a, [claim]),
        lambda: arena.theirs.claims.give_back(arena.a, [claim.run_id]),
        meeting,
        before=arena.mine.starts._start,
    )
    assert len(result.started) == (meeting == ROLLBACK)


@every_meeting
def test_a_start_that_comes_after_its_owner_was_given_up_starts_nothing(arena: Arena, meeting: str) -> None:
    claim = arena.claimed(overlap="allow")

    def start() -> int:
        return len(arena.one.start(arena.a, [claim]).started)

    arena.one.expire(arena.a)
    started = arena.meet(
        start, lambda: arena.theirs.reaps.expire_members(arena.term), meeting, before=arena.mine.starts._start
    )
    assert started == 0, "the membership had run out, whether or not anybody has said so"
    assert arena.one.state(claim.run_id) == ("claimed" if meeting == ROLLBACK else "planned")


def test_neither_claim_nor_take_nor_start_of_an_instance_whose_membership_ran_out_gets_anything(arena: Arena) -> None:
    arena.planned(3, overlap="allow")
    claims = arena.one.claim(arena.a, limit=1)
    arena.one.expire(arena.a)
    assert not arena.one.claim(arena.a, limit=1)
    assert not arena.mine.claims.take(arena.a, ANY, limit=1)
    assert not arena.one.start(arena.a, claims).started


@pytest.mark.parametrize("meeting", [COMMIT, ROLLBACK])
def test_the_expiry_that_comes_after_a_start_leaves_its_run_to_be_lost(arena: Arena, meeting: str) -> None:
    """The start had seen the membership valid; its run is found as an orphan, and not planned a second time."""
    claim = arena.claimed(overlap="allow")

    def expire() -> list[str]:
        arena.one.execute("UPDATE timeball_instance SET expires_at = 1 WHERE id = :id", id=arena.a)
        return arena.mine.reaps.expire_members(arena.term)

    names = arena.meet(expire, lambda: arena.two.start(arena.a, [claim]), meeting)
    assert names == ["a"]
    assert arena.one.state(claim.run_id) == ("planned" if meeting == ROLLBACK else "running")
    assert len(arena.mine.reaps.orphans(arena.term)) == (meeting != ROLLBACK)


def test_a_start_after_the_last_instant_for_it_starts_nothing(arena: Arena) -> None:
    """Until the leader has said what becomes of a misfired tick, nobody starts it."""
    job = arena.one.job(overlap="allow")
    now = arena.one.now()
    arena.one.plan(arena.term, job, [now], start_by=now + HOUR)
    claims = arena.one.claim(arena.a)
    arena.one.execute("UPDATE timeball_run SET start_by = :at", at=now - 1)
    assert not arena.one.start(arena.a, claims).started
    assert arena.one.state(claims[0].run_id) == "claimed"


def misfire(scene: Scene, arena: Arena) -> int:
    def decide(job: OverdueJob) -> MisfireVerdict:
        return MisfireVerdict(missed=[run_id for run_id, _, _ in job.rows], kept=(), reason="misfire")

    return scene.store.reaps.resolve_misfires(arena.term, decide)


def overdue(arena: Arena) -> Claim:
    """A claimed run that has misfired by the clock: its claim and its last instant have passed."""
    claim = arena.claimed(overlap="allow")
    arena.one.execute("UPDATE timeball_job SET next_due_at = NULL")
    arena.one.execute("UPDATE timeball_run SET start_by = 1, claimable_at = 1")
    return claim


@every_meeting
def test_the_misfire_that_comes_after_the_start_misses_nothing(arena: Arena, meeting: str) -> None:
    """The start was in time: it read the clock before the last instant, and its commit comes after it."""
    claim = overdue(arena)
    start = "UPDATE timeball_run SET state = 'running', claimable_at = NULL WHERE state = 'claimed'"
    changed = arena.meet(
        lambda: misfire(arena.one, arena), lambda: arena.two.execute(start), meeting, before=arena.mine.reaps._miss
    )
    assert changed == (meeting == ROLLBACK)
    assert arena.one.state(claim.run_id) == ("missed" if meeting == ROLLBACK else "running")


@every_meeting
def test_a_start_that_comes_after_the_verdict_on_its_misfire_starts_nothing(arena: Arena, meeting: str) -> None:
    claim = overdue(arena)
    result = arena.meet(
        lambda: arena.one.start(arena.a, [claim]),
        lambda: misfire(arena.two, arena),
        meeting,
        before=arena.mine.starts._start,
    )
    assert not result.started
    assert arena.one.state(claim.run_id) == ("claimed" if meeting == ROLLBACK else "missed")
