"""An instance that is cut off ends what others may run again, in time, and leaves the rest alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import HostClock
from tests.store.scene import SECOND
from tests.store.stepped import Bench, eventually
from timeball.clock import ClusterClock, monotonic_us
from timeball.engine.engine import Engine
from timeball.errors import Unavailable
from timeball.settings import Settings
from timeball.store.runs import StoredRun

WEDNESDAY = "2030-06-05T12:00:30Z"


@pytest.fixture
def bench(with_schema: None, database_url: str, host_clock: HostClock) -> Iterator[Bench]:
    made = Bench(database_url, host_clock)
    yield made
    made.close()


class Later:
    """A monotonic clock that the test moves; the database's clock goes with it."""

    def __init__(self, bench: Bench) -> None:
        self.moved_us = 0
        self._bench = bench

    def __call__(self) -> int:
        return monotonic_us() + self.moved_us

    def move(self, seconds: float) -> None:
        self.moved_us += int(seconds * SECOND)
        self._bench.move_clock(int(seconds * SECOND))


def begin(bench: Bench, owner: Engine, **policies: Any) -> int:
    """A run of a long function that lives on the owner."""
    bench.jobs.create("job", bench.define("none", "long", **policies))
    run_id = bench.jobs.trigger("job")
    owner.lease.step()
    owner.claimer.step()
    owner.starter.step()
    owner.runner.step()
    assert bench.begun.acquire(timeout=10)
    return run_id


def owner_of(bench: Bench, later: Later, name: str = "owner") -> Engine:
    engine = bench.instance(name)
    clock = ClusterClock(later)
    for part in (engine.member, engine.isolation, engine.lease, engine.runner, engine.settler, engine.starter):
        part._clock = clock  # type: ignore[attr-defined]
    engine.clock = clock
    engine.member.step()
    return engine


def run_of(bench: Bench, run_id: int) -> StoredRun:
    return bench.store.runs.get("default", run_id)


@pytest.mark.parametrize(
    ("policies", "ends"),
    [
        ({"on_lost": "rerun"}, True),
        ({"on_lost": "fail"}, False),
        ({"on_lost": "hold"}, False),
        ({"on_lost": "fail", "on_isolation": "stop"}, True),
        ({"on_lost": "rerun", "on_isolation": "keep"}, False),
    ],
)
def test_work_that_may_not_live_beside_another_attempt_ends_before_the_membership(
    bench: Bench, policies: dict[str, Any], ends: bool
) -> None:
    bench.set_clock(WEDNESDAY)
    later = Later(bench)
    owner = owner_of(bench, later)
    run_id = begin(bench, owner, **policies)
    later.move(6.9)  # the membership of 10 s, less the margin of 1 s and the grace of 2 s
    assert owner.isolation.step() < 0.2
    assert owner.runner.load() == 1
    later.move(0.11)
    owner.isolation.step()
    if ends:
        eventually(lambda: owner.runner.load() == 0)
        assert owner.member.trusted
        assert later() < owner.member.trusted_until
        return
    assert owner.runner.load() == 1
    bench.release.set()
    eventually(lambda: owner.runner.load() == 0)
    owner.settler.step()
    assert (run_of(bench, run_id).state, run_of(bench, run_id).result) == ("succeeded", '"whole"')


def isolated(bench: Bench, later: Later, owner: Engine) -> None:
    """Cut off until its work has ended."""
    later.move(8)
    owner.isolation.step()
    eventually(lambda: owner.runner.load() == 0)


