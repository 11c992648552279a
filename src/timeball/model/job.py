"""A job: what to run, when, and its policies. Frozen values; knows no database and no schedule grammar."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Self, cast

from timeball.errors import InvalidInput, UnknownField
from timeball.model.calendar import check_calendar, named_calendar
from timeball.model.fields import (
    SPANS,
    check_choice,
    check_limits,
    check_mapping,
    check_span,
    check_storable,
    did_you_mean,
    parse_value,
    requires_key,
)
from timeball.model.parts import with_part

REQUIRES_CHARS_MAX = 500
NO_BOUND = 2**31


class JobState(StrEnum):
    """What a job's planner may do with it. `paused`: stopped for a reason, until somebody or its hour resumes it.

    `broken`: its stored definition cannot be read; a person must look."""

    ACTIVE = "active"
    PAUSED = "paused"
    STOPPED = "stopped"
    BROKEN = "broken"
    DELETED = "deleted"


class Misfire(StrEnum):
    """What becomes of ticks that could not start within `misfire_after_seconds`."""

    RUN_ONCE = "run_once"
    RUN_ALL = "run_all"
    SKIP = "skip"


class Overlap(StrEnum):
    """What becomes of a tick whose job is still running, anywhere in the cluster."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"
    ALLOW = "allow"


class OnLost(StrEnum):
    """What becomes of a run whose instance disappeared in mid-run."""

    FAIL = "fail"
    RERUN = "rerun"
    HOLD = "hold"


class OnIsolation(StrEnum):
    """What becomes of running work on an instance that cannot reach the database until its membership ends."""

    STOP = "stop"
    KEEP = "keep"
    BY_ON_LOST = ""


class Backoff(StrEnum):
    """How the wait between attempts grows."""

    FIXED = "fixed"
    EXPONENTIAL = "exponential"
    JITTERED = "jittered"


