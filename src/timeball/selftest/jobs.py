"""The jobs of the self-test as a table: every policy that a fault could break is in it once. Knows no scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SWITCHED, EDITED, BY_HAND, COMMAND = "stopped-and-started", "edited", "by-hand", "command"
PLAIN_JOBS = 6
EDITIONS = ("* * * * * *", "*/2 * * * * *", "@every 1s")
COMMAND_SCHEDULE = "*/3 * * * * *"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A function job. `seconds`: how long its work takes; `fails_first`: the first attempt raises."""

    name: str
    schedule: str
    seconds: float = 0.0
    sync: bool = False
    fails_first: bool = False
    policies: Mapping[str, Any] = field(default_factory=lambda: {"overlap": "allow"})


SPECS: tuple[Spec, ...] = (
    *(
        Spec(name=f"each-second-{number + 1}", schedule="* * * * * *", sync=bool(number % 2))
        for number in range(PLAIN_JOBS)
    ),
    Spec(name="overlap-skip", schedule="* * * * * *", seconds=1.4, policies={"overlap": "skip"}),
    Spec(
        name="overlap-queue", schedule="*/2 * * * * *", seconds=1.2, policies={"overlap": "queue", "queue_max": 10_000}
    ),
    Spec(name="some-seconds", schedule="*/5 * * * * *", seconds=3.0, sync=True),
    Spec(
        name="rerun-when-lost",
        schedule="*/2 * * * * *",
        seconds=1.5,
        policies={"overlap": "allow", "on_lost": "rerun", "lost_max": 1000},
    ),
    Spec(
        name="fails-then-works",
        schedule="*/4 * * * * *",
        fails_first=True,
        policies={"overlap": "allow", "attempts_max": 2, "backoff_seconds": 1},
    ),
    Spec(name=SWITCHED, schedule="* * * * * *"),
    Spec(name=EDITED, schedule="* * * * * *"),
    Spec(name="at-reboot", schedule="@reboot"),
    Spec(name=BY_HAND, schedule="none", seconds=0.3),
)
