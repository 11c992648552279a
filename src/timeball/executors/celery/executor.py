"""Celery: work is handed over to workers that run already. Owns which hand-overs are open; two threads for all."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from timeball.errors import TargetError
from timeball.executors.celery.handover import HandOver
from timeball.executors.celery.sender import Sender
from timeball.executors.celery.target import RESULT_SCHEMES, read_target
from timeball.executors.celery.verdict import Verdict, unconfirmed
from timeball.executors.celery.watcher import Watcher
from timeball.executors.contract import Report
from timeball.executors.registry import refused
from timeball.model.run import Work
from timeball.model.states import State

PACKAGES = ("celery", "redis")
END_SECONDS = 6.0
"""How long the threads may take to end: one answer of a broker, and a little."""


class CeleryExecutor:
    """Hands runs over as Celery tasks and waits for their results.

    `place`: which database and namespace the runs are of. `grace_seconds`: how long to wait for Celery's word after a
    revoke; `send_seconds`: how long to try a broker that cannot be reached; `result_seconds`: how long to wait for the
    result of a run that has no time-out.
    """

    kind = "celery"

    def __init__(
        self,
        broker_url: str,
        result_backend: str,
        *,
        place: str,
        output_bytes_max: int,
        grace_seconds: float,
        send_seconds: float,
        result_seconds: float,
    ) -> None:
        self._broker_url = broker_url
        self._result_backend = result_backend
        self._place = place
        self._bytes_max = output_bytes_max
        self._grace_seconds = grace_seconds
        self._send_seconds = send_seconds
        self._result_seconds = result_seconds
        self._lock = threading.Lock()
        self._hands: dict[tuple[int, int], HandOver] = {}
        self._threads: tuple[Sender, Watcher] | None = None
        self._closing = False

    def handlers(self) -> Sequence[str]:
        """This instance hands over when it knows where to, and has the packages for it."""
        return (self.kind,) if self._trouble() is None else ()

    def handler_of(self, target: Mapping[str, Any]) -> str:
        """Every task needs the same: an instance that hands over."""
        return self.kind

    def check(self, target: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        """Refuse a malformed target, and any target where Celery is not set up. Raises TargetError."""
        trouble = self._trouble()
        if trouble is not None:
            raise trouble
        read_target(target)

    def submit(self, batch: Sequence[Work], report: Report) -> None:
        """Take each piece of work; a thread hands it over."""
        with self._lock:
            threads = None if self._closing else self._started()
            hands = [] if threads is None else [self._hand(work, report) for work in batch]
            self._hands |= {hand.key: hand for hand in hands}
        if threads is None:
            for work in batch:
                report(refused(work, "start", "this instance is ending"))
            return
        sender, watcher = threads
        sender.hand_over(hands)
        watcher.wake()

    def cancel(self, run_id: int, reason: str, *, grace_seconds: float | None = None) -> bool:
        """Revoke the task; what was never handed over ends at once.

        Its outcome is told when Celery confirms it, or after the grace, and then says that nobody has.
        """
        with self._lock:
            hands = [hand for hand in self._hands.values() if hand.work.run_id == run_id]
        grace = self._grace_seconds if grace_seconds is None else min(grace_seconds, self._grace_seconds)
        asked = Verdict(State.CANCELLED, "cancelled", reason)
        for hand in hands:
            self._ask_to_end(hand, asked, unconfirmed(asked, hand.task_id, grace), grace_seconds=grace)
        return bool(hands)

    def running(self) -> Sequence[int]:
        """Ids of the runs whose outcome has not been told."""
        with self._lock:
            return tuple(hand.work.run_id for hand in self._hands.values())

    def close(self, grace_seconds: float) -> Sequence[int]:
        """End the threads. What was handed over goes on in its worker; the ids of those runs."""
        with self._lock:
            self._closing = True
            hands, threads = list(self._hands.values()), self._threads
        for hand in hands:
            if hand.waiting:
                verdict = Verdict(State.CANCELLED, "cancelled", "the instance is ending")
                self._ask_to_end(hand, verdict, verdict)
        if threads is not None:
            sender, watcher = threads
            sender.stop(max(grace_seconds, END_SECONDS))
            watcher.stop(END_SECONDS)
        return self.running()

    def _trouble(self) -> TargetError | None:
        if not self._broker_url or not self._result_backend:
            hint = "the settings celery_broker_url and celery_result_backend say where it is"
            return TargetError("Celery is off on this instance", hint=hint, field="target")
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        if missing:
            hint = "pip install 'timeball[celery]'"
            return TargetError(f"the package {missing[0]} is not installed here", hint=hint, field="target")
        scheme = self._result_backend.partition("://")[0]
        if scheme not in RESULT_SCHEMES:
            hint = "any instance must be able to read a result, and to mark a hand-over: a Redis, redis://HOST:6379/0"
            return TargetError(f"celery_result_backend cannot be {scheme!r}", hint=hint, field="target")
        return None

    def _started(self) -> tuple[Sender, Watcher]:
        """The threads; started on first use, and Celery imported then."""
        if self._threads is None:
            link = importlib.import_module("timeball.executors.celery.link").Link(
                self._broker_url, self._result_backend
            )
            watcher = Watcher(link, self._open, self._ask_to_end, grace_seconds=self._grace_seconds)
            self._threads = Sender(link, send_seconds=self._send_seconds), watcher
        return self._threads

    def _hand(self, work: Work, report: Report) -> HandOver:
        hand = HandOver(work, self._place, report, bytes_max=self._bytes_max, result_seconds=self._result_seconds)
        hand.on_told = self._told
        return hand

    def _open(self) -> Sequence[HandOver]:
        with self._lock:
            return list(self._hands.values())

    def _told(self, hand: HandOver) -> None:
        with self._lock:
            self._hands.pop(hand.key, None)

    def _ask_to_end(
        self, hand: HandOver, asked: Verdict, unconfirmed: Verdict, *, grace_seconds: float | None = None
    ) -> None:
        grace = self._grace_seconds if grace_seconds is None else grace_seconds
        sent = hand.ask_to_end(asked, unconfirmed, grace_seconds=grace)
        if (sent or hand.claimed) and self._threads is not None:
            self._threads[0].end(hand)
