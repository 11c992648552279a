"""What imports of closures make of files and countries, and what they refuse."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import pytest

from timeball.errors import InvalidInput
from timeball.schedule import closures_of
from timeball.service.importers.countries import import_country
from timeball.service.importers.days import Years, day_rules, read_years
from timeball.service.importers.ical import import_ical

SCHOOL = (Path(__file__).resolve().parents[1] / "cases/school.ics").read_text(encoding="utf-8")
YEARS = Years(first=2026, last=2028)


def ics(*lines: str) -> str:
    return "\r\n".join(["BEGIN:VCALENDAR", "BEGIN:VEVENT", "UID:1", *lines, "END:VEVENT", "END:VCALENDAR"])


def test_events_become_days_and_stretches_by_the_clock_of_the_zone() -> None:
    imported = import_ical(SCHOOL, YEARS, timezone="Europe/Berlin", name="school.ics")
    assert list(imported.rules) == [
        "2026-05-01",
        "2026-11-11",
        "2026-12-21..2027-01-02",
        "2028-05-01",
        "2026-09-10 15:00..2026-09-10 16:31",
        "2026-09-14 17:00..2026-09-14 18:00",
    ]
    assert (imported.source.what, imported.source.until) == ("iCalendar school.ics, 2026-2028", "2028-05-01")
    closures_of(tuple(imported.rules))


def test_only_the_years_that_are_asked_for_are_closed() -> None:
    imported = import_ical(SCHOOL, Years(first=2027, last=2027), timezone="UTC", name="x")
    assert list(imported.rules) == ["2027-01-01..2027-01-02"]


def test_a_time_in_some_zone_needs_the_zone_of_the_calendar() -> None:
    with pytest.raises(InvalidInput) as raised:
        import_ical(SCHOOL, YEARS, timezone="", name="x")
    assert raised.value.field == "timezone"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no iCalendar"),
        ("hello", "no iCalendar"),
        ("BEGIN:VCALENDAR\nEND:VCALENDAR", "no event of the file lies in 2026-2028"),
        (ics("DTSTART:20260101T000000", "RRULE:FREQ=SECONDLY"), "more often than daily"),
        (ics("DTSTART:20260101T000000", "RRULE:FREQ=SECONDLY", "RRULE:FREQ=YEARLY"), "more often than daily"),
        (ics("DTSTART;VALUE=DATE:20260101", "RRULE:FREQ=NEVER"), "RRULE cannot be read"),
        (ics("DTSTART;VALUE=DATE:20260101", "EXDATE;VALUE=DATE:never"), "EXDATE cannot be read"),
        (ics("DTSTART:yesterday"), "DTSTART cannot be read"),
        (ics("SUMMARY:no start"), ""),
        (ics("DTSTART;TZID=Mars/Base:20260101T000000", "DURATION:PT1H"), "'Mars/Base' is not known"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        import_ical(text, YEARS, timezone="", name="x")
    assert said in str(raised.value)


def test_a_file_that_closes_days_without_end_is_bounded() -> None:
    text = ics("DTSTART:20260101T100000", "DTEND:20260101T110000", "RRULE:FREQ=DAILY")
    with pytest.raises(InvalidInput) as raised:
        import_ical(text, Years(first=2026, last=2060), timezone="", name="x")
    assert "more than 5000" in str(raised.value)


def test_the_holidays_of_a_country_and_of_its_part_become_days() -> None:
    whole = import_country("DE", None, Years(first=2026, last=2026))
    part = import_country("DE", "BY", Years(first=2026, last=2026))
    assert "2026-10-03" in whole.rules
    assert set(part.rules) - set(whole.rules) == {"2026-01-06", "2026-06-04", "2026-11-01"}
    assert part.source.until == "2026-12-31"
    assert part.source.what.endswith(": DE-BY, 2026-2026")


def test_holidays_that_are_known_in_part_only_are_told() -> None:
    partly = import_country("IN", None, Years(first=2030, last=2040))
    assert any("available only" in note for note in partly.notes)
    assert partly.source.until < "2040-01-01"
    assert f"the holidays of IN are known in part only after {partly.source.until[:4]}" in partly.notes


@pytest.mark.parametrize("language", ["tr", "en_US", "C"])
def test_estimates_are_said_in_whatever_language_the_package_marks_them(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGUAGE", language)
    assert any("estimates" in note for note in import_country("TR", None, Years(first=2030, last=2035)).notes)
    assert not any("estimates" in note for note in import_country("DE", None, Years(first=2030, last=2035)).notes)


def test_a_country_is_known_until_the_last_year_that_the_package_has() -> None:
    imported = import_country("LK", None, Years(first=2025, last=2035))
    last = int(imported.source.until[:4])
    assert last < 2035
    assert f"no holidays of LK are known after {last}" in imported.notes


@pytest.mark.parametrize(
    ("country", "part", "hint"),
    [("DEUU", None, "'DEU'"), ("de", None, "'DE'"), ("DE", "ZZ", "known: Augsburg, BB"), ("??", None, "known: ")],
)
def test_an_unknown_country_is_refused_with_a_hint(country: str, part: str | None, hint: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        import_country(country, part, YEARS)
    assert hint in str(raised.value.hint)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holidays", None)
    monkeypatch.setitem(sys.modules, "icalendar", None)
    for act in (
        lambda: import_country("DE", None, YEARS),
        lambda: import_ical(SCHOOL, YEARS, timezone="UTC", name="x"),
    ):
        with pytest.raises(InvalidInput) as raised:
            act()
        assert "timeball[calendars]" in str(raised.value)


def test_days_that_follow_on_each_other_are_one_rule() -> None:
    days = [dt.date(2026, 12, 26), dt.date(2026, 12, 25), dt.date(2027, 1, 1), dt.date(2026, 12, 25)]
    assert day_rules(days) == ["2026-12-25..2026-12-26", "2027-01-01"]
    assert day_rules([]) == []


def test_years_are_read_and_bounded() -> None:
    assert read_years(None, this_year=2026) == Years(first=2026, last=2031)
    assert read_years("2027", this_year=2026) == Years(first=2027, last=2027)
    for text in ("2035-2026", "2026-2099", "26", "next", "1800"):
        with pytest.raises(InvalidInput):
            read_years(text, this_year=2026)
