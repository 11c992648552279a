"""The stretches of constant UTC offset of a time zone. Owns where wall clocks jump; knows nothing of schedules.

The instants of the jumps come from the zone's compiled file (RFC 8536), the offsets from `zoneinfo`. After the last
jump that the file lists, the zone's standing rule is followed by asking `zoneinfo` month by month: no rule that
stands for ever keeps summer time for less than a month. 400 years after it began, the rule repeats itself.
"""

from __future__ import annotations

import functools
import struct
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from timeball.schedule.zones import resolve_zone, zone_bytes

DAY_SECONDS = 86_400
FIRST_SECOND = -62_104_060_800  # 0002-01-01T00:00:00Z: the calendar begins
LAST_SECOND = 253_370_764_800  # 9999-01-01T00:00:00Z: the calendar has ended
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PROBE_SECONDS = 28 * DAY_SECONDS
_AHEAD_SECONDS = 20 * 366 * DAY_SECONDS
_CYCLE_SECONDS = 146_097 * DAY_SECONDS  # 400 years; a whole number of weeks, after which the calendar repeats
_COVERED_AT_FIRST = 2_208_988_800  # 2040-01-01T00:00:00Z


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Stretch i is `starts[i] <= second < starts[i + 1]`, where wall = second + `offsets[i]`.

    `tops[i]`: the first wall second that no clock has shown before stretch i; never falls. So the first instant at
    which the wall clock reads w or later lies in the last stretch whose top is at most w.
    `until`: the end (exclusive) of what is known.
    """

    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    tops: tuple[int, ...]
    until: int


class Zone:
    """A zone's stretches, found on demand and kept. Safe to share between threads: the table is replaced whole."""

    __slots__ = ("_ruled_from", "_table", "info", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.info = resolve_zone(name)
        jumps, ruled = _read_file(zone_bytes(name))
        self._ruled_from = known = max(0, max(jumps, default=0) + 1) if ruled else LAST_SECOND
        self._table = _build(self.info, jumps, until=known)
        if known < LAST_SECOND:
            self.covering(_COVERED_AT_FIRST)

    def covering(self, second: int) -> Segments:
        """Return a table that knows `second` (or ends with the calendar). Longer tables keep the same indices."""
        table = self._table
        if second < table.until or table.until >= LAST_SECOND:
            return table
        until = min(second + _AHEAD_SECONDS, LAST_SECOND)
        jumps = [*table.starts[1:]]
        probed = min(until, self._ruled_from + _CYCLE_SECONDS)
        if table.until < probed:
            jumps += _probe(self.info, table.until - 1, probed)
        _repeat(jumps, max(table.until - 1, probed), until)
        self._table = table = _build(self.info, jumps, until=until, known=table.offsets)
        return table

    def offset_at(self, second: int) -> int:
        """Return what the wall clock is ahead of UTC at `second`, in seconds."""
        table = self.covering(second)
        return table.offsets[max(bisect_right(table.starts, second) - 1, 0)]


def first_reading(zone: Zone, wall: int) -> tuple[int, bool]:
    """Return the first second at which the clock reads `wall` or later, and whether `wall` itself is skipped."""
    table = zone.covering(wall + DAY_SECONDS)
    index = max(bisect_right(table.tops, wall) - 1, 0)
    second = wall - table.offsets[index]
    return max(table.starts[index], second), second < table.starts[index]


@functools.cache
def zone_named(name: str) -> Zone:
    """Return the shared stretches of a zone. Raises ScheduleError (`unknown-zone`)."""
    return Zone(name)


def _build(info: ZoneInfo, jumps: list[int], *, until: int, known: tuple[int, ...] = ()) -> Segments:
    """Lay the stretches out; `known`: offsets of the first ones that were looked up before."""
    starts, offsets = [FIRST_SECOND], [known[0] if known else _offset(info, FIRST_SECOND)]
    for index, jump in enumerate(jumps, start=1):
        offset = known[index] if index < len(known) else _offset(info, jump)
        if offset != offsets[-1]:
            starts.append(jump)
            offsets.append(offset)
    tops = [starts[0] + offsets[0]]
    for index in range(1, len(starts)):
        tops.append(max(tops[-1], starts[index] + offsets[index - 1]))
    return Segments(starts=tuple(starts), offsets=tuple(offsets), tops=tuple(tops), until=until)


def _probe(info: ZoneInfo, since: int, until: int) -> list[int]:
    """Find the jumps in `since < jump <= until`, each to the second."""
    jumps: list[int] = []
    low, before = since, _offset(info, since)
    while low < until:
        high = min(low + _PROBE_SECONDS, until)
        after = _offset(info, high)
        if after != before:
            jumps.append(_bisect(info, low, high))
        low, before = high, after
    return jumps


def _repeat(jumps: list[int], since: int, until: int) -> None:
    """Add the jumps in `since < jump <= until`: under a standing rule those of 400 years before, once more."""
    index = bisect_right(jumps, since - _CYCLE_SECONDS)
    while index < len(jumps) and jumps[index] + _CYCLE_SECONDS <= until:
        jumps.append(jumps[index] + _CYCLE_SECONDS)
        index += 1


def _bisect(info: ZoneInfo, low: int, high: int) -> int:
    before = _offset(info, low)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(info, middle) == before:
            low = middle
        else:
            high = middle
    return high


def _offset(info: ZoneInfo, second: int) -> int:
    offset = (_EPOCH + timedelta(seconds=second)).astimezone(info).utcoffset()
    assert offset is not None
    return offset // timedelta(seconds=1)


def _read_file(data: bytes) -> tuple[list[int], bool]:
    """Return the listed jumps and whether a standing rule follows them (its text then has a comma)."""
    version, *counts = _header(data, 0)
    assert version >= ord("2"), "the tzdata package ships 64-bit files"
    isut, isstd, leap, times, types, chars = counts
    second = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    _, isut, isstd, leap, times, types, chars = _header(data, second)
    body = second + 44
    jumps = struct.unpack_from(f">{times}q", data, body)
    footer = data[body + times * 9 + types * 6 + chars + leap * 12 + isstd + isut :]
    return [jump for jump in jumps if FIRST_SECOND < jump < LAST_SECOND], b"," in footer


def _header(data: bytes, at: int) -> tuple[int, ...]:
    magic, version, *counts = struct.unpack_from(">4sc15x6L", data, at)
    assert magic == b"TZif"
    return version[0], *counts
