"""Leadership: taking, renewing, trusting and giving up the lease. Plans nothing itself.

The holder trusts its lease until the monotonic time before its last successful renewal was sent, plus the lifetime,
less a margin: before the database lets anybody else take it. A renewal that failed is not a lost lease; a lease that
ran out is. Every error means: not renewed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from timeball.clock import ClusterClock, seconds_to_us
from timeball.engine.member import Member
from timeball.errors import LeaseRowMissing
from timeball.events.bus import Bus
from timeball.events.facts import LeaseEnded, LeaseTaken
from timeball.model.cluster import Lease, Term
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.leases import same_lease

TAKEOVER_DELAY_SECONDS = 0.05
WATCHED_LIFETIMES = 6
"""How long a lease that ends too far ahead is watched, in lifetimes: its holder may have a longer one than we."""


class LeaseKeeper:
    """This instance's view of the lease."""

    def __init__(self, store: Store, clock: ClusterClock, settings: Settings, member: Member, bus: Bus) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._member = member
        self._bus = bus
        self._lifetime_us = seconds_to_us(settings.lease_seconds)
        self._margin_us = seconds_to_us(settings.lease_margin_seconds)
        self._lock = threading.Lock()
        self._term: Term | None = None
        self._trusted_until = 0
        self._resigned = False
        self._reached_at: int | None = None
        self._aside_until = 0
        self._far: tuple[Lease, int] | None = None
        self.failing_since: Callable[[], int | None] = lambda: None
        """Since when a leader's duty fails here (monotonic microseconds), or None."""

    def term(self) -> Term | None:
        """The proof of our leadership, while we may trust it; asked before every plan, not only at a renewal."""
        term = self._term
        if term is None or term.holder != self._member.id or self._clock.monotonic() >= self._trusted_until:
            return None
        return term if self._member.refusal is None else None

    def step(self) -> float:
        """Renew, take or watch the lease. Returns seconds until the next try."""
        with self._lock:
            if self._resigned or not self._member.trusted:
                self._end("membership is in doubt" if self._member.refusal is None else "the schema is refused")
                return self._settings.lease_renew_seconds / 4
            left_us = self._aside_until - self._clock.monotonic()
            if left_us > 0:
                return left_us / 1e6
            if self._fails():
                return self._step_aside()
            return self._hold()

    def resign(self, reason: str = "stepped down") -> None:
        """Free the lease at once and do not take it again."""
        with self._lock:
            self._resigned = True
            term = self._term
            self._end(reason)
            if term is not None:
                self._store.leases.release(term, actor=self._member.name)

    def reaching(self) -> bool:
        """Whether the database has answered about the lease within two renewal intervals.

        After a longer silence nobody may be given up before the members had time to send a heartbeat.
        """
        silence = seconds_to_us(2 * self._settings.lease_renew_seconds)
        return self._reached_at is not None and self._clock.monotonic() - self._reached_at <= silence

    def _fails(self) -> bool:
        """Whether we lead and have not done a leader's work for a renewal interval."""
        since = self.failing_since()
        if self._term is None or since is None:
            return False
        return self._clock.monotonic() - since > seconds_to_us(self._settings.lease_renew_seconds)

    def _step_aside(self) -> float:
        """Give the lease up for one lifetime: a leader that cannot plan must not keep others from it."""
        term = self._term
        assert term is not None
        self._end("a leader's duty fails here; another instance may lead")
        self._aside_until = self._clock.monotonic() + self._lifetime_us
        self._store.leases.release(term, actor=self._member.name)
        return self._lifetime_us / 1e6

    def _hold(self) -> float:
        sent = self._clock.monotonic()
        try:
            held = self._store.leases.hold(
                self._settings.namespace,
                self._member.id,
                lifetime_us=self._lifetime_us,
                grace_us=seconds_to_us(self._settings.membership_seconds),
                outage=self._reached_at is not None and not self.reaching(),
                dead=self._watched_out(),
            )
        except LeaseRowMissing:
            self._end("the lease row is missing")
            raise
        self._reached_at = sent
        if held.term is None:
            self._end("another instance holds the lease")
            self._watch_far(held.lease)
            return self._watch(held.lease.expires_at - held.lease.read_at)
        self._far = None
        self._trusted_until = sent + self._lifetime_us - self._margin_us
        if self._term != held.term:
            self._term = held.term
            self._bus.publish(LeaseTaken(name=self._member.name, epoch=held.term.epoch))
        return self._settings.lease_renew_seconds

    def _watch_far(self, lease: Lease) -> None:
        """Remember a lease that ends later than any can: the clock went back, and its holder may be gone."""
        far = lease.expires_at - lease.read_at > 2 * self._lifetime_us
        if not far:
            self._far = None
        elif self._far is None or not same_lease(self._far[0], lease):
            self._far = lease, self._clock.monotonic()

    def _watched_out(self) -> Lease | None:
        """That lease, when it was watched long enough and its holder has not renewed it."""
        if self._far is None or self._clock.monotonic() - self._far[1] < WATCHED_LIFETIMES * self._lifetime_us:
            return None
        return self._far[0]

    def _watch(self, left_us: int) -> float:
        """Look again when the other's lease runs out, at the latest after one renewal interval."""
        return min(self._settings.lease_renew_seconds, max(0, left_us) / 1e6 + TAKEOVER_DELAY_SECONDS)

    def _end(self, reason: str) -> None:
        if self._term is not None:
            self._bus.publish(LeaseEnded(name=self._member.name, epoch=self._term.epoch, reason=reason))
        self._term = None
        self._trusted_until = 0
