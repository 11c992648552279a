"""Retention: the leader removes old runs, events and instances in small batches."""

from __future__ import annotations

from timeball.clock import ClusterClock, seconds_to_us
from timeball.engine.lease import LeaseKeeper
from timeball.settings import Settings
from timeball.store import Store

DAY_SECONDS = 86_400
COUNT_GRACE_SECONDS = 3600
"""Runs younger than this are never removed for their number: a tick's key outlives any catch-up of it."""
EVENT_BATCH_MAX = 1000


class Janitor:
    """A walk over the old part of the ledger, one batch a step."""

    def __init__(self, store: Store, clock: ClusterClock, settings: Settings, lease: LeaseKeeper) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._lease = lease
        self._after_run = 0
        self._after_job = 0
        self._runs_done = False

    def step(self) -> float:
        """One batch, if we lead. Returns seconds until the next; 0 when there is more."""
        term = self._lease.term()
        pause = self._settings.janitor_interval_seconds
        if term is None:
            return pause
        now = self._clock.now()
        purges = self._store.purges
        if not self._runs_done:
            before = now - seconds_to_us(self._settings.retention_days * DAY_SECONDS)
            after = purges.runs_by_age(term, before=before, after_id=self._after_run)
            self._after_run, self._runs_done = after or 0, after is None
            return 0
        after_job = purges.runs_by_count(
            term,
            keep=self._settings.retention_runs_per_job,
            until=now - seconds_to_us(COUNT_GRACE_SECONDS),
            after_job=self._after_job,
        )
        self._after_job = after_job or 0
        if after_job is not None:
            return 0
        self._runs_done = False
        before = now - seconds_to_us(self._settings.retention_event_days * DAY_SECONDS)
        events = purges.events(term, before=before, limit=EVENT_BATCH_MAX)
        # Twice as old: a run of such a start may have ended much later, and an audit must know what it was for.
        self._store.reboots.purge(term, before=now - seconds_to_us(2 * self._settings.retention_days * DAY_SECONDS))
        purges.instances(term, before=now - seconds_to_us(self._settings.retention_days * DAY_SECONDS))
        return 0 if events == EVENT_BATCH_MAX else pause
