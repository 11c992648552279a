"""A run: one tick, manual trigger or backfilled tick made a row; and an attempt at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from timeball.model.states import State


class Kind(StrEnum):
    """Where a run came from."""

    SCHEDULED = "scheduled"
    MANUAL = "manual"
    BACKFILL = "backfill"


class Work(NamedTuple):
    """What an executor is given: one started attempt. Instants in microseconds UTC, durations named.

    `due_at` is the tick; `begin_at` the monotonic reading (this host) before which the work must not begin.
    """

    run_id: int
    job_id: int
    job: str
    namespace: str
    kind: Kind
    due_at: int
    attempt: int
    fence: int
    executor: str
    target: Mapping[str, Any]
    args: Mapping[str, Any]
    timeout_seconds: float | None = None
    begin_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one stream of an attempt left: at most its bound, head and tail kept, the middle counted."""

    stream: str
    text: str
    bytes_total: int
    bytes_cut: int = 0


class Outcome(NamedTuple):
    """How an attempt ended, by the word of the instance that ran it.

    `state` is one of `states.SETTLED`. `reason`: short and stable (`exception`, `exit-code`, `signal`, …).
    `error`: words for people. `begun_at`, `ended_at`: monotonic readings of this host, in microseconds.
    """

    run_id: int
    attempt: int
    fence: int
    state: State
    begun_at: int
    ended_at: int
    reason: str | None = None
    error: str | None = None
    result: str | None = None
    outputs: tuple[Output, ...] = ()
