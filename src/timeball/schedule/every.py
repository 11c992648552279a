"""Fixed intervals (`@every`). Owns the ticks at `anchor + n * interval`, n >= 1; knows nothing of calendars."""

from __future__ import annotations

import math

from timeball.schedule.contract import MICROSECONDS, Schedule
from timeball.schedule.durations import read_duration
from timeball.schedule.guesses import guess_interval
from timeball.schedule.refusals import refusal
from timeball.schedule.words import in_language

INTERVAL_MAX = 100 * 366 * 86_400 * MICROSECONDS
_FORMS = "write for example @every 90s, @every 5m or @every 1h30m"


class Every(Schedule):
    """`interval` and `anchor` in microseconds; elapsed time, so no zone plays a part."""

    __slots__ = ("anchor", "interval")

    def __init__(self, *, text: str, timezone: str, interval: int, anchor: int) -> None:
        super().__init__(text=text, timezone=timezone)
        self.interval = interval
        self.anchor = anchor

    def next_after(self, instant: int) -> int:
        number = (instant - self.anchor) // self.interval + 1
        return self.anchor + (number if number > 1 else 1) * self.interval

    def previous_before(self, instant: int) -> int | None:
        number = -((self.anchor - instant) // self.interval) - 1
        return self.anchor + number * self.interval if number >= 1 else None

    def count_between(self, after: int, until: int) -> int:
        if until <= after:
            return 0
        passed = (after - self.anchor) // self.interval
        return max((until - self.anchor) // self.interval, 0) - max(passed, 0)

    def marks(self, start: int, seconds: int) -> dict[int, int]:
        """Lay out each part of a second by itself: an interval of 1.5 s has two, each with a tick per 3 s."""
        rounds = MICROSECONDS // math.gcd(self.interval, MICROSECONDS)
        step = self.interval * rounds // MICROSECONDS
        found: dict[int, int] = {}
        tick = self.next_after(start * MICROSECONDS - 1)
        for _ in range(rounds):
            second, part = divmod(tick - start * MICROSECONDS, MICROSECONDS)
            if second >= seconds:
                break
            found[part] = _repeated(second, step, seconds)
            tick += self.interval
        return found

    def most_a_day(self) -> int:
        return -(-86_400 * MICROSECONDS // self.interval)

    def describe(self, language: str = "en") -> str:
        return in_language(language).interval(self.interval)


def _repeated(first: int, step: int, size: int) -> int:
    """Return the bits `first`, `first + step`, … below `size`."""
    bits, width = 1, step
    while width < size - first:
        bits |= bits << width
        width *= 2
    return bits << first & (1 << size) - 1


def read_interval(word: str, position: int, *, whole_seconds: bool, macro: str = "@every") -> int:
    """Return the microseconds of an `@every` (or another `macro`). Raises ScheduleError.

    `whole_seconds`: cut to seconds, at least one.
    """
    nanoseconds, forms = read_duration(word), _FORMS.replace("@every", macro)
    if nanoseconds is None:
        raise refusal("bad-duration", _wrong(word), position=position, hint=_hint(word, macro))
    if nanoseconds <= 0:
        raise refusal(
            "interval-not-positive", f"the interval {word[:40]} is not positive", position=position, hint=forms
        )
    if nanoseconds > INTERVAL_MAX * 1000:
        raise refusal("interval-too-long", "the interval is longer than a hundred years", position=position, hint=forms)
    if whole_seconds:
        return max(nanoseconds // 10**9, 1) * MICROSECONDS
    if nanoseconds < 10**9:
        raise refusal(
            "interval-too-short",
            f"the interval {word[:40]} is below one second",
            position=position,
            hint="use 1s or more",
        )
    if nanoseconds % 10**6:
        raise refusal("bad-duration", "the interval is finer than a millisecond", position=position, hint=forms)
    return nanoseconds // 1000


def _wrong(word: str) -> str:
    return f"{word[:40]!r} is not a duration" if word else "the duration is missing"


def _hint(word: str, macro: str) -> str:
    if word.isdigit() and len(word) <= 6:
        return f"the unit is missing: write {macro} {word}s, {macro} {word}m or {macro} {word}h"
    guess = guess_interval(word)
    return f"write {macro} {guess}" if guess else _FORMS.replace("@every", macro)
