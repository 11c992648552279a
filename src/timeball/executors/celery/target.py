"""A Celery task as a target: what may stand in it, and what its task id is. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from timeball.clock import format_instant
from timeball.errors import TargetError
from timeball.model.run import Work

NAME_CHARS_MAX = 200
DIGITS = 16
RESULT_SCHEMES = ("redis", "rediss", "sentinel", "redis+socket")
_KEYS = ("task", "queue", "once", "options")
_SECONDS = (float, int)
_OPTIONS: Mapping[str, tuple[type, ...]] = {
    "compression": (str,),
    "exchange": (str,),
    "expires": _SECONDS,
    "priority": (int,),
    "routing_key": (str,),
    "soft_time_limit": _SECONDS,
    "time_limit": _SECONDS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CeleryTarget:
    """What to call. `once`: the task has the base `timeball.celery.Once`, so a hand-over may be repeated."""

    task: str
    queue: str | None = None
    once: bool = False
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read_target(target: Mapping[str, Any]) -> CeleryTarget:
    """Read and check the shape of a target. Raises TargetError that names the key."""
    for key in target:
        if key not in _KEYS:
            raise TargetError(f"a Celery target has no {key!r}", hint=f"known: {', '.join(_KEYS)}", field="target")
    once = target.get("once", False)
    if not isinstance(once, bool):
        raise TargetError(f"once must be true or false, not {once!r}", field="target")
    options = target.get("options") or {}
    if not isinstance(options, Mapping):
        raise TargetError("options must be an object", hint=f"known: {', '.join(_OPTIONS)}", field="target")
    queue = target.get("queue")
    return CeleryTarget(
        task=_name("task", target.get("task")),
        queue=None if queue is None else _name("queue", queue),
        once=once,
        options={key: _option(key, value) for key, value in cast("Mapping[str, object]", options).items()},
    )


def identity_of(place: str, work: Work) -> str:
    """A run's name outside of its database: another database, or one that was made anew, gives another one."""
    text = "\0".join((place, str(work.run_id), str(work.due_at)))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def task_id_of(identity: str, work: Work) -> str:
    """The task id of an attempt: the same whenever it is handed over."""
    return f"timeball-{work.run_id}-{work.attempt}-{identity}"


def headers_of(work: Work) -> dict[str, str]:
    """The run's identity, as headers of the message."""
    return {
        "timeball_run_id": str(work.run_id),
        "timeball_job": work.job,
        "timeball_namespace": work.namespace,
        "timeball_due_at": str(format_instant(work.due_at)),
        "timeball_attempt": str(work.attempt),
        "timeball_fence": str(work.fence),
    }


def _name(key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise TargetError(f"a Celery target needs {key}, a name such as 'reports.send'", field="target")
    if len(value) > NAME_CHARS_MAX:
        raise TargetError(f"{key} has at most {NAME_CHARS_MAX} characters", field="target")
    return value


def _option(key: str, value: object) -> object:
    kinds = _OPTIONS.get(key)
    if kinds is None:
        raise TargetError(f"options: {key!r} cannot be set", hint=f"known: {', '.join(_OPTIONS)}", field="target")
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TargetError(
            f"options: {key} = {value!r} must be {' or '.join(k.__name__ for k in kinds)}", field="target"
        )
    if isinstance(value, int | float) and value < 0:
        raise TargetError(f"options: {key} = {value!r} must not be below zero", field="target")
    return value
