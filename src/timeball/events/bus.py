"""Handing facts to whoever subscribed: logs, metrics, alerts, live pages, tests."""

from __future__ import annotations

import logging
from collections.abc import Callable

from timeball.events.facts import Fact

Subscriber = Callable[[Fact], None]
_log = logging.getLogger("timeball.events")


class Bus:
    """Subscribers are called in the publishing thread, in order; one that raises disturbs nobody else."""

    def __init__(self) -> None:
        self._subscribers: tuple[Subscriber, ...] = ()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call it with every fact from now on."""
        self._subscribers = (*self._subscribers, subscriber)

    def publish(self, fact: Fact) -> None:
        """Tell a fact; never raises."""
        for subscriber in self._subscribers:
            try:
                subscriber(fact)
            except Exception:  # noqa: BLE001 - one subscriber must not stop the engine or the others
                _log.exception("a subscriber failed on %r", fact)
