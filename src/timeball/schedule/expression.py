"""One cron expression. Owns how fields combine into days and times of the wall clock; knows nothing of zones.

Days and weekdays in the standard dialect as in Debian's cron: when the text of one of the two begins with `*`, a day
must match both, otherwise one of them is enough.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from timeball.errors import ScheduleError
from timeball.schedule.days import DayRule
from timeball.schedule.dialects import DAY, MONTH, SECOND, YEAR, Dialect, Span
from timeball.schedule.fields import Field, default_field, read_field
from timeball.schedule.guesses import guess_layouts, guess_words
from timeball.schedule.refusals import refusal
from timeball.schedule.wall import Wall

_FIELD = re.compile(r"\S+")
_WEEKDAY = Span(name="weekday", low=0, high=6)
_BOTH = "here a day must match the day of month and the weekday; write * in one of the two"
_SHORT_MONTHS = "February has at most 29 days; April, June, September and November have 30"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """The fields of an expression, those that the text left out filled in."""

    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field
    year: Field

    @property
    def follows_elapsed_time(self) -> bool:
        """Say whether the job is interval-like: `*` or `*/n` in the minute or the hour."""
        return self.minute.flows or self.hour.flows

    @property
    def both(self) -> bool:
        """Say whether a day must match both days and weekdays; otherwise one of the two is enough."""
        return self.day.star or self.weekday.star

    def wall(self) -> Wall:
        """Return the times. Raises ScheduleError (`never-fires`) when no date of the calendar matches."""
        rule = DayRule(
            days=self.day.mask,
            weekdays=self.weekday.mask,
            months=self.month.mask,
            years=0 if self.year.star else self.year.mask,
            day_specials=self.day.specials,
            weekday_specials=self.weekday.specials,
            both=self.both,
        )
        wall = Wall(seconds=self.second.mask, minutes=self.minute.mask, hours=self.hour.mask, days=rule)
        if not wall.days.can_match():
            raise refusal(
                "never-fires",
                f"no date matches day {self.day.text} with month {self.month.text}, weekday {self.weekday.text}"
                + ("" if self.year.star else f" and year {self.year.text}"),
                position=self.day.position,
                hint=_SHORT_MONTHS if self.weekday.star or not self.both else _BOTH,
            )
        return wall


def read_expression(text: str, position: int, *, dialect: Dialect, name: str) -> Expression:
    """Read the fields of a text that begins at `position` of the whole. Raises ScheduleError."""
    words = [(match.group(), position + match.start()) for match in _FIELD.finditer(text)]
    layout = dialect.layouts.get(len(words))
    if layout is None:
        raise _wrong_count(text, len(words), position, dialect)
    fields = {
        span.name: read_field(word, at, span=span, dialect=dialect, name=name)
        for span, (word, at) in zip(layout, words, strict=True)
    }
    expression = Expression(
        second=fields.get(SECOND.name) or default_field(SECOND, "0", 0),
        minute=fields["minute"],
        hour=fields["hour"],
        day=fields[DAY.name],
        month=fields[MONTH.name],
        weekday=fields.get("weekday") or default_field(_WEEKDAY, "*", None),
        year=fields.get(YEAR.name) or default_field(YEAR, "*", None),
    )
    if dialect.one_of_two:
        _check_one_of_two(expression.day, expression.weekday)
    return expression


def _wrong_count(text: str, count: int, position: int, dialect: Dialect) -> ScheduleError:
    counts = " or ".join(str(number) for number in sorted(dialect.layouts))
    forms = "; ".join(
        f"{number}: {', '.join(span.name for span in layout)}" for number, layout in sorted(dialect.layouts.items())
    )
    found = "one field" if count == 1 else f"{count or 'no'} fields"
    return refusal(
        "field-count",
        f"the {dialect.name} dialect takes {counts} fields, here {'is' if count == 1 else 'are'} {found}",
        position=position,
        hint=_guessed(text, count, dialect) or forms,
    )


def _guessed(text: str, count: int, dialect: Dialect) -> str | None:
    """Say what was meant, when that can be read."""
    said = guess_words(text, dialect)
    if said is not None:
        return f"did you mean {said}?"
    layout = ", ".join(span.name for span in dialect.layouts[min(dialect.layouts)])
    for candidate in guess_layouts(text, dialect):
        try:
            read_expression(candidate, 0, dialect=dialect, name="")
        except ScheduleError:
            continue
        said = "only the schedule belongs here" if count > max(dialect.layouts) else layout
        return f"write {candidate} ({said})"
    if count == 7:
        return "only the quartz dialect takes a seventh field, the year"
    return None


def _check_one_of_two(day: Field, weekday: Field) -> None:
    """Quartz: one of the two fields says `?` (or `*`, which we take for the same)."""
    day_open, weekday_open = day.text in {"?", "*"}, weekday.text in {"?", "*"}
    if not (day_open or weekday_open):
        raise refusal(
            "day-and-weekday",
            "the quartz dialect takes either days of the month or weekdays, not both",
            position=weekday.position,
            hint="write ? in one of the two fields, or join two schedules with |",
        )
    if day.text == "?" and weekday.text == "?":
        raise refusal(
            "day-and-weekday",
            "? stands in both the day of month and the weekday",
            position=weekday.position,
            hint="write * in one of the two",
        )
