"""The rules of a calendar as text. Owns their grammar; knows nothing of zones and schedules.

A rule is one or more days (`2026-12-25`, `2026-12-24..2027-01-02`, each year `12-24..01-02`), a stretch between two
times (`2026-12-24 12:00..2026-12-26 08:00`), or what comes each week (`sat,sun`, `mon-fri 00:00-06:00`, `22:00-06:00`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from timeball.errors import ScheduleError
from timeball.schedule.days import EPOCH_ORDINAL
from timeball.schedule.refusals import refusal
from timeball.schedule.segments import DAY_SECONDS

RULES_MAX = 5000
RULE_CHARS_MAX = 100
WEEK_SECONDS = 7 * DAY_SECONDS
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONG = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_YEAR_MIN, _YEAR_MAX = 1000, 9000
_LENGTHS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FORMS = "write for example 2026-12-25, 2026-12-24..2027-01-02, 12-25, sat,sun or mon-fri 00:00-06:00"
_MOMENT = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[t ]+(\d\d:\d\d))?")
_YEARLY = re.compile(r"(\d\d)-(\d\d)")
_WINDOW = re.compile(r"(?:(?P<days>[a-z][a-z, -]*?)\s*)??(?:(?P<start>\d\d:\d\d)\s*-\s*(?P<end>\d\d:\d\d))?")

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions:
    """What the rules close, in wall seconds. Spans are ascending, apart from each other, ends exclusive.

    `once`: since the epoch. `weekly`: since the start of Sunday. `yearly`: (month, day) to (month, day), both included.
    """

    once: tuple[Span, ...]
    weekly: tuple[Span, ...]
    yearly: tuple[tuple[Span, Span], ...]


def read_rules(rules: Iterable[str]) -> Exclusions:
    """Read the rules. Raises ScheduleError naming the one that is wrong, and what would be right."""
    once: list[Span] = []
    weekly: list[Span] = []
    yearly: list[tuple[Span, Span]] = []
    for number, rule in enumerate(rules):
        if number >= RULES_MAX:
            raise wrong(f"there are more than {RULES_MAX} rules", "name fewer years")
        text = _clean(rule)
        if ".." in text or _MOMENT.fullmatch(text) or _YEARLY.fullmatch(text):
            first, last = _ends(rule, text)
            if _YEARLY.fullmatch(first) and _YEARLY.fullmatch(last):
                yearly.append((_month_day(rule, first), _month_day(rule, last)))
            else:
                once.append(_stretch(rule, first, last))
        else:
            weekly.extend(_windows(rule, text))
    return Exclusions(once=tuple(merged(once)), weekly=tuple(merged(weekly)), yearly=tuple(yearly))


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, joined where they touch."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        elif start < end:
            found.append((start, end))
    return found


def wrong(message: str, hint: str = _FORMS, *, kind: str = "bad-exclusion") -> ScheduleError:
    """Make the error for a calendar that cannot be used."""
    error = refusal(kind, message, hint=hint)
    error.field = "calendar"
    return error


def _clean(rule: str) -> str:
    text = " ".join(rule.casefold().split())
    if not text:
        raise wrong("a rule is empty")
    if len(text) > RULE_CHARS_MAX:
        raise wrong(f"the rule {rule[:30]!a}… is longer than {RULE_CHARS_MAX} characters")
    return text


def _ends(rule: str, text: str) -> tuple[str, str]:
    parts = [part.strip() for part in text.split("..")]
    if len(parts) > 2 or not all(parts):
        raise wrong(f"{rule!a} is no stretch of days", "write 2026-12-24..2027-01-02, or 12-24..01-02 for each year")
    return parts[0], parts[-1]


def _stretch(rule: str, first: str, last: str) -> Span:
    start, end = _moment(rule, first)[0], _moment(rule, last)[1]
    if end <= start:
        raise wrong(f"{rule!a} ends before it begins", f"write {last}..{first}")
    return start, end


def _moment(rule: str, text: str) -> Span:
    """Read a day as from its start to its end; a day with a time as that instant, twice."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise wrong(f"{rule!a} cannot be read: {text[:30]!a} is no day")
    year, month, day = (int(part) for part in match.groups()[:3])
    try:
        number = date(year, month, day).toordinal() - EPOCH_ORDINAL
    except ValueError as error:
        raise wrong(f"{rule!a} is not on the calendar ({error})") from None
    if not _YEAR_MIN <= year <= _YEAR_MAX:
        raise wrong(f"{rule!a}: the year is outside {_YEAR_MIN} to {_YEAR_MAX}")
    start = number * DAY_SECONDS
    if match[4] is None:
        return start, start + DAY_SECONDS
    return start + _time(rule, match[4]), start + _time(rule, match[4])


def _month_day(rule: str, text: str) -> Span:
    month, day = int(text[:2]), int(text[3:])
    if not 1 <= month <= 12 or not 1 <= day <= _LENGTHS[month]:
        raise wrong(f"{rule!a}: {text} is no day of a year", "write the month first: 12-25")
    return month, day


def _windows(rule: str, text: str) -> list[Span]:
    match = _WINDOW.fullmatch(text)
    if match is None:
        raise wrong(f"{rule!a} cannot be read")
    days = _weekdays(rule, match["days"]) if match["days"] else list(range(7))
    start, end = 0, DAY_SECONDS
    if match["start"]:
        start, end = _time(rule, match["start"]), _time(rule, match["end"])
        if start == end:
            raise wrong(f"{rule!a} has no length", "for whole days write the days alone: sat,sun")
        end += DAY_SECONDS if end < start else 0
    found: list[Span] = []
    for day in days:
        first, last = day * DAY_SECONDS + start, day * DAY_SECONDS + end
        found.append((first, min(last, WEEK_SECONDS)))
        if last > WEEK_SECONDS:
            found.append((max(first - WEEK_SECONDS, 0), last - WEEK_SECONDS))
    return found


def _weekdays(rule: str, text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        ends = [_weekday(rule, name.strip()) for name in part.split("-")]
        if len(ends) > 2:
            raise wrong(f"{rule!a} cannot be read: {part.strip()!a} is no range of days", "write mon-fri")
        found.extend((ends[0] + step) % 7 for step in range((ends[-1] - ends[0]) % 7 + 1))
    return found


def _weekday(rule: str, name: str) -> int:
    for names in (WEEKDAYS, _LONG):
        if name in names:
            return names.index(name)
    close = difflib.get_close_matches(name, (*WEEKDAYS, *_LONG), n=1)
    raise wrong(f"{rule!a}: {name!a} is no weekday", f"did you mean {close[0]}?" if close else _FORMS)


def _time(rule: str, text: str) -> int:
    hour, minute = int(text[:2]), int(text[3:])
    if minute > 59 or hour * 60 + minute > 24 * 60:
        raise wrong(f"{rule!a}: {text} is no time of day", "use 00:00 to 24:00")
    return hour * 3600 + minute * 60
