"""What there is to say about an expression, before any language. Owns the cases; knows no words."""

from __future__ import annotations

from collections.abc import Callable

from timeball.schedule.expression import Expression
from timeball.schedule.fields import Field, Item, numbers_of

TIMES_MAX = 6
NUMBERS_MAX = 12
EVEN_STEPS = {"second": 60, "minute": 60, "hour": 24}

Namer = Callable[[int], str]


def is_open(field: Field) -> bool:
    """Say whether the field leaves everything open: one of its parts is a star without a step."""
    return any(item.form == "every" and item.step == 1 for item in field.items)


def values_of(field: Field) -> list[int] | None:
    """Return the numbers of a field whose parts are all single values, ascending, or None."""
    if all(item.form == "value" for item in field.items):
        return sorted({item.first for item in field.items})
    return None


def clock_times(expression: Expression) -> list[str] | None:
    """Return the times of a day as `HH:MM[:SS]` when they are few and the text names them one by one, or None."""
    seconds, minutes, hours = (values_of(field) for field in (expression.second, expression.minute, expression.hour))
    if not (seconds and minutes and hours) or len(seconds) * len(minutes) * len(hours) > TIMES_MAX:
        return None
    with_seconds = seconds != [0]
    return [
        f"{hour:02d}:{minute:02d}" + (f":{second:02d}" if with_seconds else "")
        for hour in hours
        for minute in minutes
        for second in seconds
    ]


def on_the_minute(expression: Expression) -> bool:
    """Say whether the second is 0, so that there is nothing to say about it."""
    return values_of(expression.second) == [0]


def is_even_step(item: Item, field: Field) -> bool:
    """Say whether a step to the end of the field comes around evenly, such as every 15 minutes."""
    size = EVEN_STEPS.get(field.span.name, 0)
    return item.form in {"every", "from"} and item.first < item.step and size > 0 and size % item.step == 0


def runs_through(field: Field) -> bool:
    """Say whether the field is one step that comes around evenly, or open."""
    return is_open(field) or (len(field.items) == 1 and is_even_step(field.items[0], field))


def whole_hours(field: Field) -> tuple[int, int] | None:
    """Return the first and the last hour of a field that is one hour or one range of hours, or None."""
    item = field.items[0]
    whole = len(field.items) == 1 and (item.form == "value" or (item.form == "range" and item.step == 1))
    return (item.first, item.last) if whole else None


def numbers(item: Item, field: Field) -> list[int]:
    """Return the numbers of one part of a field."""
    return list(numbers_of(item, field.span))


def weekday(number: int, field: Field) -> int:
    """Return a weekday of the field's own numbering as Sunday = 0."""
    return (number - field.span.names_from) % 7


def named(field: Field, name: Namer, joined: Callable[[list[str]], str], span: Callable[[str, str], str]) -> str:
    """Return a field of months, weekdays or years as names; ranges of three and more as ranges, steps written out."""
    parts: list[str] = []
    for item in field.items:
        if item.form == "special":
            continue
        found = numbers(item, field)
        if item.form == "range" and item.step == 1 and len(found) > 2:
            parts.append(span(name(found[0]), name(found[-1])))
        else:
            parts.extend(name(number) for number in found)
    return joined(list(dict.fromkeys(parts)))


def shortened(texts: list[str]) -> list[str]:
    """Return a list that is not too long to read: the first ones, an ellipsis, the last one."""
    return texts if len(texts) <= NUMBERS_MAX else [*texts[:3], "…", texts[-1]]
