"""The thread that waits for all results at once. Owns time-outs and what silence means."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from timeball.clock import monotonic_us, seconds_to_us
from timeball.executors.celery.handover import HandOver
from timeball.executors.celery.verdict import Sign, Verdict, no_result, read_sign, revoked, unconfirmed

if TYPE_CHECKING:
    from timeball.executors.celery.link import Link

POLL_SECONDS = 0.25
LOAD = 10
"""Looking takes at most one part in so many of the time, however many runs are open."""
PAUSE_SECONDS_MAX = 5.0
CHUNK = 500
_log = logging.getLogger("timeball.executors")


class Watcher:
    """Asks the result backend for what is open, in chunks; `end` asks Celery to end a task."""

    def __init__(
        self,
        link: Link,
        hands: Callable[[], Sequence[HandOver]],
        ask_to_end: Callable[[HandOver, Verdict, Verdict], None],
        *,
        grace_seconds: float,
    ) -> None:
        self._link = link
        self._hands = hands
        self._ask_to_end = ask_to_end
        self._grace_us = seconds_to_us(grace_seconds)
        self._grace_seconds = grace_seconds
        self._wake = threading.Event()
        self._stopped = False
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="timeball-celery-watch", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something to wait for."""
        self._wake.set()

    def stop(self, seconds: float) -> None:
        """End the thread."""
        self._stopped = True
        self._wake.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        pause: float | None = None
        while not self._stopped:
            self._wake.wait(pause)
            self._wake.clear()
            began = monotonic_us()
            pause = self._pass(began)

    def _pass(self, now: int) -> float | None:
        """Look at everything once. Returns seconds until the next time; None when there is nothing to wait for."""
        hands = self._hands()
        if not hands:
            return None
        self._keep_time(hands, now)
        out = [hand for hand in hands if hand.marked and not hand.told]
        try:
            for begin in range(0, len(out), CHUNK):
                chunk = out[begin : begin + CHUNK]
                for hand, sign in zip(chunk, self._link.look([hand.task_id for hand in chunk]), strict=True):
                    self._judge(hand, sign, now)
        except Exception as error:  # noqa: BLE001 - a Redis that is away raises anything; it is asked again
            if not self._failing:
                _log.warning("the results of Celery cannot be read: %s: %s", type(error).__name__, error)
            self._failing = True
        else:
            self._failing = False
        took_seconds = (monotonic_us() - now) / 1e6
        return min(PAUSE_SECONDS_MAX, max(POLL_SECONDS, took_seconds * LOAD))

    def _keep_time(self, hands: Sequence[HandOver], now: int) -> None:
        for hand in hands:
            if hand.asked is None:
                if now >= hand.deadline:
                    self._ask_to_end(hand, *hand.overdue())
            elif now >= hand.give_up_at and hand.unconfirmed is not None:
                hand.tell(hand.unconfirmed)

    def _judge(self, hand: HandOver, sign: Sign, now: int) -> None:
        verdict = read_sign(sign, hand.task_id, hand.asked)
        if verdict is not None:
            hand.tell(verdict)
        elif sign.revoked_by_hearsay and hand.asked is None:
            asked = revoked(hand.task_id)
            self._ask_to_end(hand, asked, unconfirmed(asked, hand.task_id, self._grace_seconds))
        elif sign.known or sign.meta is not None:
            hand.forgotten_at = None
        elif hand.forgotten_at is None:
            hand.forgotten_at = now
        elif now - hand.forgotten_at >= self._grace_us and hand.asked is None:
            lost = no_result(hand.task_id, "since the result backend has forgotten it", hand.trouble)
            self._ask_to_end(hand, lost, lost)
