"""Calendars: rules and what is refused; and ticks with closures against a plain walk over the unclosed ticks."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule.stepper import EPOCH, NAIVE_EPOCH, zone
from timeball.errors import InvalidInput, ScheduleError
from timeball.model.job import Definition
from timeball.schedule import Schedule, apply_calendar, parse, schedule_of
from timeball.schedule.bounded import Bounded
from timeball.schedule.closures import closures_of

SECOND = 1_000_000
DAY = 86_400 * SECOND
BASE: dict[str, Any] = {"schedule": "0 9 * * *", "executor": "function", "target": {"name": "f"}}
PLACES = (
    ("Europe/Berlin", datetime(2024, 3, 20)),
    ("Europe/Berlin", datetime(2024, 10, 18)),
    ("Australia/Lord_Howe", datetime(2025, 9, 28)),
    ("Australia/Lord_Howe", datetime(2025, 3, 28)),
    ("America/Sao_Paulo", datetime(2017, 10, 6)),
    ("America/Sao_Paulo", datetime(2018, 2, 9)),
    ("Pacific/Apia", datetime(2011, 12, 22)),
    ("America/St_Johns", datetime(2006, 10, 22)),
)
CRONS = (
    "*/20 * * * *",
    "30 0 * * *",
    "15 2,23 * * *",
    "0 0 * * *",
    "45 1 * * sun,mon,fri",
    "@every 1h7m",
    "@every 1.5h",
)
Closed = Callable[[datetime], bool]


def us(moment: datetime) -> int:
    return round((moment - NAIVE_EPOCH).total_seconds()) * SECOND


def wall_of(name: str, tick: int) -> datetime:
    return (EPOCH + timedelta(microseconds=tick)).astimezone(zone(name)).replace(tzinfo=None, fold=0)


def draw_days(random_: random.Random, near: datetime) -> tuple[str, Closed]:
    day = near.date() + timedelta(days=random_.randrange(20))
    last = day + timedelta(days=random_.randrange(4))
    weekday, length = random_.randrange(7), random_.randrange(3)
    names = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    return random_.choice(
        [
            (f"{day}", lambda wall: wall.date() == day),
            (f"{day}..{last}", lambda wall: day <= wall.date() <= last),
            (f"{day:%m-%d}..{last:%m-%d}", lambda wall: _in_year(wall.date(), day, last)),
            (
                f"{names[weekday]}-{names[(weekday + length) % 7]}",
                lambda wall: (wall.weekday() - weekday) % 7 <= length,
            ),
        ]
    )


def _in_year(day: date, first: date, last: date) -> bool:
    start, end, now = ((when.month, when.day) for when in (first, last, day))
    return start <= now <= end if start <= end else now >= start or now <= end


def draw_times(random_: random.Random, near: datetime) -> tuple[str, Closed]:
    start = near + timedelta(days=random_.randrange(20), minutes=30 * random_.randrange(48))
    end = start + timedelta(minutes=30 * random_.randrange(1, 99))
    first = random_.randrange(48)
    last = (first + random_.randrange(1, 40)) % 48
    low, high = (f"{half // 2:02d}:{half % 2 * 30:02d}" for half in (first, last))

    def daily(wall: datetime) -> bool:
        half = wall.hour * 2 + wall.minute // 30
        return first <= half < last if first < last else half >= first or half < last

    return random_.choice(
        [(f"{low}-{high}", daily), (f"{start:%Y-%m-%d %H:%M}..{end:%Y-%m-%d %H:%M}", lambda wall: start <= wall < end)]
    )


def ticks_of(schedule: Schedule, start: int, end: int) -> list[int]:
    return schedule.between(start - 1, end)


def compare(schedule: Schedule, right: list[int], start: int, end: int, random_: random.Random) -> None:
    right = [tick for tick in right if start < tick <= end]
    assert schedule.between(start, end) == right
    for _ in range(20):
        since = random_.choice([random_.randrange(start, end), *right[:50]]) + random_.choice([-1, 0, 1])
        until = random_.randrange(since, end + 1) if since <= end else end
        assert schedule.count_between(since, until) == sum(since < tick <= until for tick in right)
        before = [tick for tick in right if tick < since]
        if before:
            assert schedule.previous_before(since) == before[-1]


@pytest.mark.parametrize("seed", range(80))
def test_closed_ticks_are_left_out_as_a_walk_over_all_ticks_says(seed: int) -> None:
    random_ = random.Random(seed)
    name, near = PLACES[seed % len(PLACES)]
    drawn = [random_.choice([draw_days, draw_times])(random_, near) for _ in range(random_.randrange(1, 4))]
    inner = parse(random_.choice(CRONS), timezone=name, anchor=us(near))
    try:
        schedule = apply_calendar(inner, {"exclude": [text for text, _ in drawn]})
    except ScheduleError as error:
        assert error.code == "never-fires"
        return
    start, end = us(near), us(near) + 20 * DAY
    right = [
        tick for tick in ticks_of(inner, start, end) if not any(closed(wall_of(name, tick)) for _, closed in drawn)
    ]
    compare(schedule, right, start, end, random_)


@functools.cache
def first_showing(name: str, wall: datetime) -> int:
    """The first instant, to the minute, at which the clock shows `wall` or later."""
    tick = us(wall) - 15 * 3600 * SECOND
    while wall_of(name, tick) < wall:
        tick += 60 * SECOND
    return tick


@pytest.mark.parametrize("roll", ["next", "previous"])
@pytest.mark.parametrize("seed", range(24))
def test_rolled_ticks_move_as_a_plain_walk_moves_them(seed: int, roll: str) -> None:
    random_ = random.Random(seed)
    name, near = PLACES[seed % len(PLACES)]
    drawn = [draw_days(random_, near) for _ in range(random_.randrange(1, 4))]
    text = random_.choice([cron for cron in CRONS if cron[:3] != "*/2"])
    inner = parse(text, timezone=name, anchor=us(near) - 50 * DAY)
    rules = [rule for rule, _ in drawn]
    try:
        schedule = apply_calendar(inner, {"exclude": rules, "roll": roll})
    except ScheduleError as error:
        assert error.code == "never-fires"
        return
    start, end = us(near) - 20 * DAY, us(near) + 40 * DAY
    right: set[int] = set()
    for tick in ticks_of(inner, start, end):
        wall = target = wall_of(name, tick)
        while any(closed(target) for _, closed in drawn) or (name, target.date()) == (
            "Pacific/Apia",
            date(2011, 12, 30),
        ):
            target += timedelta(days=1 if roll == "next" else -1)
        if target == wall:
            right.add(tick)
        else:
            whole = target.replace(second=0, microsecond=0)
            shown = first_showing(name, whole)
            exact = wall_of(name, shown) == whole
            right.add(shown + (us(target) - us(whole) if exact else 0))
    compare(schedule, sorted(right), us(near), us(near) + 20 * DAY, random_)


@pytest.mark.parametrize(
    ("rule", "closed"),
    [
        ("2026-12-25", ["2026-12-25"]),
        ("2026-12-30..2027-01-02", ["2026-12-30", "2026-12-31"]),
        ("12-30..01-02", ["2026-01-01", "2026-01-02", "2026-12-30", "2026-12-31"]),
        ("02-28..02-29", ["2026-02-28"]),
        ("02-29", []),
    ],
)
def test_a_rule_of_days_closes_whole_days(rule: str, closed: list[str]) -> None:
    assert [(str(day), whole) for day, whole in closures_of((rule,)).closed_days(2026)] == [(d, True) for d in closed]


@pytest.mark.parametrize(
    ("rules", "kind", "said"),
    [
        ([], "bad-exclusion", "no rule"),
        ([" "], "bad-exclusion", "empty"),
        (["satur"], "bad-exclusion", "did you mean saturday?"),
        (["2026-02-30"], "bad-exclusion", "not on the calendar"),
        (["0999-01-01"], "bad-exclusion", "outside 1000 to 9000"),
        (["25-12"], "bad-exclusion", "month first"),
        (["2027-01-02..2026-12-24"], "bad-exclusion", "write 2026-12-24..2027-01-02"),
        (["2026-01-01..2026-01-02..2026-01-03"], "bad-exclusion", "no stretch"),
        (["09:00-09:00"], "bad-exclusion", "no length"),
        (["09:00-24:30"], "bad-exclusion", "no time of day"),
        (["mon-wed-fri"], "bad-exclusion", "no range of days"),
        (["8am"], "bad-exclusion", "cannot be read"),
        (["1" * 101], "bad-exclusion", "longer than 100"),
        (["12-25"] * 5001, "bad-exclusion", "more than 5000"),
        ([f"{h:02d}:{m:02d}-{h:02d}:{m + 1:02d}" for h in range(3) for m in range(0, 59, 2)], "bad-exclusion", "250"),
        (["mon-fri", "sat-sun"], "never-fires", "closed always"),
        (["01-01..06-30", "07-01..12-31"], "never-fires", "closed always"),
    ],
)
def test_what_is_refused_says_what_would_be_right(rules: list[str], kind: str, said: str) -> None:
    with pytest.raises(ScheduleError) as raised:
        schedule_of(Definition.from_dict({**BASE, "calendar": {"exclude": rules}}), name="j", anchor_at=0)
    assert (raised.value.code, raised.value.field) == (kind, "calendar")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("text", "rule"), [("0 9 * * *", "12:00-13:00"), ("*/5 * * * *", "sat"), ("0 9 * * *", "2026-01-01..2026-06-01")]
)
def test_what_cannot_roll_is_refused(text: str, rule: str) -> None:
    calendar = {"exclude": [rule], "roll": "next"}
    with pytest.raises(ScheduleError) as raised:
        apply_calendar(parse(text), calendar)
    assert raised.value.code == "cannot-roll"
    apply_calendar(parse(text), {**calendar, "roll": "skip"})


@pytest.mark.parametrize(
    "calendar",
    [
        {"exclud": ["sat"]},
        {"roll": "next"},
        {"exclude": "sat"},
        {"exclude": [1]},
        {"exclude": ["sat"], "roll": "up"},
        {"name": 5},
        {"exclude": ["12-25"] * 10_000},
        ["sat"],
    ],
)
def test_a_definition_takes_only_calendars(calendar: object) -> None:
    with pytest.raises(InvalidInput) as raised:
        Definition.from_dict({**BASE, "calendar": calendar})
    assert raised.value.field == "calendar"


def test_a_name_without_content_and_a_schedule_that_follows_its_runs_are_refused() -> None:
    for text, calendar in (("0 9 * * *", {"name": "de"}), ("@after 5m", {"exclude": ["sat"]})):
        with pytest.raises(ScheduleError) as raised:
            apply_calendar(parse(text), calendar)
        assert raised.value.field == "calendar"


def test_bounds_lie_outside_of_the_calendar() -> None:
    values = {**BASE, "calendar": {"exclude": ["sat,sun"], "roll": "next"}, "end_at": "2026-12-05 12:00"}
    schedule = schedule_of(Definition.from_dict(values), name="j", anchor_at=0)
    assert schedule.next_after(us(datetime(2026, 12, 3, 12))) == us(datetime(2026, 12, 4, 9))
    assert schedule.next_after(us(datetime(2026, 12, 4, 12))) is None


def test_the_rules_hold_in_the_zone_of_the_calendar_or_else_of_the_schedule() -> None:
    friday_night = us(datetime(2026, 12, 4, 20))
    for zone_, closed in (("Asia/Tokyo", True), ("UTC", False)):
        calendar = {"exclude": ["sat"], "timezone": zone_}
        assert (apply_calendar(parse("0 20 * * *"), calendar).next_after(friday_night - 1) != friday_night) is closed
    own = apply_calendar(parse("TZ=Asia/Tokyo 0 5 * * *"), {"exclude": ["sat"]})
    assert own.next_after(friday_night - 1) == friday_night + DAY


def test_definitions_of_before_read_and_write_the_same_text() -> None:
    text = Definition.from_dict(BASE).to_json()
    assert "calendar" not in text
    assert Definition.from_json(text).calendar == {}


def test_a_search_goes_over_a_hundred_closed_stretches() -> None:
    rules = [f"{year}-12-25" for year in range(2000, 2101)]
    schedule = apply_calendar(parse("0 12 25 12 *"), {"exclude": rules})
    assert schedule.next_after(us(datetime(2000, 1, 1))) == us(datetime(2101, 12, 25, 12))
    assert schedule.previous_before(us(datetime(2101, 1, 1))) == us(datetime(1999, 12, 25, 12))


class Asked(Bounded):
    """A schedule that counts how often it is asked."""

    times = 0

    def next_after(self, instant: int) -> int | None:
        self.times += 1
        return super().next_after(instant)


def test_a_search_that_meets_the_same_again_asks_no_more() -> None:
    inner = Asked(parse("0 12 25 12 *"), first=None, last=None)
    schedule = apply_calendar(inner, {"exclude": ["2500-01-01", "12-25"]})
    assert schedule.next_after(us(datetime(2026, 1, 1))) is None
    assert inner.times == 2900 - 2026 + 1
    assert schedule.previous_before(us(datetime(2026, 1, 1))) is None


def test_a_leap_day_that_falls_on_an_open_weekday_is_found() -> None:
    schedule = apply_calendar(parse("0 12 29 2 *"), {"exclude": ["sat-thu"]})
    assert schedule.next_after(us(datetime(2092, 3, 1))) == us(datetime(2104, 2, 29, 12))


@pytest.mark.parametrize(("text", "ticks"), [("*/15 * * * *", 960), ("0 12 * * *", 100), ("0 0 1 1 *", 20)])
@pytest.mark.parametrize("roll", ["next", "previous"])
def test_rolling_asks_for_each_tick_about_once(text: str, ticks: int, roll: str) -> None:
    inner = Asked(parse(text), first=None, last=None)
    schedule = apply_calendar(inner, {"exclude": ["sat,sun", "12-24..01-02"], "roll": roll})
    assert len(schedule.between(0, 10**18, ticks)) == ticks
    assert inner.times < 4 * ticks + 20


def test_ticks_that_move_into_a_gap_are_one_tick_on_its_first_instant() -> None:
    inner = parse("@every 15m0.5s", timezone="Europe/Berlin")
    schedule = apply_calendar(inner, {"exclude": ["2024-03-30"], "roll": "next"})
    gap = us(datetime(2024, 3, 31, 1))
    assert schedule.next_after(gap - 1) == gap
    assert schedule.count_between(gap - 1, gap + SECOND - 1) == 1


def test_a_schedule_that_is_closed_whenever_it_is_due_ends_its_search() -> None:
    schedule = apply_calendar(parse("0 12 * * sat"), {"exclude": ["sat"]})
    assert schedule.next_after(0) is None
    assert schedule.previous_before(0) is None
    assert schedule.count_between(0, 3650 * DAY) == 0


@pytest.mark.parametrize(
    ("text", "seconds"), [("* * * * * *", 1), ("* * * * * * | @every 1s", 1), ("*/5 * * * *", 300)]
)
def test_years_are_counted_without_visiting_ticks(text: str, seconds: int) -> None:
    schedule = apply_calendar(parse(text), {"exclude": ["sat,sun", "22:00-06:00"]})
    assert schedule.count_between(-1, 7 * 520 * DAY - 1) == 520 * 5 * 16 * 3600 // seconds


RULES = st.sampled_from(["sat,sun", "12-24..01-02", "2024-03-31", "22:00-06:00", "mon 09:00-17:00", "02-29", "wed"])


@given(
    st.sampled_from(CRONS),
    st.sampled_from([name for name, _ in PLACES]),
    st.lists(RULES, min_size=1, max_size=4),
    st.sampled_from(["skip", "next", "previous"]),
    st.integers(0, 3_000_000_000 * SECOND),
)
@settings(max_examples=300, deadline=None)
def test_next_and_previous_and_count_agree(text: str, name: str, rules: list[str], roll: str, instant: int) -> None:
    inner = parse(text, timezone=name)
    try:
        schedule = apply_calendar(inner, {"exclude": rules, "roll": roll})
    except ScheduleError as error:
        assert error.code == "cannot-roll"
        return
    first = schedule.next_after(instant)
    second = None if first is None else schedule.next_after(first)
    if first is None or second is None:
        return
    assert instant < first < second
    assert schedule.previous_before(second) == first
    assert schedule.next_after(second - 1) == second
    assert schedule.count_between(first, second) == 1


def test_the_words_name_the_calendar_and_the_roll() -> None:
    calendar = {"name": "de", "exclude": ["sat"], "roll": "next"}
    schedule = apply_calendar(parse("0 9 * * *"), calendar)
    words = "at 09:00 every day, except on closed days of calendar 'de' (moved to the next open day)"
    assert schedule.describe() == words
    assert "日历“de”" in schedule.describe("zh")
