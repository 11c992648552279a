"""The wall-clock times of an expression. Owns which local seconds match; knows nothing of zones.

A wall second is day number times 86,400 plus the second of the day, as if every day had 24 hours.
"""

from __future__ import annotations

from timeball.schedule.days import DayRule, Days

_DAY = 86_400
_FIRST_DAY = -718_797  # 0002-01-02: leaves room for any offset
_LAST_DAY = 2_932_530  # 9998-12-30


class Wall:
    """Next, previous and count over wall seconds. `seconds`, `minutes`, `hours`: bit masks, none empty."""

    __slots__ = ("_day", "_first", "_hours", "_last", "_minutes", "_seconds", "days", "per_day")

    def __init__(self, *, seconds: int, minutes: int, hours: int, days: DayRule) -> None:
        assert seconds and minutes and hours
        self._seconds, self._minutes, self._hours = seconds, minutes, hours
        self.days = Days(days)
        self._day: int | None = None
        self.per_day = seconds.bit_count() * minutes.bit_count() * hours.bit_count()
        self._first = _low(hours) * 3600 + _low(minutes) * 60 + _low(seconds)
        self._last = _high(hours) * 3600 + _high(minutes) * 60 + _high(seconds)

    def next(self, wall: int) -> int | None:
        """Return the first matching wall second at or after `wall`, or None within 400 years."""
        day, second = divmod(wall, _DAY)
        if day < _FIRST_DAY:
            day, second = _FIRST_DAY, 0
        elif day > _LAST_DAY:
            return None
        found = self.days.next(day)
        if found is None:
            return None
        if found > day:
            return found * _DAY + self._first
        if second <= self._last:
            return day * _DAY + self._next_in_day(second)
        found = self.days.next(day + 1)
        return None if found is None else found * _DAY + self._first

    def previous(self, wall: int) -> int | None:
        """Return the last matching wall second at or before `wall`, or None within 400 years."""
        day, second = divmod(wall, _DAY)
        if day > _LAST_DAY:
            day, second = _LAST_DAY, _DAY - 1
        elif day < _FIRST_DAY:
            return None
        found = self.days.previous(day)
        if found is None:
            return None
        if found < day:
            return found * _DAY + self._last
        if second >= self._first:
            return day * _DAY + self._previous_in_day(second)
        found = self.days.previous(day - 1)
        return None if found is None else found * _DAY + self._last

    def count(self, since: int, until: int) -> int:
        """Return how many wall seconds match in `since <= wall < until`."""
        if until <= since:
            return 0
        since, until = max(since, _FIRST_DAY * _DAY), min(until, (_LAST_DAY + 1) * _DAY)
        first, since_second = divmod(since, _DAY)
        last, until_second = divmod(until, _DAY)
        total = self.days.count(first, last) * self.per_day
        if since_second and self.days.matches(first):
            total -= self._count_in_day(since_second)
        if until_second and self.days.matches(last):
            total += self._count_in_day(until_second)
        return total

    def bits(self, since: int, until: int) -> int:
        """Return the matching wall seconds in `since <= wall < until` as bits, bit 0 for `since`."""
        since_day, until_day = max(since // _DAY, _FIRST_DAY), min((until - 1) // _DAY, _LAST_DAY)
        found, day = 0, self.days.next(since_day) if since_day <= until_day else None
        while day is not None and day <= until_day:
            shift = day * _DAY - since
            found |= self._day_bits() << shift if shift >= 0 else self._day_bits() >> -shift
            day = self.days.next(day + 1)
        return found & (1 << until - since) - 1

    def _day_bits(self) -> int:
        """Return a matching day as bits: bit n is second n of the day."""
        if self._day is None:
            hour = sum(self._seconds << 60 * minute for minute in range(60) if self._minutes >> minute & 1)
            self._day = sum(hour << 3600 * number for number in range(24) if self._hours >> number & 1)
        return self._day

    def _next_in_day(self, second: int) -> int:
        """Return the first matching second of a day at or after `second`; there is one."""
        hour, rest = divmod(second, 3600)
        if self._hours >> hour & 1:
            minute, second_of = divmod(rest, 60)
            if self._minutes >> minute & 1:
                bits = self._seconds >> second_of
                if bits:
                    return second + (bits & -bits).bit_length() - 1
            bits = self._minutes >> minute + 1
            if bits:
                return hour * 3600 + (minute + (bits & -bits).bit_length()) * 60 + self._first % 60
        bits = self._hours >> hour + 1
        return (hour + (bits & -bits).bit_length()) * 3600 + self._first % 3600

    def _previous_in_day(self, second: int) -> int:
        """Return the last matching second of a day at or before `second`; there is one."""
        hour, rest = divmod(second, 3600)
        if self._hours >> hour & 1:
            minute, second_of = divmod(rest, 60)
            if self._minutes >> minute & 1:
                bits = self._seconds & (2 << second_of) - 1
                if bits:
                    return second - second_of + bits.bit_length() - 1
            bits = self._minutes & (1 << minute) - 1
            if bits:
                return hour * 3600 + (bits.bit_length() - 1) * 60 + self._last % 60
        bits = self._hours & (1 << hour) - 1
        return (bits.bit_length() - 1) * 3600 + self._last % 3600

    def _count_in_day(self, second: int) -> int:
        """Return how many seconds of a matching day lie before `second`."""
        hour, rest = divmod(second, 3600)
        minute, second_of = divmod(rest, 60)
        seconds, minutes = self._seconds.bit_count(), self._minutes.bit_count()
        total = (self._hours & (1 << hour) - 1).bit_count() * minutes * seconds
        if self._hours >> hour & 1:
            total += (self._minutes & (1 << minute) - 1).bit_count() * seconds
            if self._minutes >> minute & 1:
                total += (self._seconds & (1 << second_of) - 1).bit_count()
        return total


def _low(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _high(bits: int) -> int:
    return bits.bit_length() - 1
