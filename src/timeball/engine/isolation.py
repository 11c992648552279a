"""Isolation: an instance that is cut off ends the work of jobs that ask for it, before anyone may run it again.

A membership counts from the monotonic instant before its last heartbeat was sent, so it ends here no later than in
the database. Work is asked to end so early that it can be killed, where it can be, a margin before that end.
"""

from __future__ import annotations

import logging

from timeball.clock import ClusterClock, seconds_to_us
from timeball.engine.member import Member
from timeball.engine.runner import Executing, Runner
from timeball.settings import Settings

IDLE_SECONDS = 1.0
TICK_SECONDS = 0.1
SHORTEST_SECONDS = 0.005
_log = logging.getLogger("timeball.engine")


class Isolation:
    """One look at the membership's end and at what runs. Needs no database."""

    def __init__(self, clock: ClusterClock, settings: Settings, member: Member, runner: Runner) -> None:
        self._clock = clock
        self._member = member
        self._runner = runner
        self._grace_us = seconds_to_us(settings.isolation_seconds)

    def step(self) -> float:
        """End what must have ended by the membership's end. Returns seconds until the next look."""
        now = self._clock.monotonic()
        ask_at = self._member.trusted_until - self._grace_us
        isolated = now >= ask_at
        work = [item for item in self._runner.stoppable() if isolated or item.owner != self._member.id]
        if work:
            self._end(work, now)
        if isolated or work:
            return TICK_SECONDS
        return min(IDLE_SECONDS, max(SHORTEST_SECONDS, (ask_at - now) / seconds_to_us(1)))

    def _end(self, work: list[Executing], now: int) -> None:
        _log.warning("cut off from the cluster: ending runs %s", ", ".join(str(item.work.run_id) for item in work))
        left = max(0, self._member.trusted_until - now) / seconds_to_us(1)
        for item in work:
            if item.owner == self._member.id:
                words = "isolated: the database was out of reach and the membership about to end"
                self._runner.isolate(item, words, grace_seconds=left)
            else:
                words = "isolated: the cluster had given this instance up, so another one may run it again"
                self._runner.isolate(item, words, grace_seconds=0)
