"""A job's calendar: when its schedule is closed, and what becomes of ticks that lie there. Knows no rule's grammar.

The content goes with the job (`exclude`), so that the history of a job says what was closed when; `name` only says
which named calendar it came from.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, cast

from timeball.errors import InvalidInput

CALENDAR_CHARS_MAX = 60_000
NAME_CHARS_MAX = 200


class Roll(StrEnum):
    """What becomes of a tick on a closed day."""

    SKIP = "skip"
    PREVIOUS = "previous"
    NEXT = "next"


KEYS = ("name", "exclude", "timezone", "roll")


def check_calendar(value: object) -> None:
    """Refuse what is no calendar of a job: an empty object, or `name` or `exclude` with `timezone` and `roll`."""
    if not isinstance(value, Mapping):
        raise _wrong("calendar must be a JSON object or the name of a calendar")
    calendar = cast("Mapping[str, Any]", value)
    _check_keys(calendar)
    for key in ("name", "timezone", "roll"):
        if not isinstance(calendar.get(key, ""), str):
            raise _wrong(f"{key} of calendar must be text")
    if calendar.get("roll", Roll.SKIP) not in list(Roll):
        raise _wrong(f"roll cannot be {calendar['roll']!r}", f"one of {', '.join(Roll)}")
    check_rules(calendar.get("exclude", []))
    if calendar and not calendar.get("name") and "exclude" not in calendar:
        raise _wrong("calendar says nothing of what is closed", "a name of a calendar, or exclude with rules")
    size = len(json.dumps(dict(calendar), ensure_ascii=False))
    if size > CALENDAR_CHARS_MAX:
        raise _wrong(f"calendar is {size} characters long", f"at most {CALENDAR_CHARS_MAX}; name fewer years")


def _check_keys(calendar: Mapping[str, Any]) -> None:
    for key in calendar:
        if key not in KEYS:
            close = difflib.get_close_matches(str(key), KEYS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(KEYS)}"
            raise _wrong(f"calendar has no {key!r}", hint)


def check_rules(value: object) -> None:
    """Refuse what is no list of texts."""
    if not isinstance(value, list | tuple) or not all(isinstance(rule, str) for rule in cast("list[object]", value)):
        raise _wrong("exclude of calendar must be a list of rules", 'for example ["sat,sun", "12-25"]')


def named_calendar(value: object) -> object:
    """A name is short for a calendar of that name; an empty one takes the calendar off."""
    if isinstance(value, str):
        return {"name": value} if value else {}
    return value


def _wrong(message: str, hint: str | None = None) -> InvalidInput:
    return InvalidInput(message, hint=hint, field="calendar")
