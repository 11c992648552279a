"""Which days match. Owns days of the month, weekdays, months and years; knows nothing of clocks and zones.

Days are numbered from the epoch (1970-01-01 is day 0). Weekdays count from Sunday = 0. A month is a bit mask in which
bit d is day d; there are only 28 shapes of a month (seven first weekdays, four lengths), so masks are made per shape.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

EPOCH_ORDINAL = 719_163
YEAR_BASE = 1970
SEARCH_YEARS_MAX = 400  # after that the calendar repeats itself
_EVERY_MONTH = 0b1_1111_1111_1110
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SEVENTH = sum(1 << day for day in range(1, 36, 7))


@dataclass(frozen=True, slots=True, kw_only=True)
class Special:
    """A day that depends on the shape of the month.

    `form`: `last` (`value` days before the last), `last-weekday` (the nearest Monday to Friday at or before that),
    `nearest` (the Monday to Friday nearest to day `value`), `nth` (the `nth` weekday `value`), `last-named` (the last
    weekday `value`).
    """

    form: str
    value: int
    nth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRule:
    """The day half of an expression.

    `days`, `weekdays`, `months`: masks (bit = value). `years`: mask from 1970, or 0 for every year.
    `both`: a day must match the days and the weekdays; otherwise one of the two is enough.
    """

    days: int
    weekdays: int
    months: int
    years: int = 0
    day_specials: tuple[Special, ...] = ()
    weekday_specials: tuple[Special, ...] = ()
    both: bool = True

    def shape(self, first: int, length: int) -> int:
        """Return the mask of a month that begins on weekday `first` and has `length` days."""
        by_day, by_weekday = self.days, 0
        for special in self.day_specials:
            by_day |= _special_mask(special, first, length)
        for weekday in range(7):
            if self.weekdays >> weekday & 1:
                by_weekday |= _SEVENTH << (weekday - first) % 7
        for special in self.weekday_specials:
            by_weekday |= _special_mask(special, first, length)
        chosen = by_day & by_weekday if self.both else by_day | by_weekday
        return chosen & (2 << length) - 2


def _special_mask(special: Special, first: int, length: int) -> int:
    if special.form == "nearest":
        return _nearest(special.value, first, length)
    if special.form == "nth":
        day = 1 + (special.value - first) % 7 + 7 * (special.nth - 1)
        return 1 << day if day <= length else 0
    if special.form == "last-named":
        return 1 << length - (first + length - 1 - special.value) % 7
    day = length - special.value
    if day < 1:
        return 0
    return _at_or_before(day, first) if special.form == "last-weekday" else 1 << day


def _nearest(day: int, first: int, length: int) -> int:
    """Saturday goes to Friday, Sunday to Monday, but never out of the month."""
    if day > length:
        return 0
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return 1 << (day - 1 if day > 1 else 3)
    if weekday == 0:
        return 1 << (day + 1 if day < length else day - 2)
    return 1 << day


def _at_or_before(day: int, first: int) -> int:
    weekday = (first + day - 1) % 7
    day -= {6: 1, 0: 2}.get(weekday, 0)
    return 1 << day if day >= 1 else 0


class Days:
    """The days of a rule: next, previous, how many. Bounded: no search leaves 400 years or the calendar."""

    __slots__ = ("_months", "_rule", "_shapes", "_years", "every")

    def __init__(self, rule: DayRule) -> None:
        self._rule = rule
        self._months = rule.months
        self._years = rule.years
        self._shapes: list[int] = [-1] * 28
        whole = rule.shape(0, 31) == (2 << 31) - 2 and rule.shape(3, 31) == (2 << 31) - 2
        self.every = whole and rule.months == _EVERY_MONTH and not rule.years

    def can_match(self) -> bool:
        """Say whether any date of the calendar matches."""
        if self._years:
            return any(self._month(year, month)[1] for year in self._all_years() for month in range(1, 13))
        lengths = {_LENGTHS[month] for month in range(1, 13) if self._months >> month & 1}
        if self._months >> 2 & 1:
            lengths.add(29)
        return any(self._rule.shape(first, length) for length in lengths for first in range(7))

    def matches(self, day: int) -> bool:
        """Say whether day number `day` matches."""
        if self.every:
            return True
        when = date.fromordinal(day + EPOCH_ORDINAL)
        return bool(self._month(when.year, when.month)[1] >> when.day & 1)

    def next(self, day: int) -> int | None:
        """Return the first matching day at or after `day`."""
        if self.every:
            return day
        when = date.fromordinal(day + EPOCH_ORDINAL)
        year, month, number = when.year, when.month, when.day
        limit = 9998 if self._years else min(year + SEARCH_YEARS_MAX, 9998)
        rest = self._mask(day - number + 1, year, month) >> number
        while not rest:
            later = self._months >> month + 1
            if later:
                month += (later & -later).bit_length()
            else:
                year, month = self._later_year(year), (self._months & -self._months).bit_length() - 1
                if year > limit:
                    return None
            day, number = date(year, month, 1).toordinal() - EPOCH_ORDINAL, 1
            rest = self._mask(day, year, month) >> 1
        return day + (rest & -rest).bit_length() - 1

    def previous(self, day: int) -> int | None:
        """Return the last matching day at or before `day`."""
        if self.every:
            return day
        when = date.fromordinal(day + EPOCH_ORDINAL)
        year, month = when.year, when.month
        limit = 2 if self._years else max(year - SEARCH_YEARS_MAX, 2)
        first = day - when.day + 1
        rest = self._mask(first, year, month) & (2 << when.day) - 1
        while not rest:
            earlier = self._months & (1 << month) - 1
            if not earlier:
                earlier, year = self._months, self._earlier_year(year)
                if year < limit:
                    return None
            month = earlier.bit_length() - 1
            first = date(year, month, 1).toordinal() - EPOCH_ORDINAL
            rest = self._mask(first, year, month)
        return first + rest.bit_length() - 2

    def count(self, since: int, until: int) -> int:
        """Return how many days match in `since <= day < until`."""
        if until <= since:
            return 0
        if self.every:
            return until - since
        total, first = 0, since
        while first < until:
            when = date.fromordinal(first + EPOCH_ORDINAL)
            begin = first - when.day + 1
            length, mask = self._month(when.year, when.month)
            wanted = mask >> when.day
            if until < begin + length:
                wanted &= (1 << until - first) - 1
            total += wanted.bit_count()
            first = begin + length
        return total

    def _all_years(self) -> Iterator[int]:
        return (YEAR_BASE + bit for bit in range(self._years.bit_length()) if self._years >> bit & 1)

    def _month(self, year: int, month: int) -> tuple[int, int]:
        return _length(year, month), self._mask(_first_day(year, month), year, month)

    def _mask(self, first: int, year: int, month: int) -> int:
        """Return the mask of a month whose first day has the number `first`."""
        if not self._months >> month & 1 or (self._years and not self._has_year(year)):
            return 0
        length = 29 if month == 2 and year % 4 == 0 and (year % 100 or year % 400 == 0) else _LENGTHS[month]
        index = (first + 4) % 7 * 4 + length - 28
        mask = self._shapes[index]
        if mask < 0:
            mask = self._shapes[index] = self._rule.shape((first + 4) % 7, length)
        return mask

    def _later_year(self, year: int) -> int:
        """Return the next year that can match; past the calendar when there is none."""
        if not self._years:
            return year + 1
        later = self._years >> max(year + 1 - YEAR_BASE, 0)
        return max(year + 1, YEAR_BASE) + (later & -later).bit_length() - 1 if later else 10_000

    def _earlier_year(self, year: int) -> int:
        """Return the last earlier year that can match; before the calendar when there is none."""
        if not self._years:
            return year - 1
        earlier = self._years & (1 << max(year - YEAR_BASE, 0)) - 1
        return YEAR_BASE + earlier.bit_length() - 1 if earlier else 0

    def _has_year(self, year: int) -> bool:
        return year >= YEAR_BASE and bool(self._years >> year - YEAR_BASE & 1)


@functools.lru_cache(maxsize=1024)
def _first_day(year: int, month: int) -> int:
    return date(year, month, 1).toordinal() - EPOCH_ORDINAL


def _length(year: int, month: int) -> int:
    return 29 if month == 2 and year % 4 == 0 and (year % 100 or year % 400 == 0) else _LENGTHS[month]