def test_isolated_work_of_a_job_that_reruns_runs_again_though_nobody_declared_it_lost(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    later = Later(bench)
    owner = owner_of(bench, later)
    run_id = begin(bench, owner, on_lost="rerun")
    isolated(bench, later, owner)
    owner.member.step()
    owner.settler.step()
    run = run_of(bench, run_id)
    assert (run.state, run.attempt) == ("planned", 2)
    first = bench.store.runs.attempts(run_id)[0]
    assert (first.state, first.reason) == ("cancelled", "isolated")
    assert "isolated" in (first.error or "")
    owner.claimer.step()
    owner.starter.step()
    assert bench.begun.acquire(timeout=10)
    assert not bench.two_lived


def test_isolated_work_of_a_job_that_does_not_rerun_is_cancelled_and_says_why(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    later = Later(bench)
    owner = owner_of(bench, later)
    run_id = begin(bench, owner, on_isolation="stop")
    isolated(bench, later, owner)
    owner.settler.step()
    run = run_of(bench, run_id)
    assert (run.state, run.reason, run.attempt) == ("cancelled", "isolated", 1)


def test_what_was_isolated_is_refused_once_the_run_was_lost_and_begun_elsewhere(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    later = Later(bench)
    owner, other = owner_of(bench, later), bench.instance("other")
    run_id = begin(bench, owner, on_lost="rerun")
    later.move(8)
    owner.isolation.step()
    eventually(lambda: owner.runner.load() == 0)
    for _ in range(6):
        bench.move_clock(5 * SECOND)
        bench.round(other)
    assert bench.begun.acquire(timeout=10)
    assert (run_of(bench, run_id).state, run_of(bench, run_id).attempt) == ("running", 2)
    owner.settler.step()
    assert (run_of(bench, run_id).state, run_of(bench, run_id).attempt) == ("running", 2)
    assert not bench.two_lived


def test_a_person_who_cancelled_first_is_not_forgotten_and_nothing_runs_again(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    later = Later(bench)
    owner = owner_of(bench, later)
    run_id = begin(bench, owner, on_lost="rerun")
    owner.runner.cancel(run_id, "by anna")
    isolated(bench, later, owner)
    owner.settler.step()
    run = run_of(bench, run_id)
    assert (run.state, run.reason, run.error) == ("cancelled", "cancelled", "by anna")


def test_who_wakes_under_a_new_id_has_ended_the_work_of_the_old_one_before_he_joins(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    owner, other = bench.instance("owner"), bench.instance("other")
    begin(bench, owner, on_lost="rerun")
    old = owner.member.id
    for _ in range(4):
        bench.move_clock(5 * SECOND)
        for name in ("member", "lease", "reaper"):
            getattr(other, name).step()
    assert owner.member.trusted  # its own clock has seen nothing: only the answer to its heartbeat tells
    owner.member.step()
    eventually(lambda: owner.runner.load() == 0)
    owner.member.step()
    assert owner.member.id != old
    assert owner.member.trusted


def test_work_of_an_older_membership_ends_though_the_present_one_is_trusted(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    owner = bench.instance("owner")
    begin(bench, owner, on_lost="rerun")
    owner.member._instance = owner.member._fresh()
    assert owner.member.trusted
    owner.isolation.step()
    eventually(lambda: owner.runner.load() == 0)


def test_a_start_that_was_answered_after_the_membership_had_ended_begins_nothing(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    later = Later(bench)
    owner = owner_of(bench, later)
    bench.jobs.create("job", bench.define("none", "note"))
    run_id = bench.jobs.trigger("job")
    owner.lease.step()
    owner.claimer.step()
    start = owner._store.starts.start

    def slow(*args: Any, **named: Any) -> Any:
        result = start(*args, **named)
        later.moved_us += 20 * SECOND
        return result

    owner._store.starts.start = slow  # type: ignore[method-assign]
    owner.starter.step()
    assert owner.runner.load() == 0
    assert not bench.calls
    owner.member.step()
    owner.settler.step()
    run = run_of(bench, run_id)
    assert (run.state, run.attempt) == ("planned", 2)
    assert bench.store.runs.attempts(run_id)[0].reason == "not-begun"


def waiting(bench: Bench, owner: Engine, **policies: Any) -> int:
    """A run whose start is committed, and whose instant lies five seconds ahead."""
    bench.jobs.create("job", bench.define("none", "note", **policies))
    run_id = bench.jobs.trigger("job")
    owner.lease.step()
    owner.claimer.step()
    accept = owner.runner.accept

    def early(started: Any, known: Any, *, owner: str) -> None:
        accept([s._replace(ready_at=s.ready_at + 5 * SECOND) for s in started], known, owner=owner)

    owner.runner.accept = early  # type: ignore[method-assign]
    owner.starter.step()
    assert owner.runner.load() == 1
    return run_id


def test_what_was_asked_to_end_while_it_waited_for_its_instant_does_not_begin_in_a_renewed_membership(
    bench: Bench,
) -> None:
    """Seed 166 of the simulation: it began, and when the instance was cut off once more nobody told it."""
    bench.set_clock(WEDNESDAY)
    later = Later(bench)
    owner = owner_of(bench, later)
    run_id = waiting(bench, owner, on_lost="rerun")
    later.moved_us += 9 * SECOND
    owner.isolation.step()
    owner.member.step()
    assert owner.member.trusted
    owner.runner.step()
    assert (owner.runner.load(), bench.calls) == (0, [])
    owner.settler.step()
    assert (run_of(bench, run_id).state, run_of(bench, run_id).attempt) == ("planned", 2)
    assert bench.store.runs.attempts(run_id)[0].reason == "not-begun"


def test_a_run_that_a_person_cancels_while_it_waits_for_its_instant_does_not_begin(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    later = Later(bench)
    owner = owner_of(bench, later)
    run_id = waiting(bench, owner, attempts_max=3)
    assert bench.store.rulings.cancel("default", run_id, actor="anna").owner == "owner"
    owner.canceller.step()
    later.move(6)
    owner.runner.step()
    owner.settler.step()
    run = run_of(bench, run_id)
    assert (run.state, run.reason, run.error) == ("cancelled", "cancelled", "cancelled by anna; it had not begun")
    assert not bench.calls


def test_a_wish_that_comes_while_work_is_handed_over_is_told_once_more(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    owner = bench.instance("owner")
    bench.jobs.create("job", bench.define("none", "long"))
    run_id = bench.jobs.trigger("job")
    owner.lease.step()
    owner.claimer.step()
    submit = owner.runner._registry.submit

    def slow(works: Any, report: Any) -> None:
        bench.store.rulings.cancel("default", run_id, actor="anna")
        owner.canceller.step()  # the executors do not know the run yet
        submit(works, report)

    owner.runner._registry.submit = slow  # type: ignore[method-assign]
    owner.starter.step()
    eventually(lambda: owner.runner.load() == 0)


def test_what_a_person_has_asked_to_end_is_ended_by_the_end_of_the_membership_all_the_same(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    later = Later(bench)
    owner = owner_of(bench, later)
    run_id = begin(bench, owner, on_lost="rerun")
    asked: list[tuple[int, float | None]] = []
    owner.runner._registry.cancel = (  # type: ignore[method-assign]
        lambda run_id, _, *, grace_seconds=None: asked.append((run_id, grace_seconds)) or True
    )
    owner.runner.cancel(run_id, "cancelled by anna")
    later.moved_us += int(8.5 * SECOND)
    owner.isolation.step()
    owner.isolation.step()
    assert [run for run, _ in asked] == [run_id, run_id]
    assert asked[0][1] is None
    assert 0 < (asked[1][1] or 0) < 2


def test_work_that_waits_for_its_instant_does_not_begin_after_a_long_sleep(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    later = Later(bench)
    owner = owner_of(bench, later)
    waiting(bench, owner)
    later.moved_us += 60 * SECOND
    owner.runner.step()
    assert owner.runner.load() == 0
    assert not bench.calls


def test_the_database_away_for_longer_than_a_membership_leaves_no_work_of_a_job_that_reruns(bench: Bench) -> None:
    bench.set_clock(WEDNESDAY)
    later = Later(bench)
    owner = owner_of(bench, later)
    run_id = begin(bench, owner, on_lost="rerun")
    with bench.refusing():
        with pytest.raises(Unavailable):
            owner.member.step()
        later.moved_us += 9 * SECOND
        owner.isolation.step()
        eventually(lambda: owner.runner.load() == 0)
        with pytest.raises(Unavailable):
            owner.settler.step()
        assert owner.health().unsettled == 1
        assert owner.health().problems
    bench.move_clock(9 * SECOND)
    owner.member.step()
    owner.settler.step()
    assert (run_of(bench, run_id).state, run_of(bench, run_id).attempt) == ("planned", 2)


def test_a_definition_of_before_stays_as_it_was_stored_and_is_not_edited(bench: Bench) -> None:
    definition = bench.define("0 9 * * *", "note")
    assert "on_isolation" not in definition.to_json()
    bench.jobs.declare("job", definition)
    bench.jobs.declare("job", definition)
    assert bench.jobs.apply({"job": (definition, True)}, prune=False, dry_run=False)[0].action == "unchanged"
    assert bench.jobs.get("job").version == 1
    asked = dataclasses.replace(definition, on_isolation="stop")
    bench.jobs.declare("job", asked)
    assert bench.jobs.get("job").version == 2
    assert bench.jobs.get("job").definition.on_isolation == "stop"


def test_a_grace_that_does_not_fit_into_the_membership_is_refused() -> None:
    assert Settings(isolation_grace_seconds=4.0).isolation_seconds == 4.0
    with pytest.raises(Exception, match="two heartbeats"):
        Settings(isolation_grace_seconds=4.1)
    assert Settings().isolation_seconds == 2.0
    assert 0 < Settings(membership_seconds=3, heartbeat_seconds=1).isolation_seconds < 0.3
