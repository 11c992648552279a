"""A job: what to run, when, and its policies. Frozen values; knows no database and no schedule grammar."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Self, cast

from timeball.errors import InvalidInput, UnknownField
from timeball.model.calendar import check_calendar, named_calendar

NAME_CHARS_MAX = 200
ARGS_CHARS_MAX = 65_536
REQUIRES_CHARS_MAX = 500
_NAME = re.compile(r"[^\x00-\x1f\x7f]+")


class JobState(StrEnum):
    """What a job's planner may do with it. `broken`: its stored definition cannot be read; a person must look."""

    ACTIVE = "active"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Everything a person decides about a job. Durations in seconds; every change makes a new version.

    `dst`: the rule for daylight saving; empty means that of the dialect. `start_at`, `end_at`: the first and the last
    instant at which a tick may be, as `@at` writes them; empty: no end on that side. `calendar`: when the schedule is
    closed (see `model.calendar`). `jitter_seconds`: each run is ready up to that long after its tick, by a draw that
    never changes for a tick. `executor` and `target` say what to run (the executor checks them), `args` goes along as
    a JSON object. `on_isolation`: empty means `stop` where a lost run is run again, else `keep`.
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
    description: str = ""

    def __post_init__(self) -> None:
        """Refuse values outside their span; raises InvalidInput naming the field."""
        for name, allowed in _CHOICES.items():
            _check_choice(name, getattr(self, name), allowed)
        for name, (low, high) in _SPANS.items():
            _check_span(name, getattr(self, name), low, high)
        for name in ("target", "args", "requires"):
            check_mapping(name, getattr(self, name))
        check_mapping("calendar", self.calendar)
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
        return self.overlap != Overlap.ALLOW or self.concurrency_max is not None

    @property
    def running_max(self) -> int:
        """How many runs of this job may run at once; only where `exclusive`."""
        if self.overlap == Overlap.ALLOW:
            return self.concurrency_max or 1
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
                raise UnknownField(f"unknown field {name!r}", hint=_did_you_mean(name, known), field=name)
        for name in ("schedule", "executor", "target"):
            if name not in values:
                raise InvalidInput(f"{name} is missing", field=name)
        if "calendar" in values:
            values = {**values, "calendar": named_calendar(values["calendar"])}
        return cls(**values)

    def with_text(self, name: str, text: str) -> Self:
        """One field set from text, as the command line gives it (`--set FIELD=VALUE`)."""
        values = self.to_dict()
        if name not in values or name in {"target", "executor"}:
            choices = set(values) - {"target", "executor"}
            raise UnknownField(f"unknown field {name!r}", hint=_did_you_mean(name, choices), field=name)
        values[name] = _parse_value(name, text)
        return type(self).from_dict(values)


_CHOICES: dict[str, type[StrEnum]] = {
    "misfire": Misfire,
    "overlap": Overlap,
    "on_lost": OnLost,
    "on_isolation": OnIsolation,
    "backoff": Backoff,
}
_DECADE_SECONDS = 10 * 366 * 86_400
_SPANS: dict[str, tuple[float, float]] = {
    "misfire_after_seconds": (0.001, _DECADE_SECONDS),
    "catchup_max": (0, 1000),
    "deadline_seconds": (0.001, _DECADE_SECONDS),
    "concurrency_max": (1, 100_000),
    "queue_max": (0, 100_000),
    "attempts_max": (1, 1000),
    "backoff_seconds": (0, _DECADE_SECONDS),
    "backoff_max_seconds": (0, _DECADE_SECONDS),
    "timeout_seconds": (0.001, _DECADE_SECONDS),
    "lost_max": (0, 1000),
    "jitter_seconds": (0, 86_400),
    "priority": (-1000, 1000),
}
_LATER = frozenset({"calendar", "on_isolation", "start_at", "end_at", "jitter_seconds"})
_OPTIONAL = frozenset({"deadline_seconds", "concurrency_max", "timeout_seconds"})
_WHOLE = frozenset({"catchup_max", "concurrency_max", "queue_max", "attempts_max", "lost_max", "priority"})
_TEXTS = frozenset(
    {
        "schedule",
        "timezone",
        "dialect",
        "dst",
        "start_at",
        "end_at",
        "description",
        "misfire",
        "overlap",
        "on_lost",
        "on_isolation",
        "backoff",
    }
)


def check_name(name: str, field: str = "name") -> str:
    """A job's or namespace's name, an idempotency key: 1 to 200 characters, no control characters, no outer blanks."""
    if not name or len(name) > NAME_CHARS_MAX or name != name.strip() or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!a} is not a {field.replace('_', ' ')}",
            hint="1 to 200 characters, no control characters, no blank at the ends",
            field=field,
        )
    return check_storable(field, name)


def check_storable(name: str, text: str) -> str:
    """Text that every database takes: no NUL, no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{name} holds {text[error.start]!a}, which is no character", field=name) from error
    if "\x00" in text:
        raise InvalidInput(f"{name} holds a NUL character", field=name)
    return text


def requires_key(labels: Mapping[str, str]) -> str:
    """Labels as one canonical text, `gpu=1,zone=a`; empty when nothing is required."""
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def _check_choice(name: str, value: object, allowed: type[StrEnum]) -> None:
    choices = [str(member) for member in allowed]
    if value not in choices:
        hint = f"one of {', '.join(choice or 'nothing' for choice in choices)}"
        raise InvalidInput(f"{name} cannot be {value!r}", hint=hint, field=name)


def _check_span(name: str, value: object, low: float, high: float) -> None:
    if value is None and name in _OPTIONAL:
        return
    kind = int if name in _WHOLE else (int, float)
    if isinstance(value, bool) or not isinstance(value, kind):
        what = "a whole number" if name in _WHOLE else "a number"
        raise InvalidInput(f"{name} must be {what}, not {value!r}", field=name)
    if not low <= value <= high:
        raise InvalidInput(f"{name} must lie between {low:g} and {high:g}, not {value}", field=name)


def check_mapping(name: str, value: object) -> None:
    """A JSON object of a bounded size; raises InvalidInput naming what is wrong."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} must be a JSON object", field=name)
    try:
        text = json.dumps(dict(cast("Mapping[str, Any]", value)), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} holds what JSON cannot: {error}", field=name) from error
    check_storable(name, json.dumps(dict(cast("Mapping[str, Any]", value)), ensure_ascii=False))
    if len(text) > ARGS_CHARS_MAX:
        raise InvalidInput(f"{name} is {len(text)} characters long; at most {ARGS_CHARS_MAX}", field=name)


def _parse_value(name: str, text: str) -> Any:
    if name in _TEXTS:
        return text
    if name in _OPTIONAL and text.lower() in {"", "none", "null"}:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        what = "a JSON object" if name in {"args", "calendar", "requires"} else "a number"
        raise InvalidInput(f"{name} must be {what}, not {text!r}", field=name) from error


def _did_you_mean(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"


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
