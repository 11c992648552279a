"""Two stores on one database, and a scene for each side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import HostClock
from tests.races.rivals import Rivals
from tests.store.scene import HOUR, Scene
from timeball.model.cluster import Term
from timeball.model.job import Job
from timeball.store import Store, open_store
from timeball.store.claims import Claim, Started


class Arena(Rivals):
    """A leader and two members; `one` acts on the loser's store, `two` on the winner's."""

    def __init__(self, mine: Store, theirs: Store, host_clock: HostClock) -> None:
        super().__init__(mine, theirs)
        self.one, self.two = Scene(mine, host_clock), Scene(theirs, host_clock)
        self.two.definitions = self.one.definitions
        self.a, self.b = self.one.join("a"), self.two.join("b")
        self.boss = self.one.join("boss", lifetime_us=9 * HOUR)
        self.term: Term = self.one.lead(self.boss)

    def planned(self, count: int = 1, **policies: object) -> Job:
        """A job with runs that are due now."""
        job = self.one.job(**policies)
        now = self.one.now()
        self.one.plan(self.term, job, [now - count + 1 + n for n in range(count)])
        return job

    def claimed(self, **policies: object) -> Claim:
        """A run of a new job, claimed by `a`."""
        self.planned(**policies)
        return self.one.claim(self.a)[0]

    def running(self, **policies: object) -> Started:
        """A run of a new job, running on `a`."""
        return self.one.start(self.a, [self.claimed(**policies)]).started[0]

    def orphaned(self, **policies: object) -> Started:
        """A run that is running by the ledger on `a`, which has been given up."""
        started = self.running(**policies)
        self.one.expire(self.a)
        assert self.one.store.reaps.expire_members(self.term) == ["a"]
        return started


@pytest.fixture
def arena(store: Store, database_url: str, host_clock: HostClock) -> Iterator[Arena]:
    theirs = open_store(database_url, host_clock=host_clock)
    yield Arena(store, theirs, host_clock)
    theirs.close()
