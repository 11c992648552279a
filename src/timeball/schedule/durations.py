"""Lengths of time as Go writes them (`1h30m`, `90s`, `1.5h`). Owns their grammar; knows nothing of schedules."""

from __future__ import annotations

import re

NAMED_UNITS = ("week", "day", "hour", "minute", "second")
_UNIT_SECONDS = (604_800, 86_400, 3600, 60)

_NANOSECONDS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"(?P<whole>\d*)(?:\.(?P<part>\d*))?(?P<unit>ns|us|ms|s|m|h)")


def read_duration(text: str) -> int | None:
    """Return the nanoseconds of a duration such as `-1h30m`, or None when it is none."""
    sign, rest = (-1 if text[:1] == "-" else 1), text.removeprefix("-") if text[:1] == "-" else text.removeprefix("+")
    if rest == "0":
        return 0
    total, at = 0, 0
    while at < len(rest):
        match = _PART.match(rest, at)
        if match is None or not (match["whole"] or match["part"]):
            return None
        unit, part = _NANOSECONDS[match["unit"]], match["part"] or ""
        total += int(match["whole"] or "0") * unit + int(part or "0") * unit // 10 ** len(part)
        at = match.end()
    return sign * total if rest else None


def split_duration(microseconds: int) -> list[tuple[str, str]]:
    """Return a positive duration as numbers with units of `NAMED_UNITS`, the largest first; weeks only when even."""
    seconds, part = divmod(microseconds, 1_000_000)
    parts: list[tuple[str, str]] = []
    for unit, size in zip(NAMED_UNITS, _UNIT_SECONDS, strict=False):
        if unit == "week" and (part or seconds % size):
            continue
        number, seconds = divmod(seconds, size)
        if number:
            parts.append((str(number), unit))
    if seconds or part or not parts:
        parts.append((f"{seconds}.{part:06d}".rstrip("0") if part else str(seconds), "second"))
    return parts
