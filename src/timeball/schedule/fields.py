"""One field of a cron expression. Owns the grammar of a field; knows nothing of its neighbours, zones or instants.

A field is a list of items. Each item is kept for the words; together they make the field's mask (bit = value), in
which weekdays count from Sunday = 0 whatever the dialect, and years from 1970.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from timeball.schedule.days import YEAR_BASE, Special
from timeball.schedule.dialects import Dialect, Span
from timeball.schedule.mistakes import explain_syntax, explain_unknown_name, wrapped_list
from timeball.schedule.refusals import refusal

ITEMS_MAX = 100
_DIGITS_MAX = 4
_NAME = r"\d+|[A-Z]+"
_PLAIN = re.compile(rf"(?:(?P<star>[*?])|(?P<first>{_NAME})(?:-(?P<last>{_NAME}))?)(?:/(?P<step>\d+))?")
_HASH = re.compile(r"H(?:\((?P<first>\d+)-(?P<last>\d+)\))?(?:/(?P<step>\d+))?")
_DAY = re.compile(r"L(?:-(?P<before>\d+))?(?P<weekday>W)?|(?P<nearest>\d+)W")
_WEEKDAY = re.compile(r"(?P<value>\d|[A-Z]{3})(?:(?P<last>L)|#(?P<nth>\d+))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A stretch `first`..`last` by `step` (numbers of the dialect; wraps when first > last), or a special day.

    `form`: `every` (a star), `value`, `range`, `from` (`first/step`, to the end of the field) or `special`.
    """

    form: str
    first: int = 0
    last: int = 0
    step: int = 1
    special: Special | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field as read. `star`: it does not restrict, in the sense in which days and weekdays combine.

    `flows`: it is `*`, `*/n` or `H/n`, so that a minute or an hour makes the job follow elapsed time.
    """

    span: Span
    text: str
    position: int
    items: tuple[Item, ...]
    mask: int
    star: bool
    flows: bool

    @property
    def specials(self) -> tuple[Special, ...]:
        """Return the special days among the items."""
        return tuple(item.special for item in self.items if item.special)


def default_field(span: Span, text: str, value: int | None) -> Field:
    """Return the field that a text left out: `value`, or a star when None."""
    star = value is None
    item = Item(form="every", first=span.low, last=span.high) if star else Item(form="value", first=value, last=value)
    mask = (1 << 64) - 1 if star else 1 << value
    return Field(span=span, text=text, position=0, items=(item,), mask=mask, star=star, flows=star)


def read_field(text: str, position: int, *, span: Span, dialect: Dialect, name: str) -> Field:
    """Read one field that begins at `position` of the whole text. `name`: the job's, for H. Raises ScheduleError."""
    return _read_field(text, position, span, dialect, name if "H" in text.upper() else "")


@functools.lru_cache(maxsize=4096)
def _read_field(text: str, position: int, span: Span, dialect: Dialect, name: str) -> Field:
    """Most jobs share most of their fields, so what was read is kept."""
    parts = text.split(",")
    if len(parts) > ITEMS_MAX:
        raise refusal("too-long", f"the {span.name} field has more than {ITEMS_MAX} parts", position=position)
    reader = _ItemReader(span=span, dialect=dialect, name=name)
    items: list[Item] = []
    at = position
    for part in parts:
        items.append(reader.read(part, at))
        at += len(part) + 1
    mask = 0
    for item in items:
        for number in numbers_of(item, span):
            mask |= 1 << _canonical(number, span, dialect)
    return Field(
        span=span,
        text=text,
        position=position,
        items=tuple(items),
        mask=mask,
        star=_is_star(text, items, dialect),
        flows=text[0] in "*?" or any(part[0] in "Hh" and "/" in part for part in parts),
    )


def numbers_of(item: Item, span: Span) -> Iterator[int]:
    """Yield the numbers of an item in the dialect's own numbering, in the order in which they come around."""
    if item.form == "special":
        return
    last = item.last if item.first <= item.last else item.last + span.high - span.low + 1
    for number in range(item.first, last + 1, item.step):
        yield number if number <= span.high else number - (span.high - span.low + 1)


def _canonical(number: int, span: Span, dialect: Dialect) -> int:
    if span.name == "weekday":
        return (number - dialect.weekday_base) % 7
    return number - YEAR_BASE if span.name == "year" else number


