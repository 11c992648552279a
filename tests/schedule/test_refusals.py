"""What is refused: with a stable kind, the place, what was wrong, and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from timeball.errors import ScheduleError
from timeball.schedule import parse
from timeball.schedule.refusals import KINDS


def refused(text: str, **options: str) -> ScheduleError:
    with pytest.raises(ScheduleError) as caught:
        parse(text, **options)  # pyright: ignore[reportArgumentType]
    assert caught.value.code in KINDS
    assert caught.value.field == "schedule"
    return caught.value


@pytest.mark.parametrize(
    ("text", "kind", "position", "words", "hint"),
    [
        ("*/90 * * * *", "step-too-large", 2, "step of 90", "@every 90m"),
        ("0 22-2 * * *", "reversed-range", 2, "22 > 2", "22-23,0-2"),
        ("0 0 31 2 *", "never-fires", 4, "no date", "29 days"),
        ("0 0 * * FRI-MON", "reversed-range", 8, "FRI-MON", "FRI,SAT,SUN,MON"),
        ("0 9 * * Monday", "unknown-name", 8, "MONDAY", "MON"),
        ("0 25 * * *", "out-of-range", 2, "no hour 25", "0 to 23"),
        ("0 9 * *", "field-count", 0, "4 fields", "minute, hour, day of month, month, weekday"),
        ("@dayly", "unknown-macro", 0, "@dayly", "@daily"),
        ("@every 5 minutes", "bad-duration", 7, "5 minutes", "@every 5m"),
        ("0 ９ * * *", "non-ascii", 2, "ASCII", "write 9"),
    ],
)
def test_ten_typical_mistakes_are_explained(text: str, kind: str, position: int, words: str, hint: str) -> None:
    error = refused(text)
    assert (error.code, error.position) == (kind, position)
    assert words in error.message
    assert error.hint is not None
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "kind", "position"),
    [
        ("0 0 30 2 *", "never-fires", 4),
        ("0 0 31 4 *", "never-fires", 4),
        ("0 0 31 2,4,6,9,11 *", "never-fires", 4),
        ("0 0 31W 4 *", "never-fires", 4),
        ("TZ=0", "field-count", 4),
        ("TZ=", "field-count", 3),
        ("CRON_TZ=UTC", "field-count", 11),
        ("TZ=TZ=TZ=", "field-count", 9),
        ("TZ=Mars/Base 0 0 * * *", "unknown-zone", 3),
        ("0 0 * * SAT-SUN", "reversed-range", 8),
        ("*/60 * * * *", "step-too-large", 2),
        ("5,50-10 * * * *", "reversed-range", 2),
        ("1,5-3/2 12 * * *", "reversed-range", 2),
        ("* * * ? * *A&/5:", "syntax", 12),
        ("0 0 0 0 *", "out-of-range", 4),
        ("0 0 1 0 *", "out-of-range", 6),
        ("60 * * * *", "out-of-range", 0),
        ("0 24 * * *", "out-of-range", 2),
        ("0 0 * * 8", "out-of-range", 8),
        ("* 0 0 1,2 * * *", "field-count", 0),
        ("*/0 * * * *", "zero-step", 2),
        ("1-5/00 * * * *", "zero-step", 4),
        ("-1 * * * *", "syntax", 0),
        ("/5 * * * *", "syntax", 0),
        ("*5 * * * *", "syntax", 0),
        ("5- * * * *", "syntax", 0),
        ("5/ * * * *", "syntax", 0),
        ("1,,2 * * * *", "syntax", 2),
        ("1,2, * * * *", "syntax", 4),
        ("? * * * *", "syntax", 0),
        ("* * * * L", "unsupported", 8),
        ("* * * * L5", "unsupported", 8),
        ("* * MON#2 * *", "unsupported", 4),
        ("* * 15L * *", "unsupported", 4),
        ("L * * * *", "unsupported", 0),
        ("* * * * MON#6", "out-of-range", 12),
        ("* * * * MON#0", "out-of-range", 12),
        ("* * L-31 * *", "out-of-range", 6),
        ("* * * jani *", "unknown-name", 6),
        ("* nine * * *", "unknown-name", 2),
        ("H(30-10) * * * *", "reversed-range", 0),
        ("H(10-70) * * * *", "out-of-range", 5),
        ("99999999999999999999 * * * *", "out-of-range", 0),
        ("٣ * * * *", "non-ascii", 0),
        ("0 9 * * *\u3000", "non-ascii", 9),
        ("0 9 * * * |", "bad-union", 11),
        ("| 0 9 * * *", "bad-union", 0),
        ("0 9 * * * || 0 9 * * *", "bad-union", 11),
        ("0 9 * * * | manual", "bad-union", 11),
        ("0 9 * * * | 0 25 * * *", "out-of-range", 14),
        ("TZ=UTC 0 25 * * *", "out-of-range", 9),
        ("@every 0s", "interval-not-positive", 7),
        ("@every -5m", "interval-not-positive", 7),
        ("@every 500ms", "interval-too-short", 7),
        ("@every 1000000h", "interval-too-long", 7),
        ("@every 1.0000001s", "bad-duration", 7),
        ("@every", "bad-duration", 6),
        ("@every 1d", "bad-duration", 7),
        ("@every 1h30", "bad-duration", 7),
        ("@at tomorrow", "bad-instant", 4),
        ("@at 2030-02-30T00:00:00Z", "bad-instant", 4),
        ("@at 2030-01-01T24:00:00Z", "bad-instant", 4),
        ("@at 2030-01-01T10:00:60Z", "bad-instant", 4),
        ("@at 0000-01-01T00:00:00Z", "bad-instant", 4),
        ("@at 2030-01-01T00:00:00+24:00", "bad-instant", 4),
        ("@at 2030-01-01", "bad-instant", 4),
        ("@hourly 5", "syntax", 8),
        ("@reboot now", "syntax", 8),
        ("@reboot | @hourly", "bad-union", 0),
        ("@hourly | TZ=UTC @reboot", "bad-union", 9),
        ("@after 30s | @hourly", "bad-union", 0),
        ("@after soon", "bad-duration", 7),
        ("@", "unknown-macro", 0),
        ("every day", "field-count", 0),
    ],
)
def test_a_text_that_cannot_be_right_is_refused_with_its_place(text: str, kind: str, position: int) -> None:
    error = refused(text)
    assert (error.code, error.position) == (kind, position)
    assert error.hint


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("0 0 12 * *", "field-count"),
        ("0 0 12 1 * MON", "day-and-weekday"),
        ("0 0 12 ? * ?", "day-and-weekday"),
        ("0 0 12 ? * 0", "out-of-range"),
        ("0 0 12 ? * 8", "out-of-range"),
        ("0 0 12 1 * ? 1969", "out-of-range"),
        ("0 0 12 29 2 ? 2025", "never-fires"),
        ("0 0 12 ? * 2#6", "out-of-range"),
    ],
)
def test_quartz_refuses_what_quartz_refuses(text: str, kind: str) -> None:
    assert refused(text, dialect="quartz").code == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("* * * *", "field-count"),
        ("0 0 0 * * * *", "field-count"),
        ("0 0 0 L * *", "unsupported"),
        ("0 0 0 15W * *", "unsupported"),
        ("0 0 0 * * MON#1", "unsupported"),
        ("0 H 0 * * *", "unsupported"),
        ("0 0 0 * * 7", "out-of-range"),
        ("0 0 25 * * *", "out-of-range"),
        ("0 0 0 30 2 *", "never-fires"),
        ("*/0 * * * *", "zero-step"),
        ("@every 0s", "interval-not-positive"),
    ],
)
def test_go_admin_refuses_what_it_cannot_read_or_run(text: str, kind: str) -> None:
    assert refused(text, dialect="go-admin").code == kind


def test_a_day_and_a_weekday_that_exclude_each_other_are_told_apart_from_short_months() -> None:
    error = refused("0 0 */16 * 5L")
    assert (error.code, error.position) == ("never-fires", 4)
    assert error.hint is not None
    assert "write * in one of the two" in error.hint


@pytest.mark.parametrize(
    ("text", "dialect", "meant"),
    [
        ("mon-fri 9:00", "standard", "0 9 * * mon-fri"),
        ("9:30 mon,wednesday", "standard", "30 9 * * mon,wed"),
        ("at 5pm", "standard", "0 17 * * *"),
        ("every day at 12am", "standard", "0 0 * * *"),
        ("every monday", "standard", "0 0 * * mon"),
        ("9:00", "go-admin", "0 0 9 * * *"),
        ("mon-fri 9:00", "quartz", "0 0 9 ? * mon-fri"),
        ("every 5 minutes", "standard", "@every 5m"),
        ("every two days", "standard", "@every 48h"),
        ("every day", "standard", "@daily"),
        ("hourly", "standard", "@hourly"),
        ("12h", "standard", "@every 12h"),
        ("@every 1 hour", "standard", "@every 1h"),
        ("@after 1d", "standard", "@after 24h"),
        ("* * * *", "standard", "* * * * *"),
        ("* * * * *", "quartz", "0 * * * * ?"),
        ("*/5 * * * * root /bin/php -f x", "standard", "*/5 * * * *"),
    ],
)
def test_who_says_it_in_words_is_given_the_schedule(text: str, dialect: str, meant: str) -> None:
    hint = refused(text, dialect=dialect).hint or ""
    assert hint.startswith((f"did you mean {meant}?", f"write {meant} (", f"write {meant}")), hint
    assert parse(meant, dialect=dialect).next_after(0) is not None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("@every 5", "@every 5s, @every 5m or @every 5h"),
        ("@after 5", "@after 5s, @after 5m or @after 5h"),
        ("@after soon", "@after 90s"),
        ("5-1 * * * *", "write 5-59,0-1, or 1-5"),
        ('"0 9 * * *"', "leave the quotes out"),
        ("0 9 * * * Europe/Paris", "TZ=Europe/Paris"),
        ("*/5 * * * * /bin/x", "the command is given apart"),
        ("* * * * * * *", "only the quartz dialect takes a seventh field"),
        ("30 25 * *", "5: minute, hour"),
        ("25:00", "5: minute, hour"),
        ("TZ=CEST 0 9 * * *", "abbreviations are not unique"),
        ("TZ=UTC+2 0 9 * * *", "an offset is no zone"),
        ("TZ=Europe/Pari 0 9 * * *", "did you mean Europe/Paris?"),
    ],
)
def test_the_hint_says_what_is_right(text: str, hint: str) -> None:
    assert hint in (refused(text).hint or "")


def test_unknown_dialects_rules_and_zones_are_refused_with_a_choice() -> None:
    assert refused("* * * * *", dialect="kron").code == "unknown-dialect"
    assert refused("* * * * *", dst="none").code == "unknown-dst"
    zone = refused("* * * * *", timezone="europe/berlin")
    assert (zone.code, zone.hint) == ("unknown-zone", "did you mean Europe/Berlin?")
    assert refused("", timezone="Mars/Base").code == "unknown-zone"


def test_a_text_without_end_is_refused_by_its_length_alone() -> None:
    assert refused("1," * 600 + "1 * * * *").code == "too-long"
    assert refused(",".join(["1"] * 101) + " * * * *").code == "too-long"
    assert refused("|".join(["* * * * *"] * 17)).code == "too-long"
    assert refused("@every " + "9" * 990 + "h").code == "interval-too-long"


def test_the_table_of_refusals_in_the_docs_is_true() -> None:
    page = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text("utf-8")
    rows = [
        line.strip("| \n").replace("\\|", "\0").split(" | ") for line in page.splitlines() if line.startswith("| `")
    ]
    told = {row[0].strip("`"): row[1].strip() for row in rows if row[0].strip("`") in KINDS}
    assert KINDS.keys() - told.keys() == {*("bad-exclusion", "cannot-roll", "unknown-dialect", "unknown-dst")}
    for kind, example in told.items():
        if example.startswith("`"):
            text, _, rest = example[1:].partition("`")
            dialect = "quartz" if "quartz" in rest else "standard"
            assert refused(text.replace("\0", "|"), dialect=dialect).code == kind, example
