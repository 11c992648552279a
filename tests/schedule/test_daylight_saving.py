"""The worked examples of docs/schedules.md: what a job does in the hour that is skipped or repeated."""

from __future__ import annotations

from datetime import datetime

import pytest

from timeball.schedule import parse, resolve_zone

SECOND = 1_000_000


def day(text: str, zone: str, date: str, dst: str) -> list[str]:
    """The ticks of one local date, as the wall clock shows them, with the offset."""
    info = resolve_zone(zone)
    begin = round(datetime.fromisoformat(f"{date}T12:00").replace(tzinfo=info).timestamp()) * SECOND
    found = parse(text, timezone=zone, dst=dst).between(begin - 54_000 * SECOND, begin + 54_000 * SECOND)
    walls = [datetime.fromtimestamp(tick // SECOND, info) for tick in found]
    return [wall.strftime("%H:%M%z") for wall in walls if wall.date().isoformat() == date]


BERLIN = "Europe/Berlin"
SPRING, AUTUMN = "2024-03-31", "2024-10-27"


def test_a_fixed_time_in_the_gap_runs_once_right_after_it() -> None:
    assert day("30 2 * * *", BERLIN, SPRING, "vixie") == ["03:00+0200"]
    assert day("30 2 * * *", BERLIN, SPRING, "literal") == []


def test_several_fixed_times_in_the_gap_run_once_together() -> None:
    assert day("0,15,30 2,3 * * *", BERLIN, SPRING, "vixie") == ["03:00+0200", "03:15+0200", "03:30+0200"]
    assert day("5,35 2 * * *", BERLIN, SPRING, "vixie") == ["03:00+0200"]


def test_a_fixed_time_in_the_overlap_runs_the_first_time_only() -> None:
    assert day("30 2 * * *", BERLIN, AUTUMN, "vixie") == ["02:30+0200"]
    assert day("30 2 * * *", BERLIN, AUTUMN, "literal") == ["02:30+0200", "02:30+0100"]


@pytest.mark.parametrize("text", ["*/30 * * * *", "0,30 * * * *", "*/30 */1 * * *", "H/30 * * * *"])
def test_an_interval_like_expression_follows_elapsed_time(text: str) -> None:
    assert len(day(text, BERLIN, SPRING, "vixie")) == 46
    assert len(day(text, BERLIN, AUTUMN, "vixie")) == 50


def test_a_star_in_the_minute_alone_is_interval_like_too() -> None:
    assert day("*/30 2 * * *", BERLIN, SPRING, "vixie") == []
    assert len(day("*/30 2 * * *", BERLIN, AUTUMN, "vixie")) == 4


def test_a_whole_range_is_not_a_star() -> None:
    assert len(day("0 0-23 * * *", BERLIN, SPRING, "vixie")) == 23
    assert len(day("0 0-23 * * *", BERLIN, AUTUMN, "vixie")) == 24


def test_a_day_without_midnight_begins_later() -> None:
    assert day("0 0 * * *", "America/Sao_Paulo", "2017-10-15", "vixie") == ["01:00-0200"]
    assert day("0 0 * * *", "America/Sao_Paulo", "2017-10-15", "literal") == []


def test_half_an_hour_of_change_is_half_an_hour() -> None:
    zone = "Australia/Lord_Howe"
    assert day("15,45 * * * *", zone, "2025-04-06", "vixie")[2:6] == [
        "01:15+1100",
        "01:45+1100",
        "01:45+1030",
        "02:15+1030",
    ]
    assert day("15 2 * * *", zone, "2025-10-05", "vixie") == ["02:30+1100"]


def test_a_day_that_a_zone_skips_runs_at_the_start_of_the_next() -> None:
    assert day("0 9 * * *", "Pacific/Apia", "2011-12-30", "vixie") == []
    assert day("0 9 * * *", "Pacific/Apia", "2011-12-31", "vixie") == ["00:00+1400", "09:00+1400"]
    assert day("0 9 * * *", "Pacific/Apia", "2011-12-31", "literal") == ["09:00+1400"]


def test_two_changes_in_a_year_are_both_seen() -> None:
    zone = "Africa/Casablanca"
    assert day("30 2 * * *", zone, "2025-02-23", "vixie") == ["02:30+0100"]
    assert day("30 2 * * *", zone, "2025-02-23", "literal") == ["02:30+0100", "02:30+0000"]
    assert day("30 2 * * *", zone, "2025-04-06", "vixie") == ["03:00+0100"]


def test_dates_before_1970_and_far_after_2100_follow_their_rules() -> None:
    assert day("30 2 * * *", "Europe/London", "1941-05-04", "vixie") == ["03:00+0200"]
    assert day("30 1 * * *", "Europe/London", "1941-05-04", "vixie") == ["01:30+0100"]
    assert day("30 2 * * *", BERLIN, "2500-03-28", "vixie") == ["03:00+0200"]
