"""Definitions in memory: parsed once a version. Versions never change, so nothing here can be stale."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from timeball.errors import InvalidInput
from timeball.model.fields import requires_key
from timeball.model.job import Definition
from timeball.schedule import Schedule, schedule_of
from timeball.store import Store

T = TypeVar("T")
CACHE_MAX = 50_000
_log = logging.getLogger("timeball.engine")


@dataclass(frozen=True, slots=True)
class Known:
    """A job's name and definition at one version."""

    name: str
    definition: Definition


UNREADABLE = Known("?", Definition(schedule="none", executor="unreadable definition", target={}))
"""In place of one that cannot be read, for a run that has started all the same: no executor takes it, so it fails."""


class DefinitionCache:
    """By job id and version; the least recently used go first. Safe for threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, int], Known] = OrderedDict()
        self._unreadable: set[tuple[int, int]] = set()
        self._schedules: OrderedDict[tuple[int, int], Schedule] = OrderedDict()

    def of_text(self, job_id: int, version: int, name: str, text: str) -> Definition:
        """The definition of a text that was just read; raises InvalidInput when it cannot be read."""
        with self._lock:
            known = self._known.get((job_id, version))
        if known is None:
            known = Known(name, Definition.from_json(text))
            self._keep(self._known, (job_id, version), known)
        return known.definition

    def schedule(self, job_id: int, version: int, definition: Definition, name: str, anchor_at: int) -> Schedule:
        """The parsed schedule; raises ScheduleError."""
        with self._lock:
            schedule = self._schedules.get((job_id, version))
        if schedule is None:
            schedule = schedule_of(definition, name=name, anchor_at=anchor_at)
            self._keep(self._schedules, (job_id, version), schedule)
        return schedule

    def load(self, pairs: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Known]:
        """All of these that can be read, reading those that are not known yet with one statement.

        What cannot be read (damaged, or of a newer version) is left out and told: others may be able to read it.
        """
        wanted = set(pairs)
        with self._lock:
            found = {pair: self._known[pair] for pair in wanted if pair in self._known}
        missing = sorted(wanted - found.keys())
        if missing:
            for pair, (name, text) in self._store.jobs.definitions(missing).items():
                try:
                    found[pair] = Known(name, Definition.from_json(text))
                except InvalidInput as error:
                    self._tell_unreadable(pair, name, error)
                else:
                    self._keep(self._known, pair, found[pair])
        return found

    def _tell_unreadable(self, pair: tuple[int, int], name: str, error: InvalidInput) -> None:
        if pair not in self._unreadable:
            self._unreadable.add(pair)
            _log.error(
                "job %s: version %d cannot be read here, so its runs do not start here: %s", name, pair[1], error
            )

    def _keep(self, table: OrderedDict[tuple[int, int], T], key: tuple[int, int], value: T) -> None:
        with self._lock:
            table[key] = value
            table.move_to_end(key)
            while len(table) > CACHE_MAX:
                table.popitem(last=False)


def placement_of(definition: Definition, handler_of: Callable[[Definition], str]) -> tuple[str, str]:
    """What the ledger notes of a definition: the handler key and the required labels."""
    return handler_of(definition), requires_key(definition.requires)
