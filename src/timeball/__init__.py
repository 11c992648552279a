"""Timeball: scheduled jobs in a shared SQL database. Any number of instances, each tick fires exactly once."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from timeball.errors import Superseded, TimeballError
from timeball.version import VERSION

if TYPE_CHECKING:
    from timeball.app.scheduler import Scheduler
    from timeball.executors.function.context import RunContext
    from timeball.executors.function.endings import Fail, Retry, Skip

__version__ = VERSION

__all__ = ["Fail", "Retry", "RunContext", "Scheduler", "Skip", "Superseded", "TimeballError", "__version__"]

_LAZY = {
    "Fail": "timeball.executors.function.endings",
    "Retry": "timeball.executors.function.endings",
    "RunContext": "timeball.executors.function.context",
    "Scheduler": "timeball.app.scheduler",
    "Skip": "timeball.executors.function.endings",
}


def __getattr__(name: str) -> Any:
    """The large names come when they are asked for, so that `timeball --help` is instant."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'timeball' has no attribute {name!r}")
