"""The thread that talks to the broker: hands over, gives up, revokes. Owns what is certain about each message."""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from timeball.clock import monotonic_us, seconds_to_us
from timeball.executors.celery.handover import HandOver, Refused
from timeball.executors.celery.target import headers_of
from timeball.executors.celery.verdict import Verdict
from timeball.model.states import State

if TYPE_CHECKING:
    from timeball.executors.celery.link import Link

BATCH_MAX = 100
KEEP_MORE_SECONDS = 86_400
"""How much longer than its result is waited for a hand-over is remembered."""
PAUSE_SECONDS_MIN = 0.1
PAUSE_SECONDS_MAX = 2.0
_log = logging.getLogger("timeball.executors")


class End:
    """An order to end a task: `until` when it is worth trying, a monotonic reading in microseconds."""

    def __init__(self, hand: HandOver, until: int) -> None:
        self.hand = hand
        self.until = until
        self.closed = False
        self.revoked = False


class Sender:
    """Two queues and the thread that works them off; trouble of the one does not hold up the other."""

    def __init__(self, link: Link, *, send_seconds: float) -> None:
        self._link = link
        self._send_seconds = send_seconds
        self._mark = f"handed over by {secrets.token_hex(8)}"
        self._changed = threading.Condition()
        self._new_hands: list[HandOver] = []
        self._new_ends: list[HandOver] = []
        self._stopped = False
        # The thread's own.
        self._hands: deque[HandOver] = deque()
        self._ends: list[End] = []
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="timeball-celery-send", daemon=True)
        self._thread.start()

    def hand_over(self, hands: Sequence[HandOver]) -> None:
        """Send these as soon as the broker can be reached."""
        with self._changed:
            self._new_hands += hands
            self._changed.notify_all()

    def end(self, hand: HandOver) -> None:
        """Close the hand-over and revoke its task."""
        with self._changed:
            self._new_ends.append(hand)
            self._changed.notify_all()

    def stop(self, seconds: float) -> None:
        """End the thread, after what it has been told to end; what is not sent by then is not sent."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join(seconds)

    def _run(self) -> None:
        pause = 0.0
        while self._wait(pause):
            went_well = [self._attempt(step) for step in (self._give_up, self._revoke, self._send)]
            self._expire()
            if all(went_well):
                if self._failing:
                    _log.info("Celery answers again")
                self._failing, pause = False, 0.0
            else:
                pause = min(PAUSE_SECONDS_MAX, max(PAUSE_SECONDS_MIN, pause * 2))
        self._link.close()

    def _wait(self, pause: float) -> bool:
        """Wait for work, or for the pause after trouble; False when it is time to end."""
        with self._changed:
            if pause:
                self._changed.wait_for(lambda: self._stopped, pause)
            else:
                self._changed.wait_for(lambda: self._stopped or self._new_hands or self._new_ends)
            until = monotonic_us() + seconds_to_us(self._send_seconds)
            self._hands.extend(self._new_hands)
            self._ends += [End(hand, until) for hand in self._new_ends]
            self._new_hands, self._new_ends = [], []
            return not self._stopped or bool(self._ends and not pause)

    def _attempt(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - brokers and clients raise anything; it is tried again
            words = f"{type(error).__name__}: {error}"
            for hand in self._hands:
                hand.trouble = words
            if not self._failing:
                _log.warning("cannot talk to Celery, and tries again: %s", words)
            self._failing = True
            return False
        return True

    def _give_up(self) -> None:
        for end in self._ends:
            if end.closed:
                continue
            hand = end.hand
            began = self._link.give_up(hand.task_id, _keep_seconds(hand))
            end.closed = True
            if hand.target.once and not began and hand.asked is not None:
                hand.tell(hand.asked._replace(error=f"{hand.asked.error}; its Celery task had not begun, and will not"))

    def _revoke(self) -> None:
        ends = [end for end in self._ends if not end.revoked]
        if ends:
            self._link.revoke([end.hand.task_id for end in ends])
            for end in ends:
                end.revoked = True

    def _send(self) -> None:
        while batch := self._next_batch():
            unsent = deque(batch)
            try:
                self._link.open()
                fresh = self._claim(batch)
                for hand in batch:
                    self._link.open()
                    unsent.popleft()
                    if hand in fresh:
                        self._send_one(hand)
            finally:
                for hand in reversed(unsent):
                    hand.put_back()
                    self._hands.appendleft(hand)

    def _next_batch(self) -> list[HandOver]:
        batch: list[HandOver] = []
        while self._hands and len(batch) < BATCH_MAX:
            hand = self._hands.popleft()
            if hand.asked is not None:
                if hand.waiting:
                    hand.end_unsent()
            elif hand.take():
                batch.append(hand)
        return batch

    def _claim(self, batch: Sequence[HandOver]) -> set[HandOver]:
        """Those that nobody has handed over yet; the others follow the task that is there."""
        fresh = [hand for hand in batch if hand.claimed or hand.work.attempt == 1 or not self._follow(hand)]
        unclaimed = [hand for hand in fresh if not hand.claimed]
        if unclaimed:
            keep = max(_keep_seconds(hand) for hand in unclaimed)
            ours = self._link.claim([(hand.identity, hand.own_id) for hand in unclaimed], self._mark, keep)
            for hand, is_ours in zip(unclaimed, ours, strict=True):
                hand.claimed = is_ours
        for hand in batch:
            hand.marked = True
        return {hand for hand in fresh if hand.claimed}

    def _follow(self, hand: HandOver) -> bool:
        """Whether an earlier attempt's task counts for this one: it has succeeded, or goes on and nobody gave it up."""
        earlier = self._link.latest(hand.identity)
        if earlier is None or earlier == hand.own_id:
            return False
        (sign,) = self._link.look([earlier])
        if sign.succeeded or (not sign.ended and sign.known and not self._link.closed(earlier)):
            hand.task_id = earlier
            return True
        return False

    def _send_one(self, hand: HandOver) -> None:
        try:
            self._link.send(hand.task_id, hand.target, hand.work.args, headers_of(hand.work))
        except Refused as error:
            self._fail(hand, f"Celery does not take it: {error}")
        except Exception as error:
            # The message may be there. A second one would be a second task, unless the task itself takes care.
            hand.trouble = f"{type(error).__name__}: {error}"
            if hand.target.once:
                self._hands.appendleft(hand)
                raise
            _log.warning("run %d: its hand-over to Celery was cut off: %s", hand.work.run_id, hand.trouble)
        else:
            hand.trouble = None

    def _expire(self) -> None:
        now = monotonic_us()
        self._ends = [end for end in self._ends if now < end.until and not (end.closed and end.revoked)]
        for hand in list(self._hands):
            if now - hand.begun_at < seconds_to_us(self._send_seconds):
                continue
            self._hands.remove(hand)
            if hand.waiting:
                self._fail(hand, f"it could not be handed over to Celery for {self._send_seconds:g} s: {hand.trouble}")

    def _fail(self, hand: HandOver, words: str) -> None:
        if hand.tell(Verdict(State.FAILED, "start", words)) and hand.claimed:
            self.end(hand)


def _keep_seconds(hand: HandOver) -> int:
    return int(hand.seconds) + KEEP_MORE_SECONDS
