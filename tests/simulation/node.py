"""One instance of the simulation, and what may be done to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.work import SimExecutor
from timeball.engine.engine import Engine

DEPTH_MAX = 2
"""How deep the steps of different instances may lie inside of each other."""
LOOPS = {
    "member": 3,
    "lease": 3,
    "planner": 3,
    "claimer": 5,
    "starter": 6,
    "runner": 5,
    "settler": 5,
    "isolation": 2,
    "canceller": 1,
    "reaper": 2,
    "janitor": 1,
    "makeup": 1,
    "work": 4,
}
"""The loops of an instance and how often each has its turn; `work` lets functions come to their end."""
DRAINING = ("member", "runner", "settler", "isolation", "canceller", "work")


class Died(BaseException):
    """The process of an instance is gone in the middle of a step. No code of the product may catch it."""


@dataclass(slots=True)
class Node:
    """One instance and what the simulation does to it."""

    name: str
    engine: Engine
    executor: SimExecutor
    paused: bool = False
    cut: bool = False
    draining: bool = False
    frozen: bool = False
    busy: bool = False
    loop: str = ""
    look_at: int = 0
    """When its thread for isolation looks next, by the hosts' monotonic clock."""
    ids: set[str] = field(default_factory=set[str])
    """Every member id that it has had."""

    @property
    def asleep(self) -> bool:
        """Whether none of its threads goes on."""
        return self.paused or self.frozen

    def look(self, now: int) -> None:
        """One look of its thread for isolation, which needs no database and waits for nothing."""
        self.look_at = now + max(1, int(self.engine.isolation.step() * 1e6))
