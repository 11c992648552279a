"""Why a schedule's text is refused. Owns the stable kinds; knows nothing of how the text is read."""

from __future__ import annotations

from timeball.errors import ScheduleError

KINDS: dict[str, str] = {
    "bad-duration": "the text after `@every` is not a duration",
    "bad-exclusion": "a rule of a calendar cannot be read",
    "bad-instant": "the text after `@at` is not an instant",
    "bad-union": "one of the parts around `|` is empty or is not a schedule",
    "cannot-roll": "ticks of this schedule cannot move to another day of this calendar",
    "day-and-weekday": "the quartz dialect takes either days of the month or weekdays, not both",
    "field-count": "too few or too many fields for the dialect",
    "in-the-past": "the schedule has no tick after now",
    "interval-not-positive": "`@every` with a zero or negative duration",
    "interval-too-long": "`@every` with more than a hundred years",
    "interval-too-short": "`@every` with less than a second",
    "never-fires": "no date of the calendar matches",
    "non-ascii": "a character outside ASCII, for example a full-width digit",
    "out-of-range": "a value outside the span of its field",
    "reversed-range": "a range whose start is larger than its end",
    "step-too-large": "a step that is larger than the span of its field",
    "syntax": "a part of a field that the grammar does not know",
    "too-long": "more characters or more parts than a schedule may have",
    "unknown-dialect": "no such dialect",
    "unknown-dst": "no such rule for daylight saving",
    "unknown-macro": "no such `@` word",
    "unknown-name": "no such month or weekday",
    "unknown-zone": "no such time zone in the tz database",
    "unsupported": "known elsewhere, but not in this dialect or not yet",
    "zero-step": "a step of zero",
}


def refusal(kind: str, message: str, *, position: int | None = None, hint: str | None = None) -> ScheduleError:
    """Make the error for a text that cannot be accepted; `position` is a 0-based index into the whole text."""
    assert kind in KINDS, kind
    return ScheduleError(message, kind=kind, position=position, hint=hint)
