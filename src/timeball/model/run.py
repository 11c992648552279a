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
    `secrets`: what has been put into `target` and `args` and must not show in anything that the work leaves.
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
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one stream of an attempt left: at most its bound, head and tail kept, the middle counted."""

    stream: str
    text: str
    bytes_total: int
    bytes_cut: int = 0


class Progress(NamedTuple):
    """How far an attempt is, by its own word. `fraction`: 0 to 1; `said_at`: a monotonic reading of this host."""

    run_id: int
    fence: int
    fraction: float
    text: str
    said_at: int


class Outcome(NamedTuple):
    """How an attempt ended, by the word of the instance that ran it.

    `state` is one of `states.SETTLED`; or `lost`, where the work went on elsewhere and nobody can say any more what
    became of it: then the job's `on_lost` decides. `reason`: short and stable (`exception`, `exit-code`, `signal`, …).
    `error`: words for people. `begun_at`, `ended_at`: monotonic readings of this host, in microseconds.
    `retry_after_us`: how long the next attempt is to wait, by the word of the work or the far side, instead of the
    job's back-off. `retry`: False: no further attempt; True: another one whatever the job's `retry_on` says, while
    `attempts_max` allows it; None: as the job says.
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
    retry_after_us: int | None = None
    retry: bool | None = None
