"""Schedules in words, in each language."""

from __future__ import annotations

import pytest

from timeball.schedule import languages, parse

SENTENCES = [
    ("standard", "* * * * *", "every minute", "每分钟"),
    ("standard", "*/5 * * * *", "every 5 minutes", "每 5 分钟"),
    ("standard", "0 9 * * 1-5", "at 09:00 on Monday to Friday", "周一至周五 09:00"),
    ("standard", "30 2 * * *", "at 02:30 every day", "每天 02:30"),
    ("standard", "0 0 1 * *", "at 00:00 on day 1 of the month", "每月 1 日 00:00"),
    ("standard", "0 * * * *", "at minute 0 of every hour", "每小时 第 0 分"),
    (
        "standard",
        "*/15 9-17 * * mon-fri",
        "every 15 minutes from 09:00 to 17:59 on Monday to Friday",
        "周一至周五 09:00 至 17:59 每 15 分钟",
    ),
    (
        "standard",
        "0 0 13 3 FRI",
        "at 00:00 on day 13 of the month or on Friday in March",
        "3 月 每月 13 日或周五 00:00",
    ),
    (
        "standard",
        "0 0 */2 * 1",
        "at 00:00 on every 2nd day from the 1st of the month, if it is also Monday",
        "每月 从第 1 日起每 2 天且为周一 00:00",
    ),
    ("standard", "0 9 * * MON#2", "at 09:00 on the second Monday of the month", "每月第 2 个周一 09:00"),
    ("standard", "0 9 LW * *", "at 09:00 on the last working day of the month", "每月 最后一个工作日 09:00"),
    ("standard", "0 0 29 2 *", "at 00:00 on day 29 of February", "2 月 29 日 00:00"),
    ("standard", "30 * * * * *", "at second 30 of every minute", "每分钟 第 30 秒"),
    ("standard", "@every 90s", "every 1 minute and 30 seconds", "每 1 分钟 30 秒"),
    ("standard", "@every 336h", "every 2 weeks", "每 2 周"),
    ("standard", "@every 1h", "every hour", "每 1 小时"),
    (
        "standard",
        "@at 2030-01-31 09:00",
        "once, at 2030-01-31 09:00 (Europe/Paris)",
        "仅一次：2030-01-31 09:00（Europe/Paris）",
    ),
    ("standard", "", "only when triggered", "仅手动触发"),
    ("standard", "0 9 * * * | 0 17 * * 5", "at 09:00 every day; and at 17:00 on Friday", "每天 09:00；以及周五 17:00"),
    (
        "quartz",
        "0 0 0 ? 3 1#2 2025-2030",
        "at 00:00 on the second Sunday of March in 2025 to 2030",
        "2025 年至 2030 年 3 月第 2 个周日 00:00",
    ),
    ("quartz", "0 0 12 ? * L", "at 12:00 on Saturday", "周六 12:00"),
    ("go-admin", "0/5 * * * *", "every 5 seconds", "每 5 秒"),
]


@pytest.mark.parametrize(("dialect", "text", "english", "chinese"), SENTENCES)
def test_a_schedule_is_said_in_plain_words(dialect: str, text: str, english: str, chinese: str) -> None:
    schedule = parse(text, dialect=dialect, timezone="Europe/Paris")
    assert schedule.describe() == english
    assert schedule.describe("zh-CN") == chinese


def test_an_unknown_language_falls_back_to_english() -> None:
    assert languages() == ("en", "zh")
    assert parse("* * * * *").describe("tlh") == "every minute"


def test_parts_in_different_zones_name_their_zone() -> None:
    text = parse("TZ=Asia/Tokyo 0 9 * * * | TZ=UTC 0 9 * * *").describe()
    assert text == "at 09:00 every day (Asia/Tokyo); and at 09:00 every day (UTC)"


def test_a_hash_is_said_as_the_time_it_stands_for() -> None:
    assert parse("H H * * *", name="backup").describe() != parse("H H * * *", name="report").describe()
    assert parse("H(5-5) H(3-3) * * *").describe() == "at 03:05 every day"