class RetryOn(StrEnum):
    """Which kinds of ends are tried again. `other`: all that have no name here, e.g. what could not be started."""

    EXCEPTION = "exception"
    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    HTTP_STATUS = "http_status"
    TIMED_OUT = "timed_out"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Everything a person decides about a job. Durations in seconds; every change makes a new version.

    `dst`: the rule for daylight saving; empty means that of the dialect. `start_at`, `end_at`: the first and the
    last instant at which a tick may be, as `@at` writes them; empty: no end on that side. `calendar`: when the
    schedule is closed (see `model.calendar`). `jitter_seconds`: each run is ready up to that long after its tick,
    by a draw that never changes for a tick. `limits`: names of limits that it shares with other jobs. `executor`
    and `target` say what to run (the executor checks them), `args` goes along as a JSON object. `on_isolation`:
    empty means `stop` where a lost run is run again, else `keep`. `retry_on`: the kinds of ends (`RetryOn`)
    that are tried again; empty means every kind.
    """

    schedule: str
    executor: str
    target: Mapping[str, Any]
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    timezone: str = "UTC"
    dialect: str = "standard"
    dst: str = ""
    misfire: str = Misfire.RUN_ONCE
    misfire_after_seconds: float = 60
    catchup_max: int = 10
    deadline_seconds: float | None = None
    overlap: str = Overlap.SKIP
    concurrency_max: int | None = None
    queue_max: int = 10
    attempts_max: int = 1
    backoff: str = Backoff.EXPONENTIAL
    backoff_seconds: float = 10
    backoff_max_seconds: float = 3600
    retry_on: Sequence[str] = ()
    timeout_seconds: float | None = None
    on_lost: str = OnLost.FAIL
    lost_max: int = 3
    on_isolation: str = OnIsolation.BY_ON_LOST
    priority: int = 0
    calendar: Mapping[str, Any] = field(default_factory=dict[str, Any])
    start_at: str = ""
    end_at: str = ""
    jitter_seconds: float = 0
    requires: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: tuple[str, ...] = ()
    description: str = ""

    def __post_init__(self) -> None:
        """Refuse values outside their span; raises InvalidInput naming the field."""
        for name, allowed in _CHOICES.items():
            check_choice(name, getattr(self, name), allowed)
        _check_retry_on(self.retry_on)
        for name, (low, high) in SPANS.items():
            check_span(name, getattr(self, name), low, high)
        for name in ("target", "args", "requires"):
            check_mapping(name, getattr(self, name))
        check_mapping("calendar", self.calendar)
        object.__setattr__(self, "limits", check_limits(self.limits))
        check_calendar(self.calendar)
        for name in ("schedule", "executor", "timezone", "dialect", "dst", "start_at", "end_at", "description"):
            if not isinstance(getattr(self, name), str):
                raise InvalidInput(f"{name} must be text", field=name)
            check_storable(name, getattr(self, name))
        if self.deadline_seconds is not None and self.deadline_seconds <= self.jitter_seconds:
            raise InvalidInput(
                f"jitter_seconds = {self.jitter_seconds:g} leaves no time before the deadline",
                hint=f"less than deadline_seconds, which is {self.deadline_seconds:g}",
                field="jitter_seconds",
            )
        # The ledger's column is that long; a longer key would stop the plans of all jobs, not only of this one.
        if len(requires_key(self.requires)) > REQUIRES_CHARS_MAX:
            raise InvalidInput(f"requires is too long; at most {REQUIRES_CHARS_MAX} characters", field="requires")

    @property
    def exclusive(self) -> bool:
        """Whether starts of this job's runs must be counted against those that are running."""
        return self.overlap != Overlap.ALLOW or self.concurrency_max is not None or bool(self.limits)

    @property
    def running_max(self) -> int:
        """How many runs of this job may run at once; only where `exclusive`."""
        if self.overlap == Overlap.ALLOW:
            return self.concurrency_max or NO_BOUND
        return 1

    @property
    def in_order(self) -> bool:
        """Whether runs that wait for their turn begin in the order of their ticks, whoever has them in hand."""
        return self.exclusive and (self.overlap == Overlap.QUEUE or self.misfire == Misfire.RUN_ALL)

    @property
    def stops_when_isolated(self) -> bool:
        """Whether running work must have ended before another instance may run it again."""
        if self.on_isolation == OnIsolation.BY_ON_LOST:
            return self.on_lost == OnLost.RERUN
        return self.on_isolation == OnIsolation.STOP

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, so that equal definitions have equal texts.

        Fields that came later are left out while they have their default: texts of before stay equal, so that no job
        is edited because of them, and instances of the version before can go on to read what does not use them.
        """
        values = asdict(self)
        for item in fields(self):
            if item.name in _LATER and values[item.name] in (item.default, {}):
                del values[item.name]
        return json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote, also by an older or newer version: unknown fields raise InvalidInput."""
        try:
            values: object = json.loads(text)
        except ValueError as error:
            raise InvalidInput(f"the definition is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise InvalidInput("the definition is not a JSON object")
        return cls.from_dict(cast("dict[str, Any]", values))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from plain values; raises InvalidInput for unknown, missing or wrong ones."""
        known = {f.name for f in fields(cls)}
        for name in values:
            if name not in known:
                raise UnknownField(f"unknown field {name!r}", hint=did_you_mean(name, known), field=name)
        for name in ("schedule", "executor", "target"):
            if name not in values:
                raise InvalidInput(f"{name} is missing", field=name)
        if "calendar" in values:
            values = {**values, "calendar": named_calendar(values["calendar"])}
        if "retry_on" in values:
            values = {**values, "retry_on": _kinds(values["retry_on"])}
        return cls(**values)

    def with_text(self, name: str, text: str) -> Self:
        """One field set from text, as the command line gives it (`--set FIELD=VALUE`); `target.PART` is one part."""
        values = self.to_dict()
        if name.startswith("target."):
            target = with_part("target", self.target, name.removeprefix("target."), text)
            return type(self).from_dict({**values, "target": target})
        if name not in values or name in {"target", "executor"}:
            choices = set(values) - {"target", "executor"}
            raise UnknownField(f"unknown field {name!r}", hint=did_you_mean(name, choices), field=name)
        values[name] = parse_value(name, text)
        return type(self).from_dict(values)


_LATER = frozenset({"limits", "calendar", "on_isolation", "start_at", "end_at", "jitter_seconds", "retry_on"})
_CHOICES: dict[str, type[StrEnum]] = {
    "misfire": Misfire,
    "overlap": Overlap,
    "on_lost": OnLost,
    "on_isolation": OnIsolation,
    "backoff": Backoff,
}


def _kinds(value: object) -> object:
    """Kinds of ends as written: a list, or one text with commas. Sorted, so that equal wishes have equal texts."""
    found = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(found, list | tuple):
        return found
    kinds = cast("Sequence[object]", found)
    return tuple(sorted({str(kind) for kind in kinds})) if all(isinstance(kind, str) for kind in kinds) else kinds


def _check_retry_on(value: object) -> None:
    known = [str(kind) for kind in RetryOn]
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"retry_on must be a list, not {value!r}", hint=f"of {', '.join(known)}", field="retry_on")
    for kind in cast("Sequence[object]", value):
        if kind not in known:
            hint = "on_lost says what becomes of lost runs" if kind == "lost" else f"known: {', '.join(known)}"
            raise InvalidInput(f"retry_on knows no {kind!r}", hint=hint, field="retry_on")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Why a job is paused, by whom, since when (microseconds UTC), and when it is resumed by itself, if it is."""

    reason: str
    actor: str
    since: int
    resume_at: int | None = None

    def to_json(self) -> str:
        """As it is stored."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as stored. Instants in microseconds UTC.

    `version` goes up at every change; `cursor_at`: ticks up to here are rows; `next_due_at`: the next tick after
    it, or None; `anchor_at`: what `@every` counts from.
    """

    id: int
    namespace: str
    name: str
    state: JobState
    version: int
    definition: Definition
    cursor_at: int
    next_due_at: int | None
    anchor_at: int
    created_at: int
    updated_at: int
    problem: str | None = None
    pause: Pause | None = None
