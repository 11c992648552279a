"""How each dialect reads a text, and the real texts that people bring along."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from timeball.schedule import parse, resolve_zone

SECOND = 1_000_000


def ticks(
    text: str, start: str, count: int, *, zone: str = "UTC", dialect: str = "standard", dst: str | None = None
) -> list[str]:
    schedule = parse(text, timezone=zone, dialect=dialect, dst=dst)
    instant = round(datetime.fromisoformat(start).timestamp()) * SECOND
    found: list[str] = []
    while len(found) < count and (tick := schedule.next_after(instant)) is not None:
        instant = tick
        moment = datetime.fromtimestamp(tick // SECOND, resolve_zone(schedule.timezone))
        found.append(moment.isoformat(timespec="seconds").replace("+00:00", "Z"))
    return found


NEW_YEAR = "2025-01-01T00:00:30Z"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *,0", ["2025-01-01T00:01:00Z"]),
        ("0 * * * * *", ["2025-01-01T00:01:00Z"]),
        ("5/15 * * * *", [f"2025-01-01T00:{m}:00Z" for m in ("05", "20", "35", "50")] + ["2025-01-01T01:05:00Z"]),
        ("0 0 * * 7", ["2025-01-05T00:00:00Z"]),
        (
            "0 0 * * 5-7",
            ["2025-01-03T00:00:00Z", "2025-01-04T00:00:00Z", "2025-01-05T00:00:00Z", "2025-01-10T00:00:00Z"],
        ),
        ("CRON_TZ=UTC * * * * *", ["2025-01-01T00:01:00Z"]),
        ("CRON_TZ=UTC */10 * * * * *", ["2025-01-01T00:00:40Z"]),
        ("0 0 13 * fri", ["2025-01-03T00:00:00Z", "2025-01-10T00:00:00Z", "2025-01-13T00:00:00Z"]),
        ("0 0 */13 * fri", ["2025-02-14T00:00:00Z", "2025-03-14T00:00:00Z", "2025-06-27T00:00:00Z"]),
        ("0 0 ? * Mon", ["2025-01-06T00:00:00Z", "2025-01-13T00:00:00Z"]),
        ("0 0 L-3 * *", ["2025-01-28T00:00:00Z", "2025-02-25T00:00:00Z"]),
        (
            "0 0 LW * *",
            [
                "2025-01-31T00:00:00Z",
                "2025-02-28T00:00:00Z",
                "2025-03-31T00:00:00Z",
                "2025-04-30T00:00:00Z",
                "2025-05-30T00:00:00Z",
            ],
        ),
        ("0 0 1W * *", ["2025-02-03T00:00:00Z", "2025-03-03T00:00:00Z", "2025-04-01T00:00:00Z"]),
        ("0 0 * * MON#2", ["2025-01-13T00:00:00Z", "2025-02-10T00:00:00Z"]),
        ("0 0 * * 1#5", ["2025-03-31T00:00:00Z", "2025-06-30T00:00:00Z"]),
        ("0 0 * jan-MAR/2 FRIL", ["2025-01-31T00:00:00Z", "2025-03-28T00:00:00Z", "2026-01-30T00:00:00Z"]),
        ("@weekly", ["2025-01-05T00:00:00Z"]),
        ("@Yearly", ["2026-01-01T00:00:00Z"]),
        ("@daily", ["2025-01-02T00:00:00Z"]),
        ("@every 90s", ["2025-01-01T00:01:30Z", "2025-01-01T00:03:00Z"]),
        ("@at 2025-06-01T12:00:00+02:00", ["2025-06-01T10:00:00Z"]),
        ("@at 2025-06-01 12:00 ", ["2025-06-01T12:00:00Z"]),
        ("@at 2024-06-01 12:00", []),
        (
            "0 9 * * * | 30 12 * * * | 0 9 * * 3",
            ["2025-01-01T09:00:00Z", "2025-01-01T12:30:00Z", "2025-01-02T09:00:00Z"],
        ),
        ("manual", []),
        ("  ", []),
    ],
)
def test_the_standard_dialect_reads(text: str, expected: list[str]) -> None:
    assert ticks(text, NEW_YEAR, max(len(expected), 1)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 0 22-2 * * ?", [f"2025-01-01T0{h}:00:00Z" for h in (1, 2)] + ["2025-01-01T22:00:00Z"]),
        (
            "0 0 0 ? * FRI-MON",
            [
                "2025-01-03T00:00:00Z",
                "2025-01-04T00:00:00Z",
                "2025-01-05T00:00:00Z",
                "2025-01-06T00:00:00Z",
                "2025-01-10T00:00:00Z",
            ],
        ),
        ("0 0 0 ? * 1", ["2025-01-05T00:00:00Z"]),
        ("0 0 0 ? * 6L", ["2025-01-31T00:00:00Z"]),
        ("0 0 0 L-2 * ?", ["2025-01-29T00:00:00Z"]),
        ("0 0 0 29 2 ? 2025-2030", ["2028-02-29T00:00:00Z"]),
        ("0 0 0 1 1 ? 2026/2", ["2026-01-01T00:00:00Z", "2028-01-01T00:00:00Z"]),
        ("0 0 0 1 1 ? 2020", []),
        (
            "0 30-50/10 8 ? 1 2#1 *",
            ["2025-01-06T08:30:00Z", "2025-01-06T08:40:00Z", "2025-01-06T08:50:00Z", "2026-01-05T08:30:00Z"],
        ),
    ],
)
def test_the_quartz_dialect_reads(text: str, expected: list[str]) -> None:
    assert ticks(text, NEW_YEAR, max(len(expected), 1), dialect="quartz") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0/5 * * * * ", ["2025-01-01T00:00:35Z", "2025-01-01T00:00:40Z"]),
        ("0 30 2 * * ?", ["2025-01-01T02:30:00Z", "2025-01-02T02:30:00Z"]),
        ("TZ=Asia/Shanghai 0 0 9-18 * * mon-fri", ["2025-01-01T09:00:00+08:00", "2025-01-01T10:00:00+08:00"]),
        ("@every 90s", ["2025-01-01T00:01:30Z"]),
        ("@every 500ms", ["2025-01-01T00:00:31Z"]),
        ("@every 1.9s", ["2025-01-01T00:00:31Z"]),
        ("@hourly", ["2025-01-01T01:00:00Z"]),
        (
            "0 0 3 */10 * sun",
            ["2025-01-01T03:00:00Z", "2025-01-05T03:00:00Z", "2025-01-11T03:00:00Z", "2025-01-12T03:00:00Z"],
        ),
        ("0 0 3 */1 * sun", ["2025-01-05T03:00:00Z", "2025-01-12T03:00:00Z"]),
        ("0 0 0/24 * * *", ["2025-01-02T00:00:00Z"]),
        ("0 0 0 1 1", ["2026-01-01T00:00:00Z"]),
        ("? ? 5 ? ? ?", ["2025-01-01T05:00:00Z", "2025-01-01T05:00:01Z"]),
    ],
)
def test_the_go_admin_dialect_reads(text: str, expected: list[str]) -> None:
    assert ticks(text, NEW_YEAR, len(expected), dialect="go-admin") == expected


def test_a_stepped_star_with_a_weekday_is_and_in_the_standard_dialect_and_or_in_go_admin() -> None:
    assert ticks("0 0 3 */10 * sun", NEW_YEAR, 1) == ["2025-05-11T03:00:00Z"]
    assert ticks("0 0 3 */10 * sun", NEW_YEAR, 1, dialect="go-admin") == ["2025-01-01T03:00:00Z"]


def test_go_admin_keeps_its_own_rule_for_daylight_saving_unless_another_is_named() -> None:
    night, zone = "2024-03-30T12:00:00+01:00", "Europe/Berlin"
    assert ticks("0 30 2 * * *", night, 1, zone=zone, dialect="go-admin") == ["2024-04-01T02:30:00+02:00"]
    assert ticks("0 30 2 * * *", night, 1, zone=zone, dialect="go-admin", dst="vixie") == ["2024-03-31T03:00:00+02:00"]
    assert ticks("0 30 2 * * *", night, 1, zone=zone) == ["2024-03-31T03:00:00+02:00"]


def test_a_zone_in_the_text_wins_over_the_zone_of_the_job() -> None:
    schedule = parse("TZ=Asia/Tokyo 0 9 * * *", timezone="Europe/Paris")
    assert schedule.timezone == "Asia/Tokyo"
    assert schedule.text == "TZ=Asia/Tokyo 0 9 * * *"
    assert parse("0 9 * * *", timezone="Europe/Paris").timezone == "Europe/Paris"
    both = parse("TZ=Asia/Tokyo 0 9 * * * | 0 10 * * * | TZ=UTC 0 9 * * *")
    assert both.timezone == "Asia/Tokyo"
    hours = [datetime.fromtimestamp(tick // SECOND, UTC).hour for tick in both.between(-1, 86_400 * SECOND - 1)]
    assert hours == [0, 1, 9]


def test_every_counts_from_its_anchor_and_begins_strictly_after_it() -> None:
    schedule = parse("@every 10s", anchor=5 * SECOND + 7)
    assert schedule.next_after(-(10**15)) == 15 * SECOND + 7
    assert schedule.next_after(5 * SECOND + 7) == 15 * SECOND + 7
    assert schedule.next_after(15 * SECOND + 7) == 25 * SECOND + 7
    assert schedule.previous_before(15 * SECOND + 7) is None
    assert schedule.previous_before(15 * SECOND + 8) == 15 * SECOND + 7
    assert schedule.count_between(-(10**15), 25 * SECOND + 7) == 2


def test_at_takes_the_first_reading_of_a_repeated_time_and_the_end_of_a_gap() -> None:
    def instant(text: str) -> str:
        tick = parse(f"@at {text}", timezone="Europe/Berlin").next_after(0)
        assert tick is not None
        return datetime.fromtimestamp(tick / SECOND, resolve_zone("Europe/Berlin")).isoformat()

    assert instant("2024-10-27 02:30") == "2024-10-27T02:30:00+02:00"
    assert instant("2024-10-27T02:30:00+01:00") == "2024-10-27T02:30:00+01:00"
    assert instant("2024-03-31 02:30") == "2024-03-31T03:00:00+02:00"
    assert instant("2024-05-01T12:00:00.25Z") == "2024-05-01T14:00:00.250000+02:00"
