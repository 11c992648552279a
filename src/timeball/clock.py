"""The only module that reads clocks (and `monotonic`, a part of it).

Two kinds of time, never mixed:
- *instants* are integers, microseconds since the epoch, UTC; they come from the database (the cluster clock);
- *monotonic* readings are integers, microseconds since boot (CLOCK_BOOTTIME where there is one, so that a
  suspended host notices), good for durations and trust windows on this host only.
"""

from __future__ import annotations

import datetime as _dt
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from timeball.monotonic import monotonic_us

MICROS = 1_000_000
STEP_BACK_US = 1_000_000
DRIFT_PART = 5_000
"""Two clocks drift apart by one part in so many at most (200 ppm; the usual quartz does 50)."""


def wall_us() -> int:
    """This host's wall clock as an instant. Only a database that lives on this host may use it (SQLite)."""
    return time.time_ns() // 1000


def pause_us(duration_us: int) -> None:
    """Wait on this host's monotonic clock.

    Not by time.sleep: where the wall clock is faked (libfaketime as Debian builds it) that fails, and this does not.
    """
    threading.Event().wait(max(0, duration_us) / MICROS)


def seconds_to_us(seconds: float) -> int:
    """A duration in seconds as whole microseconds."""
    return round(seconds * MICROS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at the database's clock: its answer, and when the question left and the answer arrived here."""

    database_us: int
    sent_us: int
    received_us: int

    @property
    def error_us(self) -> int:
        """Half the round trip: the answer was read somewhere in between."""
        return (self.received_us - self.sent_us) // 2


class ClusterClock:
    """The database's time, kept between samples by this host's monotonic clock. Safe for threads."""

    def __init__(self, monotonic: Callable[[], int] = monotonic_us) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._offset_us: int | None = None
        self.error_us = 0
        self._sampled_at = 0
        self.steps_back = 0
        """How often the database's clock was seen to go back by more than `STEP_BACK_US`."""

    def monotonic(self) -> int:
        """A monotonic reading in microseconds, for durations."""
        return self._monotonic()

    def adopt(self, sample: Sample) -> int:
        """Take a new sample; return by how many microseconds the database's clock moved against ours.

        The first sample returns 0. Within the error bounds of both samples the movement is 0 as well, and the one that
        is known better stays: a slow answer must not make the clock worse.
        """
        offset = sample.database_us - (sample.sent_us + sample.received_us) // 2
        with self._lock:
            age = max(0, sample.sent_us - self._sampled_at)
            old, old_error = self._offset_us, self.error_us + age // DRIFT_PART
            same = old is not None and abs(offset - old) <= old_error + sample.error_us
            if same and old_error < sample.error_us:
                return 0
            self._offset_us, self.error_us, self._sampled_at = offset, sample.error_us, sample.received_us
        if old is None or same:
            return 0
        self.steps_back += offset - old < -STEP_BACK_US
        return offset - old

    def now(self) -> int:
        """The cluster's instant, in microseconds since the epoch. The first sample must have been adopted."""
        assert self._offset_us is not None, "the cluster clock was asked before its first sample"
        return self._monotonic() + self._offset_us

    def at(self, monotonic_us: int) -> int:
        """The cluster's instant of a monotonic reading of this host."""
        assert self._offset_us is not None, "the cluster clock was asked before its first sample"
        return monotonic_us + self._offset_us

    def until(self, instant: int) -> int:
        """Microseconds of monotonic time from now until an instant; negative when it has passed."""
        return instant - self.now()


def format_instant(instant: int | None) -> str | None:
    """RFC 3339 in UTC with microseconds, `2026-12-01T09:00:00.000000Z`; None stays None."""
    if instant is None:
        return None
    moment = _dt.datetime(1970, 1, 1, tzinfo=_dt.UTC) + _dt.timedelta(microseconds=instant)
    return moment.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def local_instant(instant: int, zone: _dt.tzinfo) -> _dt.datetime:
    """An instant as local time of a zone, for showing only."""
    return (_dt.datetime(1970, 1, 1, tzinfo=_dt.UTC) + _dt.timedelta(microseconds=instant)).astimezone(zone)


def parse_instant(text: str) -> int:
    """RFC 3339 with an offset or Z, to microseconds since the epoch. Raises ValueError without an offset."""
    moment = _dt.datetime.fromisoformat(text.strip().replace("z", "Z"))
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset; write it as 2026-12-01T09:00:00Z or +01:00")
    delta = moment - _dt.datetime(1970, 1, 1, tzinfo=_dt.UTC)
    return (delta.days * 86_400 + delta.seconds) * MICROS + delta.microseconds
