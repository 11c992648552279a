"""The fields of a job one by one: what each may hold, and how it is read from text. Knows no job."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, cast

from timeball.errors import InvalidInput

NAME_CHARS_MAX = 200
ARGS_CHARS_MAX = 65_536
LIMITS_MAX = 10
_NAME = re.compile(r"[^\x00-\x1f\x7f]+")
_DECADE_SECONDS = 10 * 366 * 86_400
SPANS: dict[str, tuple[float, float]] = {
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
        "retry_on",
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


def check_limits(value: object) -> tuple[str, ...]:
    """The limits that a job names: each once, in order of their names."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidInput(f"limits must be a list of names, not {value!r}", field="limits")
    names: list[str] = []
    for name in cast("Sequence[object]", value):
        if not isinstance(name, str):
            raise InvalidInput(f"limits must be a list of names; {name!r} is none", field="limits")
        names.append(check_name(name, "limits"))
    if len(set(names)) < len(names):
        raise InvalidInput("limits holds a name twice", field="limits")
    if len(names) > LIMITS_MAX:
        raise InvalidInput(f"limits holds {len(names)} names; at most {LIMITS_MAX}", field="limits")
    return tuple(sorted(names))


def requires_key(labels: Mapping[str, str]) -> str:
    """Labels as one canonical text, `gpu=1,zone=a`; empty when nothing is required."""
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def check_choice(name: str, value: object, allowed: type[StrEnum]) -> None:
    choices = [str(member) for member in allowed]
    if value not in choices:
        hint = f"one of {', '.join(choice or 'nothing' for choice in choices)}"
        raise InvalidInput(f"{name} cannot be {value!r}", hint=hint, field=name)


def check_span(name: str, value: object, low: float, high: float) -> None:
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


def parse_value(name: str, text: str) -> Any:
    if name in _TEXTS:
        return text
    if name == "limits" and not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    if name in _OPTIONAL and text.lower() in {"", "none", "null"}:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        what = (
            "a list of names"
            if name == "limits"
            else "a JSON object"
            if name in {"args", "calendar", "requires"}
            else "a number"
        )
        raise InvalidInput(f"{name} must be {what}, not {text!r}", field=name) from error


def did_you_mean(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