def _is_star(text: str, items: list[Item], dialect: Dialect) -> bool:
    """Debian's cron looks at the first character; go-admin at every part, and a step above 1 restricts."""
    if dialect.stepped_star_restricts:
        return any(item.form == "every" and item.step == 1 for item in items)
    return text[0] in "*?"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ItemReader:
    """Reads the parts of one field, each in capital letters or not."""

    span: Span
    dialect: Dialect
    name: str

    def read(self, text: str, at: int) -> Item:
        word = text.upper()
        if self.dialect.hashes and (match := _HASH.fullmatch(word)):
            return self._hash(match, at)
        if self.dialect.specials and (special := self._special(word, at)):
            return Item(form="special", special=special)
        if word == "L" and self.span.name == "weekday" and self.dialect.one_of_two:
            return Item(form="value", first=self.span.high, last=self.span.high)
        match = _PLAIN.fullmatch(word)
        if match is None or (match["star"] == "?" and not self._question_allowed()):
            raise explain_syntax(text, at, span=self.span, dialect=self.dialect)
        return self._plain(match, text, at)

    def _plain(self, match: re.Match[str], text: str, at: int) -> Item:
        span = self.span
        step = self._step(match, at)
        if match["star"]:
            return Item(form="every", first=span.low, last=span.high, step=step)
        first = self._number(match["first"], at + match.start("first"))
        if match["last"] is None:
            if match["step"] is None:
                return Item(form="value", first=first, last=first)
            return Item(form="from", first=first, last=span.high, step=step)
        last = self._number(match["last"], at + match.start("last"))
        if first > last and not self.dialect.wraps:
            self._refuse_reversed(match, text, at)
        return Item(form="range", first=first, last=last, step=step)

    def _question_allowed(self) -> bool:
        return self.dialect.question_anywhere or self.span.name in {"day of month", "weekday"}

    def _step(self, match: re.Match[str], at: int) -> int:
        if match["step"] is None:
            return 1
        at += match.start("step")
        digits = match["step"].lstrip("0")
        if not digits:
            raise refusal(
                "zero-step", f"the {self.span.name} field has a step of zero", position=at, hint="use 1 or more"
            )
        limit = self.span.step_max
        if len(digits) <= _DIGITS_MAX and int(digits) <= limit:
            return int(digits)
        if self.dialect.any_step:
            return min(int(digits[:_DIGITS_MAX]) + limit, 10**_DIGITS_MAX)
        raise refusal(
            "step-too-large",
            f"the {self.span.name} field has a step of {digits[:20]}, larger than the field",
            position=at,
            hint=self._step_hint(digits, limit),
        )

    def _step_hint(self, digits: str, limit: int) -> str:
        unit = {"second": "s", "minute": "m", "hour": "h"}.get(self.span.name)
        if unit and len(digits) <= _DIGITS_MAX:
            return f"at most {limit} here; for a fixed interval write @every {digits}{unit}"
        return f"at most {limit} here"

    def _number(self, word: str, at: int) -> int:
        span = self.span
        if not word.isdigit():
            if word in span.names:
                return span.names.index(word) + span.names_from
            raise explain_unknown_name(word, at, span=span, dialect=self.dialect)
        digits = word.lstrip("0") or "0"
        if len(digits) > _DIGITS_MAX or not span.low <= int(digits) <= span.high:
            raise refusal(
                "out-of-range",
                f"there is no {span.name} {digits[:20]}",
                position=at,
                hint=f"use {span.low} to {span.high}",
            )
        return int(digits)

    def _refuse_reversed(self, match: re.Match[str], text: str, at: int) -> NoReturn:
        first, last = match["first"], match["last"]
        low, high = self._number(first, at), self._number(last, at)
        raise refusal(
            "reversed-range",
            f"the range {text[:20]} in the {self.span.name} field runs backwards ({first} is {low}, {last} is {high})"
            if not (first.isdigit() and last.isdigit())
            else f"the range {text[:20]} in the {self.span.name} field runs backwards ({low} > {high})",
            position=at,
            hint=f"write {wrapped_list(first, last, low, high, span=self.span)}, or {last}-{first} for the others",
        )

    def _hash(self, match: re.Match[str], at: int) -> Item:
        span, step = self.span, self._step(match, at)
        low, high = span.low, span.hash_high or span.high
        if match["first"] is not None:
            low = self._number(match["first"], at + match.start("first"))
            high = self._number(match["last"], at + match.start("last"))
            if low > high:
                raise refusal(
                    "reversed-range",
                    f"the range of H runs backwards ({low} > {high})",
                    position=at,
                    hint=f"write H({high}-{low})",
                )
        spread = _spread(self.name, span.name)
        if match["step"] is None:
            value = low + spread % (high - low + 1)
            return Item(form="value", first=value, last=value)
        first = low + spread % min(step, high - low + 1)
        return Item(form="from" if high == span.high else "range", first=first, last=high, step=step)

    def _special(self, word: str, at: int) -> Special | None:
        if self.span.name == "day of month" and (match := _DAY.fullmatch(word)):
            return self._special_day(match, at)
        if self.span.name == "weekday":
            return self._special_weekday(word, at)
        return None

    def _special_day(self, match: re.Match[str], at: int) -> Special:
        if match["nearest"] is not None:
            return Special(form="nearest", value=self._number(match["nearest"], at))
        before = 0
        if match["before"] is not None:
            digits = match["before"].lstrip("0") or "0"
            if len(digits) > 2 or int(digits) > 30:
                where = at + match.start("before")
                raise refusal("out-of-range", "L- counts at most 30 days back", position=where, hint="use L-0 to L-30")
            before = int(digits)
        return Special(form="last-weekday" if match["weekday"] else "last", value=before)

    def _special_weekday(self, word: str, at: int) -> Special | None:
        match = _WEEKDAY.fullmatch(word)
        if match is None:
            return None
        weekday = _canonical(self._number(match["value"], at), self.span, self.dialect)
        if match["last"]:
            return Special(form="last-named", value=weekday)
        digits = match["nth"].lstrip("0")
        if digits not in {"1", "2", "3", "4", "5"}:
            where = at + match.start("nth")
            raise refusal("out-of-range", "a month has no such weekday", position=where, hint="use #1 to #5")
        return Special(form="nth", value=weekday, nth=int(digits))


def _spread(name: str, field: str) -> int:
    """Return a large number that depends on the job's name and the field alone, the same on every host."""
    digest = hashlib.blake2b(f"{field}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")
