"""A program that starts its scheduler when it is imported, which a worker process must not do again."""

from __future__ import annotations

from timeball import Scheduler

scheduler = Scheduler("sqlite:///never.db")


@scheduler.function(isolation="process")
def work() -> None:
    """Nothing."""


scheduler.start()
