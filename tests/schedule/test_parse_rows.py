"""The rows of `tests/cases/behaviour.jsonl` about reading cron texts, each with the answer that it calls right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from timeball.clock import format_instant, parse_instant
from timeball.errors import ScheduleError
from timeball.schedule import parse

ROWS = [json.loads(line) for line in (Path(__file__).parents[1] / "cases" / "behaviour.jsonl").read_text().splitlines()]
START = parse_instant("2025-01-01T00:00:30Z")


def ticks(text: str, count: int, *, dialect: str = "standard", timezone: str = "UTC") -> list[str]:
    found = parse(text, dialect=dialect, timezone=timezone).between(START, 1 << 62, count)
    return [str(format_instant(tick))[:19] for tick in found]


REFUSED = {
    "PARSE-001": (("0 0 31 2 *", "never-fires", "no date"), ("0 0 30 2 *", "never-fires", "no date")),
    "PARSE-002": (("0 0 31 4 *", "never-fires", "no date"), ("0 0 31 2,4,6,9,11 *", "never-fires", "no date")),
    "PARSE-005": (
        ("TZ=0", "field-count", "no fields"),
        ("TZ=", "field-count", "no fields"),
        ("CRON_TZ=UTC", "field-count", "no fields"),
    ),
    "PARSE-006": (("TZ=TZ=TZ=", "field-count", "no fields"),),
    "PARSE-008": (("0 22-2 * * *", "reversed-range", "22 > 2"),),
    "PARSE-009": (
        ("0 0 * * FRI-MON", "reversed-range", "write FRI,SAT,SUN,MON"),
        ("0 0 * * SAT-SUN", "reversed-range", "write SAT,SUN"),
    ),
    "PARSE-010": (
        ("*/90 * * * *", "step-too-large", "@every 90m"),
        ("*/60 * * * *", "step-too-large", "at most 59"),
    ),
    "PARSE-011": (
        ("5,50-10 * * * *", "reversed-range", "50 > 10"),
        ("1,5-3/2 12 * * *", "reversed-range", "5 > 3"),
    ),
    "PARSE-012": (("* * * ? * *A&/5:", "syntax", "'&'"),),
    "PARSE-013": (
        ("0 0 0 0 *", "out-of-range", "use 1 to 31"),
        ("60 * * * *", "out-of-range", "use 0 to 59"),
        ("0 24 * * *", "out-of-range", "use 0 to 23"),
        ("0 0 * * 8", "out-of-range", "use 0 to 7"),
    ),
    "PARSE-014": (("* 0 0 1,2 * * *", "field-count", "5 or 6 fields"),),
}
FIRST = {
    "PARSE-004": (("* * * * *,0", "standard", "2025-01-01T00:01:00"),),
    "PARSE-007": (
        ("CRON_TZ=UTC * * * * *", "standard", "2025-01-01T00:01:00"),
        ("CRON_TZ=UTC 0 * * * * *", "standard", "2025-01-01T00:01:00"),
        ("CRON_TZ=UTC 0 * * * * *", "go-admin", "2025-01-01T00:01:00"),
    ),
    "PARSE-008": (("0 0 22-2 * * ?", "quartz", "2025-01-01T01:00:00"),),
    "PARSE-009": (("0 0 0 ? * FRI-MON", "quartz", "2025-01-03T00:00:00"),),
    "PARSE-013": (("0 0 * * 7", "standard", "2025-01-05T00:00:00"),),
    "PARSE-015": (("0 * * * * *", "standard", "2025-01-01T00:01:00"),),
    "PARSE-017": (("5/15 * * * *", "standard", "2025-01-01T00:05:00"),),
}


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [pytest.param(*case, id=f"{row}-{case[0]}") for row, cases in REFUSED.items() for case in cases],
)
def test_what_must_be_refused_is_refused_where_it_is_read(text: str, kind: str, said: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse(text, timezone="America/New_York")
    assert caught.value.code == kind
    assert caught.value.position is not None
    assert said in f"{caught.value.message} ({caught.value.hint})"


@pytest.mark.parametrize(
    ("text", "dialect", "first"),
    [pytest.param(*case, id=f"{row}-{case[0]}") for row, cases in FIRST.items() for case in cases],
)
def test_what_is_read_has_the_right_first_tick(text: str, dialect: str, first: str) -> None:
    assert ticks(text, 1, dialect=dialect, timezone="UTC") == [first]


def test_a_zone_of_the_text_counts_and_not_another_one_without_a_word() -> None:
    """PARSE-007."""
    assert ticks("CRON_TZ=UTC 0 9 * * *", 1, timezone="Asia/Tokyo") == ["2025-01-01T09:00:00"]


def test_a_start_with_a_step_goes_to_the_end_of_the_field() -> None:
    """PARSE-017."""
    assert [tick[11:16] for tick in ticks("5/15 * * * *", 5)] == ["00:05", "00:20", "00:35", "00:50", "01:05"]


def test_every_row_about_reading_is_here() -> None:
    assert {row["id"] for row in ROWS if row["area"] == "cron-parse"} == REFUSED.keys() | FIRST.keys()
