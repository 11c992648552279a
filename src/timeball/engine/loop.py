"""A thread around a step. Owns pauses, wake-ups and back-off; knows nothing of what the step does."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from timeball.clock import monotonic_us
from timeball.errors import ClaimLost, StoreError
from timeball.events.bus import Bus
from timeball.events.facts import LoopFailing, LoopRecovered

BACKOFF_FIRST_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 5.0
_log = logging.getLogger("timeball.engine")

Step = Callable[[], float]
"""Does one thing and returns how many seconds until the next; 0 means there is more."""


class Loop:
    """Runs a step again and again until stopped. A step that raises is tried again, later and later."""

    def __init__(self, name: str, step: Step, bus: Bus, *, may_recover: Callable[[], bool] = lambda: True) -> None:
        """`may_recover`: whether a pass that raised nothing proves that the trouble is over."""
        self.name = name
        self._may_recover = may_recover
        self._step = step
        self._bus = bus
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._failures = 0
        self.failed_at = 0
        """Monotonic microseconds of the last failure."""
        self.failing_since: int | None = None
        """Monotonic microseconds of the first failure in a row; None while passes succeed."""
        self._thread = threading.Thread(target=self._run, name=f"timeball-{name}", daemon=True)
        self.passed_at: int | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Cut the current pause short; any thread."""
        self._wake.set()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Ask the thread to end and wait for it a while."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def stopping(self) -> bool:
        """Whether the loop has been asked to end."""
        return self._stop.is_set()

    @property
    def failing(self) -> bool:
        """Whether the last pass raised."""
        return self.failing_since is not None

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = self._pass()
            if pause > 0:
                self._wake.wait(pause)
            self._wake.clear()

    def _pass(self) -> float:
        try:
            pause = self._step()
        except ClaimLost as lost:
            _log.info("%s: %s", self.name, lost)
            return BACKOFF_FIRST_SECONDS
        except Exception as error:  # noqa: BLE001 - whatever it is, the loop goes on and says so
            return self._failed(error)
        if self._failures and self._may_recover():
            self._failures, self.failing_since = 0, None
            self._bus.publish(LoopRecovered(loop=self.name))
        self.passed_at = monotonic_us()
        return pause

    def _failed(self, error: Exception) -> float:
        database = isinstance(error, StoreError)
        if self._failures == 0:
            self.failing_since = monotonic_us()
            self._bus.publish(LoopFailing(loop=self.name, error=str(error), database=database))
            if not database:
                _log.exception("%s failed", self.name, exc_info=error)
        self._failures += 1
        self.failed_at = monotonic_us()
        ceiling = min(BACKOFF_MAX_SECONDS, BACKOFF_FIRST_SECONDS * 2 ** min(self._failures, 10))
        return random.uniform(ceiling / 2, ceiling)  # noqa: S311 - jitter
