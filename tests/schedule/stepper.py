"""A slow and simple answer to "when is it due": walk over a stretch second by second and look at the wall clock.

Written apart from the engine: it shares no code with it, reads no cron text, and asks `zoneinfo` for each second.
"""

from __future__ import annotations

import calendar
import functools
import importlib.resources
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE_EPOCH = datetime(1970, 1, 1)
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True)
class Drawn:
    """An expression as text and, apart from it, as what it means."""

    text: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    day: Callable[[date], bool]
    fixed: bool

    def matches(self, wall: datetime) -> bool:
        return (
            wall.second in self.seconds
            and wall.minute in self.minutes
            and wall.hour in self.hours
            and self.day(wall.date())
        )


@functools.cache
def zone(name: str) -> ZoneInfo:
    source = importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with source.open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@functools.cache
def zone_names() -> tuple[str, ...]:
    """One name per different zone: the aliases of a zone have the same file."""
    root = importlib.resources.files("tzdata")
    names = sorted(root.joinpath("zones").read_text("utf-8").split())
    files = {root.joinpath("zoneinfo", *name.split("/")).read_bytes(): name for name in reversed(names)}
    return tuple(sorted(files.values()))


def offset_at(info: ZoneInfo, second: int) -> int:
    offset = (EPOCH + timedelta(seconds=second)).astimezone(info).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def transitions(name: str, first_year: int, last_year: int) -> list[int]:
    """The seconds at which the offset changes, found by looking at each half day."""
    info = zone(name)
    start = round(datetime(first_year, 1, 1, tzinfo=UTC).timestamp())
    end = round(datetime(last_year + 1, 1, 1, tzinfo=UTC).timestamp())
    found: list[int] = []
    low, before = start, offset_at(info, start)
    while low < end:
        high = low + 43_200
        after = offset_at(info, high)
        if after != before:
            left, right = low, high
            while right - left > 1:
                middle = (left + right) // 2
                left, right = (middle, right) if offset_at(info, middle) == before else (left, middle)
            found.append(right)
        low, before = high, after
    return found


def walls(name: str, start: int, end: int) -> list[datetime]:
    """What the wall clock shows at each second of `start <= second < end`."""
    info = zone(name)
    moment, one = EPOCH + timedelta(seconds=start), timedelta(seconds=1)
    shown: list[datetime] = []
    for _ in range(end - start):
        shown.append(moment.astimezone(info).replace(tzinfo=None, fold=0))
        moment += one
    return shown


def elapsed_ticks(drawn: Drawn, shown: list[datetime], start: int) -> list[int]:
    """A tick is each second at which the clock shows a matching time."""
    return [start + index for index, wall in enumerate(shown) if drawn.matches(wall)]


def fixed_ticks(drawn: Drawn, shown: list[datetime], start: int) -> list[int]:
    """Keep the latest time that was shown; a tick is each second that brings matching times not shown before.

    The first second only sets the mark.
    """
    one = timedelta(seconds=1)
    latest, ticks = shown[0], []
    for index, wall in enumerate(shown):
        due = False
        while latest < wall:
            latest += one
            due = due or drawn.matches(latest)
        if due:
            ticks.append(start + index)
    return ticks


def draw(random_: random.Random, near: datetime) -> Drawn:
    """Draw an expression whose times lie around the wall time `near`."""
    minute_text, minutes, minute_flows = _draw_minute(random_, near)
    hour_text, hours, hour_flows = _draw_hour(random_, near)
    second_text, seconds = random_.choice([(None, {0}), (None, {0}), ("30", {30}), ("*/20", {0, 20, 40}), ("59", {59})])
    day_text, day = _draw_day(random_, near.date())
    text = f"{minute_text} {hour_text} {day_text}"
    return Drawn(
        text=text if second_text is None else f"{second_text} {text}",
        seconds=frozenset(seconds),
        minutes=frozenset(minutes),
        hours=frozenset(hours),
        day=day,
        fixed=not (minute_flows or hour_flows),
    )


def _draw_minute(random_: random.Random, near: datetime) -> tuple[str, set[int], bool]:
    kind = random_.randrange(6)
    if kind == 0:
        return "*", set(range(60)), True
    if kind == 1:
        step = random_.choice([2, 7, 15, 20, 30, 45])
        return f"*/{step}", set(range(0, 60, step)), True
    if kind == 2:
        low, high = sorted(random_.sample(range(60), 2))
        step = random_.randint(1, 20)
        return f"{low}-{high}/{step}", set(range(low, high + 1, step)), False
    if kind == 3:
        values = random_.sample(range(60), 3)
        return ",".join(map(str, values)), set(values), False
    value = random_.choice([0, 1, 30, 59, near.minute, random_.randrange(60)])
    return str(value), {value}, False


def _draw_hour(random_: random.Random, near: datetime) -> tuple[str, set[int], bool]:
    kind = random_.randrange(7)
    if kind == 0:
        return "*", set(range(24)), True
    if kind == 1:
        step = random_.choice([2, 3, 5, 6])
        return f"*/{step}", set(range(0, 24, step)), True
    around = [(near.hour + shift) % 24 for shift in (-2, -1, 0, 1)]
    if kind == 2:
        values = random_.sample(around, 2)
        return ",".join(map(str, values)), set(values), False
    if kind == 3:
        low, high = sorted(random_.sample(around, 2))
        return f"{low}-{high}", set(range(low, high + 1)), False
    value = random_.choice(around)
    return str(value), {value}, False


def _draw_day(random_: random.Random, near: date) -> tuple[str, Callable[[date], bool]]:
    value = (near + timedelta(days=random_.randint(-1, 1))).day
    weekday = random_.randrange(7)
    last = random_.choice(["L", "LW"])
    nth = (near.day + 6) // 7
    choices: list[tuple[str, Callable[[date], bool]]] = [
        ("* * *", lambda day: True),
        ("* * *", lambda day: True),
        ("* * *", lambda day: True),
        (f"{value} * *", lambda day: day.day == value),
        (f"* * {WEEKDAYS[weekday]}", lambda day: day.isoweekday() % 7 == weekday),
        (f"{value} * {weekday}", lambda day: day.day == value or day.isoweekday() % 7 == weekday),
        (f"*/2 * {weekday}", lambda day: day.day % 2 == 1 and day.isoweekday() % 7 == weekday),
        (f"{last} * *", lambda day: day == _last_day(day, last)),
        (f"* * {weekday}L", lambda day: day.isoweekday() % 7 == weekday and day.day + 7 > _length(day)),
        (f"* * 0#{nth}", lambda day: day.isoweekday() == 7 and (day.day + 6) // 7 == nth),
        (f"{value}W * *", lambda day: day == _nearest_weekday(day, value)),
        (f"* {near.month} *", lambda day: day.month == near.month),
    ]
    return random_.choice(choices)


def _length(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def _last_day(day: date, kind: str) -> date:
    last = day.replace(day=_length(day))
    while kind == "LW" and last.isoweekday() > 5:
        last -= timedelta(days=1)
    return last


def _nearest_weekday(day: date, wanted: int) -> date | None:
    """The Monday to Friday of the month with the smallest distance to day `wanted`."""
    if wanted > _length(day):
        return None
    target = day.replace(day=wanted)
    return min(_workdays(day), key=lambda other: (abs((other - target).days), other))


def _workdays(day: date) -> Iterator[date]:
    for number in range(1, _length(day) + 1):
        if day.replace(day=number).isoweekday() <= 5:
            yield day.replace(day=number)
