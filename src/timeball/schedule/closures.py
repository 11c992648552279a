"""What is closed, over wall seconds, a year at a time. Owns the tables; knows nothing of zones and schedules."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from datetime import date

from timeball.schedule.days import EPOCH_ORDINAL
from timeball.schedule.exclusions import WEEK_SECONDS, Exclusions, Span, merged, read_rules, wrong
from timeball.schedule.segments import DAY_SECONDS

WINDOWS_MAX = 250
RUN_DAYS_MAX = 100
_YEARS_KEPT = 8
_CYCLE = range(2000, 2028)  # every shape of a year
_SUNDAY = 3  # day 3 after the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Wall seconds `start <= wall < end` that are all closed, or all open; cut at the ends of a year."""

    closed: bool
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Year:
    first: int
    last: int
    starts: tuple[int, ...]
    ends: tuple[int, ...]


class Closures:
    """The closed wall seconds of a calendar. Safe to share between threads."""

    def __init__(self, exclusions: Exclusions) -> None:
        self._rules = exclusions
        self._once_starts = [start for start, _ in exclusions.once]
        self._years: OrderedDict[int, _Year] = OrderedDict()

    def at(self, wall: int) -> Stretch:
        """Return the stretch that a wall second lies in."""
        year = self._year(date.fromordinal(wall // DAY_SECONDS + EPOCH_ORDINAL).year)
        index = bisect_right(year.starts, wall) - 1
        if index >= 0 and wall < year.ends[index]:
            return Stretch(closed=True, start=year.starts[index], end=year.ends[index])
        start = year.ends[index] if index >= 0 else year.first
        end = year.starts[index + 1] if index + 1 < len(year.starts) else year.last
        return Stretch(closed=False, start=start, end=end)

    def closed_day(self, day: int) -> bool:
        """Say whether the first second of a day (numbered from the epoch) is closed."""
        return self.at(day * DAY_SECONDS).closed

    @property
    def dated(self) -> Span | None:
        """From the first to the last wall second that rules for single dates close; what others close comes again."""
        return (self._rules.once[0][0], self._rules.once[-1][1]) if self._rules.once else None

    @functools.cached_property
    def whole_days(self) -> bool:
        """Whether only whole days are closed."""
        spans = (*self._rules.once, *self._rules.weekly)
        return not any(end % DAY_SECONDS for span in spans for end in span)

    @functools.cached_property
    def always(self) -> bool:
        """Whether nothing is open in any year beyond the rules for single dates."""
        bare = Closures(Exclusions(once=(), weekly=self._rules.weekly, yearly=self._rules.yearly))
        return all(bare.whole_year(year) for year in _CYCLE)

    @functools.cached_property
    def longest_run_days(self) -> int:
        """The most days that are closed on end; beyond `RUN_DAYS_MAX` any larger number."""
        if any(end - start > (RUN_DAYS_MAX + 1) * DAY_SECONDS for start, end in self._rules.once):
            return RUN_DAYS_MAX + 1
        years = {date.fromordinal(start // DAY_SECONDS + EPOCH_ORDINAL).year for start in self._once_starts}
        wanted = sorted({year + step for year in years for step in (-1, 0, 1)} | set(_CYCLE))
        spans = merged(span for year in wanted for span in self._spans(year))
        return max((end - start for start, end in spans), default=0) // DAY_SECONDS

    def whole_year(self, year: int) -> bool:
        """Whether a year is closed from its first to its last second."""
        table = self._year(year)
        return table.starts[:1] == (table.first,) and table.ends == (table.last,)

    def closed_days(self, year: int) -> list[tuple[date, bool]]:
        """Return the days of a year that are closed, each with whether the whole of it is."""
        found: dict[int, int] = {}
        for start, end in self._spans(year):
            for day in range(start // DAY_SECONDS, (end - 1) // DAY_SECONDS + 1):
                closed = min(end, (day + 1) * DAY_SECONDS) - max(start, day * DAY_SECONDS)
                found[day] = found.get(day, 0) + closed
        return [(date.fromordinal(day + EPOCH_ORDINAL), found[day] == DAY_SECONDS) for day in sorted(found)]

    def _year(self, year: int) -> _Year:
        table = self._years.get(year)
        if table is None:
            spans = self._spans(year)
            first, last = _bounds(year)
            table = _Year(first, last, tuple(start for start, _ in spans), tuple(end for _, end in spans))
            years = OrderedDict(list(self._years.items())[1 - _YEARS_KEPT :])
            years[year] = table
            self._years = years  # replaced whole: others may be reading the old one
        return table

    def _spans(self, year: int) -> list[Span]:
        """Return what is closed in a year."""
        first, last = _bounds(year)
        spans: list[Span] = []
        index = max(bisect_right(self._once_starts, first) - 1, 0)
        while index < len(self._rules.once) and self._rules.once[index][0] < last:
            spans.append(self._rules.once[index])
            index += 1
        for begin, end in self._rules.yearly:
            parts = [(begin, end)] if begin <= end else [((1, 1), end), (begin, (12, 31))]
            spans.extend((_day(year, *start), _day(year, *stop, end=True)) for start, stop in parts)
        week = first - (first - _SUNDAY * DAY_SECONDS) % WEEK_SECONDS
        while self._rules.weekly and week < last:
            spans.extend((week + start, week + end) for start, end in self._rules.weekly)
            week += WEEK_SECONDS
        return merged((max(start, first), min(end, last)) for start, end in spans if start < last and end > first)


@functools.lru_cache(maxsize=256)
def closures_of(rules: tuple[str, ...]) -> Closures:
    """Return what these rules close; the same object for the same rules. Raises ScheduleError."""
    if not rules:
        raise wrong("the calendar has no rule")
    exclusions = read_rules(rules)
    if len(exclusions.weekly) > WINDOWS_MAX:
        raise wrong(f"there are more than {WINDOWS_MAX} windows a week", "join windows that lie close together")
    closures = Closures(exclusions)
    if closures.always:
        raise wrong("the calendar is closed always", "leave some time open", kind="never-fires")
    return closures


def _bounds(year: int) -> Span:
    first = (date(year, 1, 1).toordinal() - EPOCH_ORDINAL) * DAY_SECONDS
    length = 366 if year % 4 == 0 and (year % 100 or year % 400 == 0) else 365
    return first, first + length * DAY_SECONDS


def _day(year: int, month: int, day: int, *, end: bool = False) -> int:
    """Return the first second of a day, or the one after its last; where there is no 29 February, that of March."""
    if (month, day) == (2, 29) and _bounds(year)[1] - _bounds(year)[0] != 366 * DAY_SECONDS:
        month, day, end = 3, 1, False
    return (date(year, month, day).toordinal() - EPOCH_ORDINAL + end) * DAY_SECONDS
