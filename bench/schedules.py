"""Microseconds per next tick, beside croniter and CronSim: `./dev bench schedules`, or run this file.

Each shape is followed for a number of ticks from one instant; the best of several rounds counts. Reading the text is
measured apart. Nothing is checked here: the tests do that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice

from croniter import croniter
from cronsim import CronSim

from timeball.schedule import Schedule, apply_calendar, parse, resolve_zone

START = datetime(2025, 3, 1, tzinfo=UTC)
ZONE = "Europe/Berlin"
ROUNDS = 5
SHAPES = (
    ("every minute", "* * * * *", 2000),
    ("every 5 minutes", "*/5 * * * *", 2000),
    ("working hours", "*/15 9-17 * * 1-5", 2000),
    ("daily", "30 2 * * *", 1000),
    ("weekdays", "0 9 * * 1-5", 1000),
    ("monthly", "0 0 1 * *", 200),
    ("day or weekday", "0 0 13 * 5", 500),
    ("last day", "0 0 L * *", 200),
    ("last Friday", "0 0 * * 5L", 200),
    ("second Monday", "0 9 * * 1#2", 200),
    ("yearly", "0 0 1 1 *", 30),
    ("29 February", "0 0 29 2 *", 10),
    ("Friday 13th", "0 0 */13 * 5", 100),
)
CLOSED = ("sat,sun", "12-24..01-02", "2026-05-14")
CALENDARS = (
    ("every 15 minutes", "*/15 * * * *", 2000),
    ("daily", "0 9 * * *", 1000),
    ("weekdays", "0 9 * * 1-5", 1000),
    ("monthly", "0 0 1 * *", 200),
    ("yearly", "0 0 1 1 *", 30),
)


def best_us(follow: Callable[[int], None], ticks: int) -> float:
    """Return the microseconds per tick of the fastest round."""
    times: list[float] = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        follow(ticks)
        times.append(time.perf_counter() - begin)
    return min(times) / ticks * 1e6


def ours(text: str) -> Callable[[int], None]:
    return following(parse(text, timezone=ZONE))


def rolled(text: str, roll: str) -> Callable[[int], None]:
    return following(apply_calendar(parse(text, timezone=ZONE), {"exclude": CLOSED, "roll": roll}))


def following(schedule: Schedule) -> Callable[[int], None]:
    start = int(START.timestamp()) * 1_000_000

    def follow(ticks: int) -> None:
        tick = start
        for _ in range(ticks):
            tick = schedule.next_after(tick)
            assert tick is not None

    return follow


def theirs_cronsim(text: str) -> Callable[[int], None]:
    start = START.astimezone(resolve_zone(ZONE))

    def follow(ticks: int) -> None:
        for _ in islice(CronSim(text, start), ticks):
            pass

    return follow


def theirs_croniter(text: str) -> Callable[[int], None]:
    start = START.astimezone(resolve_zone(ZONE))

    def follow(ticks: int) -> None:
        iterator = croniter(text.replace("5L", "L5"), start)
        for _ in range(ticks):
            iterator.get_next(datetime)

    return follow


def many_schedules(count: int) -> tuple[float, float]:
    """Return the seconds to read `count` different expressions, and to find the ticks of an hour for all of them."""
    texts = [f"{n % 60} {n // 60 % 24} {n // 1440 % 28 + 1} * {n // 40_320 % 7}" for n in range(count)]
    begin = time.perf_counter()
    schedules = [parse(text, timezone=ZONE) for text in texts]
    read = time.perf_counter()
    start = int(START.timestamp()) * 1_000_000
    for schedule in schedules:
        schedule.between(start, start + 3_600_000_000)
    return read - begin, time.perf_counter() - read


def main() -> None:
    print(f"microseconds per next tick, zone {ZONE}, best of {ROUNDS} rounds\n")
    print(f"{'shape':16} {'expression':20} {'timeball':>9} {'cronsim':>9} {'croniter':>9}")
    for name, text, ticks in SHAPES:
        figures = [best_us(make(text), ticks) for make in (ours, theirs_cronsim, theirs_croniter)]
        print(f"{name:16} {text:20} " + " ".join(f"{figure:9.2f}" for figure in figures))
    print(f"\nwith a calendar ({', '.join(CLOSED)})\n")
    print(f"{'shape':16} {'expression':20} {'next':>9} {'previous':>9}")
    for name, text, ticks in CALENDARS:
        figures = [best_us(rolled(text, roll), ticks) for roll in ("next", "previous")]
        print(f"{name:16} {text:20} " + " ".join(f"{figure:9.2f}" for figure in figures))
    count = 100_000
    read, planned = many_schedules(count)
    print(f"\n{count} different expressions: read in {read:.2f} s, the ticks of one hour found in {planned:.2f} s")


if __name__ == "__main__":
    main()
