"""This host's monotonic clock, for `clock` and for processes so small that they load nothing else of ours."""

from __future__ import annotations

import time

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def monotonic_us() -> int:
    """Microseconds on this host's monotonic clock; goes on during suspend where the platform can."""
    if _BOOTTIME is None:
        return time.monotonic_ns() // 1000
    return time.clock_gettime_ns(_BOOTTIME) // 1000
