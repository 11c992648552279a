"""What instances and workers tell each other in the Redis of the results. Pure; needs no Celery."""

from __future__ import annotations

CLOSED = b"closed"
GIVEN_UP = "given up before it began"
"""Why a task was revoked that did not begin, because its owner had given it up."""


def handover_key(task_id: str) -> str:
    """The key that says of a task id that it was handed over, or closed: given up by its owner."""
    return f"timeball-handover-{task_id}"


def begun_key(task_id: str, retries: int = 0) -> str:
    """The key of whoever began a task first; `retries`: how often the task itself asked Celery for another try."""
    return f"timeball-begun-{task_id}-{retries}"


def run_key(identity: str) -> str:
    """The key that holds the task id of a run's latest hand-over."""
    return f"timeball-run-{identity}"
