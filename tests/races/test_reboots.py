"""Instances that join at one moment, against each other and against the leader who judges the start of the cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import HostClock
from tests.store.stepped import Bench
from timeball.errors import ClaimLost
from timeball.service.audit import audit
from timeball.store.database import sql

SECOND = 1_000_000
JOINS = 6
_OPEN = sql("SELECT opened_at FROM timeball_reboot")


@pytest.fixture
def bench(with_schema: None, database_url: str, host_clock: HostClock) -> Iterator[Bench]:
    made = Bench(database_url, host_clock)
    yield made
    made.close()


def test_of_those_that_join_at_one_moment_one_asks_and_the_others_are_younger(bench: Bench) -> None:
    bench.jobs.create("boot", bench.define("@reboot"))
    together = threading.Barrier(JOINS)

    def join(number: int) -> object:
        together.wait(30)
        return bench.instance(f"i{number}")

    with ThreadPoolExecutor(JOINS) as pool:
        engines = list(pool.map(join, range(JOINS)))
    rows = bench.store.members.live("default")
    with bench.store.database.snapshot() as tx:
        (opened_at,) = tx.one(_OPEN) or (0,)
    assert all(row.started_at >= opened_at for row in rows), "an older one would look like a sign of life"
    for _ in range(4):
        bench.round(*engines)  # pyright: ignore[reportArgumentType]
        bench.move_clock(SECOND)
    assert len(bench.calls) == 1
    assert audit(bench.store, "default").violations == []


def test_a_leader_judges_nothing_once_its_term_has_ended(bench: Bench) -> None:
    bench.jobs.create("boot", bench.define("@reboot"))
    one = bench.instance("one")
    one.lease.step()
    term = one.lease.term()
    assert term is not None
    two = bench.instance("two")
    bench.hand_over(one, two)
    with pytest.raises(ClaimLost):
        one.reaper._rebooter.run(term)
    assert bench.runs("boot") == []
    for _ in range(3):
        bench.round(one, two)
    assert len(bench.calls) == 1
