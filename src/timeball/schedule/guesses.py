"""What somebody probably meant whose text is no list of fields at all. Owns the guesses; each is a text that parses."""

from __future__ import annotations

import re

from timeball.schedule.dialects import STANDARD, Dialect

_NUMBER_WORDS = {"a": 1, "an": 1, "one": 1, "two": 2, "five": 5, "ten": 10, "fifteen": 15, "thirty": 30}
_EVERY = re.compile(
    r"(?:@?every\s+)?(?:(\d{1,3}|[a-z]+)\s*)?(second|sec|s|minute|min|m|hour|hr|h|day|d|week|w)s?", re.IGNORECASE
)
_UNITS = {"s": ("s", 1), "m": ("m", 1), "h": ("h", 1), "d": ("h", 24), "w": ("h", 168)}
_TIME = re.compile(r"(\d{1,2})(?::(\d\d))?\s*(am|pm)?", re.IGNORECASE)
_DAY = r"(?:sun|mon|tue|wed|thu|fri|sat)[a-z]*"
_DAYS = re.compile(rf"({_DAY}(?:[-,]{_DAY})*)", re.IGNORECASE)
_FILLERS = re.compile(r"\b(?:at|every|each|on|daily|day)\b", re.IGNORECASE)
_DAY_NAME = re.compile(r"[a-z]+", re.IGNORECASE)
_WORDS = frozenset({"yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly", "reboot"})
_EVERY_DAY = frozenset({"every day", "each day", "day", "every midnight"})


def guess_interval(text: str) -> str | None:
    """Return an interval that is written in words as a duration, for example `5m`, or None."""
    match = _EVERY.fullmatch(text.strip())
    if match is None:
        return None
    number = match[1] or "1"
    count = int(number) if number.isdigit() else _NUMBER_WORDS.get(number.lower(), 0)
    unit, times = _UNITS[match[2][0].lower()]
    return f"{count * times}{unit}" if count else None


def guess_words(text: str, dialect: Dialect) -> str | None:
    """Return the schedule that a text says in words, such as `every 5 minutes` or `mon-fri 9:00`, or None."""
    words = " ".join(text.split())
    lowered = words.lower()
    if lowered in _WORDS:
        return f"@{lowered}"
    if lowered in _EVERY_DAY:
        return "@daily"
    interval = guess_interval(words)
    return f"@every {interval}" if interval else _guess_time(words, dialect)


def guess_layouts(text: str, dialect: Dialect) -> list[str]:
    """Return texts with the right number of fields that are near to one with a wrong number."""
    words = text.split()
    low, high = min(dialect.layouts), max(dialect.layouts)
    if len(words) == low - 1:
        second = ["0", *words[:-1], "?" if words[-1] == "*" else words[-1]]
        return [" ".join(second if dialect.one_of_two else [*words, "*"])]
    return [" ".join(words[:low])] if len(words) > high + 1 else []


def _guess_time(words: str, dialect: Dialect) -> str | None:
    """A time of day, with or without weekdays before or after it; weekdays alone mean midnight."""
    rest = _FILLERS.sub(" ", words)
    days = _DAYS.search(rest)
    rest = (rest if days is None else rest[: days.start()] + rest[days.end() :]).strip()
    time = _TIME.fullmatch(rest if rest or days is None else "0:00")
    if time is None or not (time[2] or time[3]):
        return None
    hour, minute = int(time[1]), int(time[2] or 0)
    if time[3]:
        hour = hour % 12 + (12 if time[3].lower() == "pm" else 0)
    if hour > 23 or minute > 59:
        return None
    second = "" if dialect is STANDARD else "0 "
    named = "*" if days is None else _DAY_NAME.sub(lambda match: match.group()[:3].lower(), days[1])
    day = "?" if dialect.one_of_two else "*"
    return f"{second}{minute} {hour} {day} * {named}"
