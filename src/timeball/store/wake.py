"""Names of the channels that wake a loop early. Losing a wake-up costs at most one poll, never correctness."""

from __future__ import annotations

CHANNEL_CHARS_MAX = 63


def work_channel(namespace: str) -> str:
    """Jobs changed, runs are due, or the lease is free in this namespace."""
    return f"timeball.{namespace}"[:CHANNEL_CHARS_MAX]
