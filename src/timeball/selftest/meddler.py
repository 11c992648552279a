"""The people of the self-test: they stop, start, edit and trigger jobs while faults go on, and note every answer.

An answer that did not come is noted as such: what was asked for may have happened or not, and it is asked again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from timeball.clock import monotonic_us
from timeball.errors import TimeballError
from timeball.model.job import Definition
from timeball.selftest.history import Change, Trigger
from timeball.selftest.jobs import BY_HAND, EDITED, EDITIONS, SWITCHED
from timeball.service.jobs import JobService
from timeball.store.changes import ChangeResult

PAUSE_SECONDS = (0.1, 1.0)
AGAIN_SECONDS, TRIES_MAX = 0.5, 120


@dataclass(slots=True)
class Meddler:
    """`run` goes on until `over` is set; `stop_all` is the last word."""

    service: JobService
    seed: int
    over: threading.Event
    changes: list[Change] = field(default_factory=list[Change])
    triggers: list[Trigger] = field(default_factory=list[Trigger])
    troubles: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    _edition: int = 0
    _active: bool = True

    def run(self) -> None:
        """Do something, wait a little, again."""
        rng = random.Random(self.seed)  # noqa: S311 - a test that can be repeated
        deeds = (self._switch, self._switch, self._edit, lambda: self._trigger(rng.random() < 0.5))
        try:
            while not self.over.wait(rng.uniform(*PAUSE_SECONDS)):
                rng.choice(deeds)()
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody meddled any more
            self.troubles.append(("meddler-failed", f"{type(error).__name__}: {error}"))

    def stop_all(self) -> None:
        """Stop every job, until each stop has answered."""
        names: list[str] = []

        def listed() -> bool:
            try:
                names.extend(job.name for job in self.service.list())
            except TimeballError:
                return False
            return True

        self._until_answered(listed)
        for name in names:
            self._until_answered(lambda name=name: self._change(name, "stop", lambda: self.service.stop(name)))

    def _switch(self) -> None:
        if self._active:
            done = self._change(SWITCHED, "stop", lambda: self.service.stop(SWITCHED))
        else:
            done = self._change(SWITCHED, "start", lambda: self.service.start(SWITCHED))
        if done:
            self._active = not self._active

    def _edit(self) -> None:
        self._edition += 1
        edition = self._edition
        schedule = EDITIONS[edition % len(EDITIONS)]
        definition = Definition(
            schedule=schedule,
            executor="function",
            target={"name": EDITED},
            overlap="allow",
            args={"edition": edition},
        )
        self._change(EDITED, "edit", lambda: self.service.edit(EDITED, definition), edition)

    def _trigger(self, twice: bool) -> None:
        """One key, asked for once or by two at the same time; in an outage again and again, with the same key."""
        key = f"key-{len(self.triggers)}"
        ids: list[int] = []

        def ask() -> bool:
            try:
                ids.append(self.service.trigger(BY_HAND, idempotency_key=key))
            except TimeballError:
                return False
            return True

        with ThreadPoolExecutor(2) as people:
            for answer in [people.submit(self._until_answered, ask) for _ in range(2 if twice else 1)]:
                answer.result()
        self.triggers.append(Trigger(job=BY_HAND, key=key, run_ids=tuple(ids)))

    def _change(self, name: str, kind: str, ask: Callable[[], ChangeResult], edition: int = 0) -> bool:
        sent = monotonic_us()
        try:
            result = ask()
        except TimeballError:
            self.changes.append(Change(job=name, kind=kind, sent_us=sent, edition=edition))
            return False
        self.changes.append(
            Change(
                job=name,
                kind=kind,
                sent_us=sent,
                answered_us=monotonic_us(),
                database_at=result.at,
                running=frozenset(run.run_id for run in result.still_running),
                edition=edition,
            )
        )
        return True

    def _until_answered(self, ask: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(TRIES_MAX):
            if ask():
                return
            pause.wait(AGAIN_SECONDS)
