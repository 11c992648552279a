"""What holds for each schedule, found by trying many."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st

from timeball.errors import ScheduleError
from timeball.schedule import Schedule, languages, parse

SECOND = 1_000_000
ZONES = ("UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca")
DIALECTS = ("standard", "quartz", "go-admin")
PIECES = st.sampled_from(
    [
        *"0123456789*/,-?LWH#()|@ :.=TZ+",
        "MON",
        "jan",
        "@every ",
        "@at ",
        "TZ=UTC ",
        "* * * * *",
        "5",
        "1h",
        "2030-01-01",
    ]
)


def field(low: int, high: int, extra: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    item = st.one_of(
        st.just("*"),
        value.map(str),
        st.tuples(value, value).map(lambda pair: f"{min(pair)}-{max(pair)}"),
        st.tuples(value, st.integers(1, high)).map(lambda pair: f"{pair[0]}/{pair[1]}"),
        st.integers(1, high).map(lambda step: f"*/{step}"),
        st.sampled_from(("H", *extra)),
    )
    return st.lists(item, min_size=1, max_size=3).map(",".join)


CRON = st.one_of(
    st.tuples(
        st.sampled_from(["", "", "", "0 ", "*/7 ", "5,50 "]),
        field(0, 59),
        field(0, 23),
        field(1, 28, ("L", "LW", "L-3", "15W", "31W")),
        field(1, 12, ("FEB",)),
        field(0, 7, ("MON", "5L", "SUN#1", "fri#5")),
    ).map(lambda parts: parts[0] + " ".join(parts[1:])),
)
TEXTS = st.one_of(
    CRON,
    st.tuples(CRON, CRON).map(" | ".join),
    st.integers(1, 10**6).map(lambda seconds: f"@every {seconds}s"),
    st.just("@every 1.5s | @every 2s | 0 * * * *"),
    st.just("@at 2024-03-31 12:30"),
    st.just(""),
)
INSTANTS = st.integers(-2_000_000_000 * SECOND, 5_000_000_000 * SECOND)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    text, zone, dst = draw(TEXTS), draw(st.sampled_from(ZONES)), draw(st.sampled_from(["vixie", "literal"]))
    try:
        return parse(text, timezone=zone, dst=dst, name=draw(st.sampled_from(["", "report", "日报"])))
    except ScheduleError as error:
        assert error.code == "never-fires"
        reject()


@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=14).map("".join)), st.sampled_from(DIALECTS))
@settings(max_examples=1500, deadline=None)
@example("* * * * *,0", "standard")
@example("TZ=TZ=TZ=", "standard")
@example("CRON_TZ=UTC * * * * *", "standard")
@example("\ud800", "standard")
@example("\x00 * * * *", "standard")
@example("@every " + "9" * 900 + "h", "go-admin")
@example("@every ." + "9" * 900 + "h", "standard")
@example("@at 9999-12-31T23:59:59-23:59", "standard")
def test_any_text_is_read_or_refused_and_what_is_read_can_be_described(text: str, dialect: str) -> None:
    try:
        schedule = parse(text, dialect=dialect, timezone="Europe/Berlin", name="x")
    except ScheduleError as error:
        assert str(error)
        assert error.position is None or 0 <= error.position <= len(text)
        return
    schedule.next_after(0)
    schedule.previous_before(0)
    for language in (*languages(), "xx", ""):
        assert schedule.describe(language)


@given(schedules(), INSTANTS)
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_next_and_previous_are_each_others_inverse(schedule: Schedule, instant: int) -> None:
    following = schedule.next_after(instant)
    if following is not None:
        assert following > instant
        assert schedule.next_after(following - 1) == following
        previous = schedule.previous_before(following)
        assert previous is None or previous <= instant
        after = schedule.next_after(following)
        assert after is None or (after > following and schedule.previous_before(after) == following)
    previous = schedule.previous_before(instant)
    if previous is not None:
        assert previous < instant
        assert schedule.previous_before(previous + 1) == previous
        following = schedule.next_after(previous)
        assert following is None or following >= instant


@given(schedules(), INSTANTS, st.integers(0, 3 * 86_400 * SECOND))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_counting_agrees_with_listing(schedule: Schedule, after: int, length: int) -> None:
    until = after + length
    ticks = schedule.between(after, until, 20_000)
    assert ticks == sorted(set(ticks))
    assert all(after < tick <= until for tick in ticks)
    if len(ticks) < 20_000:
        assert schedule.count_between(after, until) == len(ticks)
    middle = after + length // 3
    assert schedule.count_between(after, middle) + schedule.count_between(middle, until) == schedule.count_between(
        after, until
    )
    assert schedule.between(after, until, 3) == ticks[:3]


@given(schedules(), INSTANTS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_long_stretches_add_up(schedule: Schedule, after: int) -> None:
    year = 366 * 86_400 * SECOND
    whole = schedule.count_between(after, after + 3 * year)
    assert whole == sum(schedule.count_between(after + n * year, after + (n + 1) * year) for n in range(3))
    assert schedule.count_between(after, after) == schedule.count_between(after + 1, after) == 0


@pytest.mark.parametrize("instant", [-(10**30), -(10**18), 0, 10**18, 10**30])
@pytest.mark.parametrize(
    "text", ["* * * * *", "0 0 29 2 *", "30 2 * * *", "@every 1h", "@at 2030-01-01 00:00", "0 9 * * * | 5 5 * * *"]
)
@pytest.mark.parametrize("dst", ["vixie", "literal"])
def test_any_instant_has_an_answer(text: str, instant: int, dst: str) -> None:
    schedule = parse(text, timezone="Europe/Berlin", dst=dst)
    following, previous = schedule.next_after(instant), schedule.previous_before(instant)
    assert following is None or following > instant
    assert previous is None or previous < instant


def test_a_schedule_that_never_comes_true_ends_its_search() -> None:
    never = parse("0 0 2 ? 3 1#2", dialect="quartz", timezone="America/Los_Angeles", dst="literal")
    assert never.next_after(2_200_000_000 * SECOND) is None
    assert never.count_between(2_200_000_000 * SECOND, 5_000_000_000 * SECOND) == 0


def test_years_long_before_a_year_field_find_their_way() -> None:
    once = parse("0 0 12 1 1 ? 2099", dialect="quartz")
    tick = once.next_after(-40_000_000_000 * SECOND)
    assert tick == once.previous_before(250_000_000_000 * SECOND) == once.next_after(0)
    assert once.next_after(tick) is None
    assert once.previous_before(tick) is None


def test_between_stops_at_its_limit_and_at_its_end() -> None:
    hourly = parse("@hourly")
    assert hourly.between(0, 10_800 * SECOND) == [3600 * SECOND, 7200 * SECOND, 10_800 * SECOND]
    assert hourly.between(0, 10**17, 2) == [3600 * SECOND, 7200 * SECOND]
    assert hourly.between(0, 10**17, 0) == []


def test_the_same_name_spreads_the_same_on_every_host_and_names_differ() -> None:
    assert parse("H H * * *", name="backup").describe() == parse("H H * * *", name="backup").describe()
    minutes = {parse("H * * * *", name=f"job-{number}").next_after(0) for number in range(300)}
    assert len(minutes) > 50
    for number in range(50):
        tick = parse("H(10-19) * * * *", name=str(number)).next_after(0)
        assert tick is not None
        assert 10 <= tick // (60 * SECOND) % 60 <= 19
        assert len(parse("H/15 * * * *", name=str(number)).between(-1, 3600 * SECOND - 1)) == 4


def test_random_instants_inside_a_second_round_to_the_right_tick() -> None:
    minutely = parse("* * * * *")
    random_ = random.Random(7)
    for _ in range(200):
        instant = random_.randrange(10**15)
        assert minutely.next_after(instant) == instant // (60 * SECOND) * 60 * SECOND + 60 * SECOND
        assert minutely.previous_before(instant) == (instant - 1) // (60 * SECOND) * 60 * SECOND
