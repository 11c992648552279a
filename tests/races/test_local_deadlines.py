"""An instance that hears nothing from the database ends its own rights before the database gives them to others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import HostClock
from tests.store.scene import HOUR, SECOND
from tests.store.stepped import Bench
from timeball.clock import ClusterClock, Sample, seconds_to_us
from timeball.engine.lease import LeaseKeeper
from timeball.engine.member import Member
from timeball.events.bus import Bus
from timeball.settings import Settings
from timeball.store import Store


@pytest.fixture
def bench(with_schema: None, database_url: str, host_clock: HostClock) -> Iterator[Bench]:
    made = Bench(database_url, host_clock)
    yield made
    made.close()


class Instance:
    """A member and its lease, on a monotonic clock that the test moves; each question takes `trip_us`."""

    def __init__(self, store: Store) -> None:
        self.mono = 1_000 * SECOND
        self.settings = Settings()
        clock = ClusterClock(lambda: self.mono)
        clock.adopt(Sample(database_us=store.members.clock(), sent_us=self.mono, received_us=self.mono))
        self.member = Member(store, clock, self.settings, lambda: ("function:f",), Bus())
        self.lease = LeaseKeeper(store, clock, self.settings, self.member, Bus())


def slow(monkeypatch: pytest.MonkeyPatch, verbs: object, name: str, instance: Instance, trip_us: int) -> None:
    """Let a verb's answer arrive later than its question was sent."""
    verb = getattr(verbs, name)

    def answered_late(*args: object, **options: object) -> object:
        answer = verb(*args, **options)
        instance.mono += trip_us
        return answer

    monkeypatch.setattr(verbs, name, answered_late)


def test_a_leader_that_hears_nothing_stops_leading_before_its_lease_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Instance(store)
    one.member.step()
    trip = SECOND
    slow(monkeypatch, store.leases, "hold", one, trip)
    one.lease.step()
    lifetime = seconds_to_us(one.settings.lease_seconds - one.settings.lease_margin_seconds)
    one.mono += lifetime - trip - 1
    assert one.lease.term() is not None
    one.mono += 1
    assert one.lease.term() is None, "counted from when the renewal was sent, less the margin"
    assert store.leases.read("default").valid, "the database still lets nobody else lead"


def test_a_member_that_hears_nothing_believes_in_itself_no_longer_than_the_others_do(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Instance(store)
    trip = SECOND
    one.member.step()
    slow(monkeypatch, store.members, "heartbeat", one, trip)
    one.member.step()
    lifetime = seconds_to_us(one.settings.membership_seconds - one.settings.membership_margin_seconds)
    one.mono += lifetime - trip - 1
    assert one.member.trusted
    one.mono += 1
    assert not one.member.trusted


def test_an_instance_that_does_not_trust_its_membership_claims_and_starts_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench.instance("one")
    bench.jobs.create("j", bench.define("* * * * * *"))
    bench.round(one)
    bench.move_clock(2 * SECOND)
    one.member.step()
    in_hand = len(one.held)
    with monkeypatch.context() as deaf:
        deaf.setattr(one.member, "_trusted_until", 0)
        one.claimer.step()
        assert len(one.held) == in_hand
    one.claimer.step()
    assert len(one.held) > in_hand
    claims = one.held.pop_until(bench.now() + HOUR, 10)
    assert claims
    monkeypatch.setattr(one.member, "_trusted_until", 0)
    one.starter._start(claims, bench.now())
    assert one.runner.load() == 0
    assert "running" not in {run.state for run in bench.runs("j")}


def test_a_claim_is_not_started_after_its_deadline_though_nobody_has_taken_it_yet(bench: Bench) -> None:
    one = bench.instance("one")
    bench.jobs.create("j", bench.define("* * * * * *"))
    bench.round(one)
    bench.move_clock(2 * SECOND)
    one.member.step()
    one.claimer.step()
    (claim, *_) = one.held.pop_until(bench.now() + HOUR, 10)
    one.starter._start([claim], claim.deadline_at)
    assert bench.store.runs.get("default", claim.run_id).state == "claimed"
    one.starter._start([claim], claim.deadline_at - 1)
    assert bench.store.runs.get("default", claim.run_id).state in {"running", "succeeded"}


def test_the_answer_of_a_stop_waits_for_a_start_that_was_committed_early(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.set_clock("2030-06-05T12:00:55Z")
    one = bench.instance("one", start_lead_max_seconds=1.0)
    bench.jobs.create("j", bench.define("* * * * *", "long", overlap="allow"))
    bench.round(one)
    bench.set_clock("2030-06-05T12:00:59.200Z")
    one.member.step()
    one.claimer.step()
    one.starter._start(one.held.pop_until(bench.now() + HOUR, 10), bench.now())
    (started,) = (run for run in bench.runs("j") if run.state == "running")
    assert started.started_at is not None
    waited: list[int] = []
    monkeypatch.setattr("timeball.service.jobs.pause_us", waited.append)
    answer = bench.jobs.stop("j")
    assert answer.at == started.started_at
    assert len(waited) == 1
    assert 0 < waited[0] <= SECOND
    bench.release.set()
