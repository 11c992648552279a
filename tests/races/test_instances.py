"""Rivals over one row, step by step: each test is named after the one who must not win."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import HostClock
from tests.store.scene import HOUR, SECOND, Scene
from tests.store.stepped import Bench
from timeball.errors import Duplicate, Unavailable
from timeball.service.audit import audit
from timeball.store import Store


@pytest.fixture
def bench(with_schema: None, database_url: str, host_clock: HostClock) -> Iterator[Bench]:
    made = Bench(database_url, host_clock)
    yield made
    made.close()


def test_a_claim_of_an_old_version_starts_nothing_though_its_run_was_claimed_anew(bench: Bench) -> None:
    """The run followed its job to version 2, which must not overlap; version 1 might."""
    bench.set_clock("2030-06-05T12:00:55Z")
    one = bench.instance("one")
    bench.jobs.create("j", bench.define("* * * * *", "long", overlap="allow"))
    bench.round(one)
    bench.set_clock("2030-06-05T12:00:59.500Z")
    one.claimer.step()
    old = one.held.pop_until(bench.now() + HOUR, 10)
    assert [claim.job_version for claim in old] == [1]
    bench.set_clock("2030-06-05T12:01:00.050Z")
    bench.jobs.edit("j", bench.define("* * * * *", "long", overlap="skip"))
    bench.jobs.trigger("j")
    one.claimer.step()  # takes the run again, by its new version
    one.starter._start(old, bench.now())
    assert one.runner.load() == 0
    bench.round(one)
    assert one.runner.load() == 1, "the newer claims start, one of them after the other"
    assert sorted(run.state for run in bench.runs("j") if run.state != "planned") == ["claimed", "running"]
    bench.release.set()


def test_a_start_that_fails_after_its_commit_for_any_reason_is_taken_up_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench.instance("one")
    bench.jobs.create("j", bench.define("* * * * * *"))
    bench.round(one)
    bench.move_clock(2 * SECOND)
    one.member.step()
    one.claimer.step()
    with monkeypatch.context() as broken, pytest.raises(KeyError):
        broken.setattr(one.runner, "accept", lambda *_, **__: {}[0])
        one.starter.step()
    assert one.runner.load() == 0
    assert "running" in {run.state for run in bench.runs("j")}
    one.starter.step()
    bench.round(one)
    assert "running" not in {run.state for run in bench.runs("j")}
    assert len(bench.calls) == len({due for _, due in bench.calls}) > 0


def test_an_edit_does_not_plan_a_tick_again_that_was_skipped_a_moment_before_it(bench: Bench) -> None:
    bench.set_clock("2030-06-05T12:00:55Z")
    one = bench.instance("one", start_lead_max_seconds=1.0)
    bench.jobs.create("j", bench.define("* * * * *", "long", overlap="skip"))
    bench.jobs.trigger("j")
    bench.round(one)
    bench.set_clock("2030-06-05T12:00:59.200Z")
    one.claimer.step()
    one.starter._start(one.held.pop_until(bench.now() + HOUR, 10), bench.now())
    due = [run.due_at for run in bench.runs("j") if run.state == "skipped"]
    assert len(due) == 1
    assert due[0] > bench.now()
    bench.jobs.edit("j", bench.define("*/2 * * * *", overlap="skip"))
    bench.release.set()
    bench.set_clock("2030-06-05T12:02:01Z")
    bench.round(one)
    report = audit(bench.store, "default")
    assert report.clean, report.to_json()


def test_no_skip_is_committed_before_the_lead_of_a_start(store: Store) -> None:
    scene = Scene(store)
    me = scene.join("a")
    job = scene.job(overlap="skip")
    now = scene.now()
    scene.plan(scene.lead(me), job, [now - SECOND, now + 5 * SECOND])
    first, second = sorted(scene.claim(me), key=lambda claim: claim.ready_at)
    scene.start(me, [first])
    result = store.starts.start(me, [second], scene.definitions, lead_us=SECOND)
    assert result.skipped == {}
    assert scene.state(second.run_id) == "claimed"
    assert scene.start(me, [second]).skipped.keys() == {second.run_id}


def test_an_instance_whose_join_was_never_answered_joins_under_another_id_when_that_one_has_expired(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, other = bench.instance("leader"), bench.instance("other")
    other.member.leave()
    bench.round(leader)
    members = type(other.member._store.members)
    join = members.join

    def unanswered(self: object, *args: object, **options: object) -> None:
        join(self, *args, **options)  # type: ignore[arg-type]
        raise Unavailable("the answer of the commit is lost")

    other.member._instance = other.member._fresh()
    unheard = other.member.id
    with monkeypatch.context() as cut, pytest.raises(Unavailable):
        cut.setattr(members, "join", unanswered)
        other.member.step()
    for _ in range(12):
        bench.move_clock(5 * SECOND)
        for loop in (leader.member, leader.lease, leader.reaper):
            loop.step()
    with pytest.raises(Duplicate):
        bench.store.members.join(other.member._instance, lifetime_us=SECOND)
    other.member.step()
    assert other.member.joined
    assert other.member.id != unheard
