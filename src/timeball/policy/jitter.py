"""Spreading a job's runs: how long after its tick each one is ready. Pure, and the same on every host for ever."""

from __future__ import annotations

import hashlib

from timeball.clock import seconds_to_us
from timeball.model.job import Definition


def ready_at(definition: Definition, job_id: int, due_at: int) -> int:
    """The instant (microseconds) from which a tick's run may start: `jitter_seconds` after the tick at the latest."""
    if not definition.jitter_seconds:
        return due_at
    drawn = int.from_bytes(hashlib.blake2b(f"{job_id} {due_at}".encode(), digest_size=8).digest())
    return due_at + drawn % (seconds_to_us(definition.jitter_seconds) + 1)
