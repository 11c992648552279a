"""After a time without the database nobody is given up before he could send a heartbeat (rows DUP-013, ORPH-008)."""

from __future__ import annotations

from sqlalchemy import event

from tests.store.scene import HOUR, SECOND, Scene
from timeball.clock import ClusterClock, Sample
from timeball.engine.lease import LeaseKeeper
from timeball.engine.member import Member
from timeball.engine.reaper import Reaper
from timeball.engine.rebooter import Rebooter
from timeball.events.bus import Bus
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.database import sql


class Leader:
    """A member, its lease and its reaper, on a monotonic clock that the test moves."""

    def __init__(self, store: Store) -> None:
        self.monotonic_us = 1
        settings, bus = Settings(), Bus()
        clock = ClusterClock(lambda: self.monotonic_us)
        clock.adopt(Sample(sent_us=0, received_us=0, database_us=store.members.clock()))
        self.member = Member(store, clock, settings, lambda: ("function:f",), bus)
        self.lease = LeaseKeeper(store, clock, settings, self.member, bus)
        rebooter = Rebooter(store, bus, lambda _: "function:f", lambda: False)
        self.reaper = Reaper(store, clock, settings, self.lease, bus, lambda: False, rebooter)
        self.member.step()
        self.lease.step()
        assert self.lease.term() is not None


def states(store: Store) -> dict[str, str]:
    with store.database.snapshot() as tx:
        return {row[0]: row[1] for row in tx.all(sql("SELECT name, state FROM timeball_instance"))}


def test_a_leader_that_could_not_ask_gives_nobody_up_until_it_has_asked_and_all_had_time(store: Store) -> None:
    leader, scene = Leader(store), Scene(store)
    silent = scene.join("silent")
    scene.expire(silent)
    leader.monotonic_us += 8 * SECOND  # the lease is still trusted; the database was away
    assert leader.lease.term() is not None
    leader.reaper.step()
    assert states(store)["silent"] == "active"
    leader.lease.step()
    leader.reaper.step()
    assert states(store)["silent"] == "active"


def test_without_an_outage_a_silent_member_is_given_up_at_once(store: Store) -> None:
    leader, scene = Leader(store), Scene(store)
    scene.expire(scene.join("silent"))
    leader.monotonic_us += 2 * SECOND
    leader.lease.step()
    leader.reaper.step()
    assert states(store)["silent"] == "expired"


def test_a_lease_that_lay_vacant_shows_an_outage_and_a_freed_one_does_not(store: Store) -> None:
    scene = Scene(store)
    first, second = scene.join("first"), scene.join("second")
    silent = scene.join("silent")
    term = scene.lead(first)
    scene.execute("UPDATE timeball_lease SET expires_at = expires_at - :by", by=HOUR + 2 * SECOND)
    scene.expire(silent)
    held = store.leases.hold("default", second, lifetime_us=HOUR, grace_us=HOUR)
    assert held.term is not None
    assert store.reaps.expire_members(held.term) == []
    scene.expire(silent)
    store.leases.release(held.term, actor="second")
    again = store.leases.hold("default", first, lifetime_us=HOUR, grace_us=HOUR)
    assert again.term is not None
    assert again.term.epoch == term.epoch + 2
    assert store.reaps.expire_members(again.term) == ["silent"]


def test_the_time_to_connect_is_no_part_of_a_look_at_the_clock(store: Store) -> None:
    """Else work begins before its tick after every reconnect: half of that time is taken for the answer's way back."""
    monotonic = [1_000_000]

    def slowly(*_: object) -> None:
        monotonic[0] += 900_000

    store.close()
    event.listen(store.database._work, "connect", slowly)
    sample = store.members.sample(lambda: monotonic[0])
    assert monotonic[0] == 1_900_000
    assert sample.error_us == 0
