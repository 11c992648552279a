"""Schedules in English. Owns the words; what there is to say comes from `phrases`."""

from __future__ import annotations

from timeball.schedule.days import Special
from timeball.schedule.durations import split_duration
from timeball.schedule.expression import Expression
from timeball.schedule.fields import Field, Item
from timeball.schedule.phrases import (
    clock_times,
    is_open,
    named,
    numbers,
    on_the_minute,
    runs_through,
    shortened,
    values_of,
    weekday,
    whole_hours,
)

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
_NTH = ("", "first", "second", "third", "fourth", "fifth")


class English:
    """The language `en`."""

    def cron(self, expression: Expression) -> str:
        time, date = _time(expression), _date(expression)
        if clock_times(expression) and is_open(expression.day) and is_open(expression.weekday):
            date = f"every day {date}".strip()
        return " ".join(part for part in (time, date, _years(expression)) if part)

    def interval(self, microseconds: int) -> str:
        parts = split_duration(microseconds)
        if len(parts) == 1 and parts[0][0] == "1":
            return f"every {parts[0][1]}"
        return "every " + _joined([f"{number} {unit}{'' if number == '1' else 's'}" for number, unit in parts])

    def after(self, microseconds: int) -> str:
        parts = [f"{number} {unit}{'' if number == '1' else 's'}" for number, unit in split_duration(microseconds)]
        return f"{_joined(parts)} after the end of the last run"

    def once(self, shown: str, timezone: str) -> str:
        return f"once, at {shown} ({timezone})"

    def reboot(self) -> str:
        return "once at each start of the cluster"

    def manual(self) -> str:
        return "only when triggered"

    def union(self, parts: list[str]) -> str:
        return "; and ".join(parts)

    def in_zone(self, text: str, timezone: str) -> str:
        return f"{text} ({timezone})"

    def bounded(self, text: str, since: str | None, until: str | None) -> str:
        return text + (f", from {since} on" if since else "") + (f", until {until}" if until else "")

    def closed(self, text: str, name: str, roll: str) -> str:
        if roll == "skip":
            return f"{text}, except when calendar {name!r} is closed" if name else f"{text}, except when closed"
        of = f" of calendar {name!r}" if name else ""
        return f"{text}, except on closed days{of} (moved to the {roll} open day)"


def _joined(texts: list[str], last: str = "and") -> str:
    texts = shortened(texts)
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} {last} {texts[-1]}"


def _ordinal(number: int) -> str:
    if number % 100 in {11, 12, 13}:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _time(expression: Expression) -> str:
    times = clock_times(expression)
    if times:
        return f"at {_joined(times)}"
    minute = _unit(expression.minute)
    parts: list[str] = []
    if not on_the_minute(expression):
        second = _unit(expression.second)
        flows = second.startswith("every ")
        if flows and is_open(expression.minute):
            minute = ""
        if minute:
            second += "," if flows else " of"
        parts.append(second)
    return " ".join(part for part in (*parts, minute, _hour(expression)) if part)


def _unit(field: Field) -> str:
    """Return seconds or minutes: `every 15 minutes`, `at minutes 5 and 35`."""
    unit = field.span.name
    if is_open(field):
        return f"every {unit}"
    values = values_of(field)
    if values is not None:
        return f"at {_counted(unit, values)}"
    if runs_through(field):
        item = field.items[0]
        return f"every {item.step} {unit}s" + (f" from {unit} {item.first}" if item.first else "")
    return "at " + _joined([_stretch(item, unit) for item in field.items])


def _counted(unit: str, values: list[int]) -> str:
    return f"{unit}{'s' if len(values) > 1 else ''} {_joined([str(value) for value in values])}"


def _stretch(item: Item, unit: str) -> str:
    if item.form == "value":
        return f"{unit} {item.first}"
    if item.form in {"every", "from"}:
        start = f"the {_ordinal(item.first)}" if unit == "day" else f"{item.first} on"
        return f"every {_ordinal(item.step)} {unit} from {start}"
    if item.step == 1:
        return f"each {unit} from {item.first} to {item.last}"
    return f"every {_ordinal(item.step)} {unit} from {item.first} to {item.last}"


def _hour(expression: Expression) -> str:
    field, through = expression.hour, runs_through(expression.minute)
    if is_open(field):
        return "" if through else "of every hour"
    whole = whole_hours(field)
    if whole and through:
        return f"from {whole[0]:02d}:00 to {whole[1]:02d}:59"
    values = values_of(field)
    if values is not None:
        hours = _counted("hour", values)
    elif runs_through(field):
        item = field.items[0]
        hours = f"every {_ordinal(item.step)} hour" + (f" from {item.first}" if item.first else "")
    else:
        hours = _joined([_stretch(item, "hour") for item in field.items])
    return f"{'during' if through else 'of'} {hours}"


def _date(expression: Expression) -> str:
    """Return the day and the months; `the month` is named where that is clear: `on day 29 of February`."""
    months = _months(expression)
    within = f"of {months}" if months and expression.both else "of the month"
    day = "" if is_open(expression.day) else _days(expression.day, within)
    weekdays = "" if is_open(expression.weekday) else _weekdays(expression.weekday, within)
    if day and weekdays:
        text = f"{day}, if it is also {weekdays.removeprefix('on ')}" if expression.both else f"{day} or {weekdays}"
    else:
        text = day or weekdays if expression.both else "every day"
    if not months or (expression.both and within in text):
        return text
    return f"{text} in {months}".strip()


def _days(field: Field, within: str) -> str:
    parts = [_special_day(item.special) for item in field.items if item.special]
    values = sorted({item.first for item in field.items if item.form == "value"})
    stretches = [_stretch(item, "day") for item in field.items if item.form not in {"value", "special"}]
    if values:
        parts.insert(0, _counted("day", values))
    return f"on {_joined(parts + stretches)} {within}"


def _special_day(special: Special) -> str:
    if special.form == "nearest":
        return f"the working day nearest to the {_ordinal(special.value)}"
    before = f"{special.value} day{'s' if special.value > 1 else ''} before the last day" if special.value else ""
    if special.form == "last-weekday":
        return f"the last working day at or before {before}" if before else "the last working day"
    return before or "the last day"


def _weekdays(field: Field, within: str) -> str:
    parts: list[str] = []
    if any(item.form != "special" for item in field.items):
        parts.append(
            named(
                field,
                lambda number: _WEEKDAYS[weekday(number, field)],
                _joined,
                lambda first, last: f"{first} to {last}",
            )
        )
    for special in field.specials:
        which = "last" if special.form == "last-named" else _NTH[special.nth]
        parts.append(f"the {which} {_WEEKDAYS[special.value]} {within}")
    return f"on {_joined(parts)}"


def _months(expression: Expression) -> str:
    field = expression.month
    if is_open(field):
        return ""
    return named(field, lambda number: _MONTHS[number - 1], _joined, lambda first, last: f"{first} to {last}")


def _years(expression: Expression) -> str:
    field = expression.year
    if is_open(field):
        return ""
    if len(field.items) == 1 and len(numbers(field.items[0], field)) > 12:
        return f"in {_stretch(field.items[0], 'year')}"
    return "in " + named(field, str, _joined, lambda first, last: f"{first} to {last}")
