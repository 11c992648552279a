"""For Celery workers: tasks that begin once for each hand-over, and whose run a task works for.

Celery delivers at least once: the same message can come twice, and after a cut connection so can a second message with
the same task id. Whoever begins first leaves a mark in the Redis that holds the results; the others find it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery import Task
from celery.exceptions import Ignore, ImproperlyConfigured

from timeball.executors.celery.keys import CLOSED, GIVEN_UP, begun_key, handover_key

KEEP_SECONDS = 7 * 86_400
"""How long the mark of a begin is kept."""
_log = logging.getLogger("timeball.celery")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeaders:
    """The run behind a task. `due_at`: RFC 3339 in UTC; `fence` rises with every attempt."""

    run_id: int
    job: str
    namespace: str
    due_at: str
    attempt: int
    fence: int


def run_of(task: Any) -> RunHeaders | None:
    """The run that a bound task works for; None when something else than Timeball called it."""
    headers: Mapping[str, Any] = task.request.headers or {}
    if "timeball_run_id" not in headers:
        return None
    return RunHeaders(
        run_id=int(headers["timeball_run_id"]),
        job=str(headers["timeball_job"]),
        namespace=str(headers["timeball_namespace"]),
        due_at=str(headers["timeball_due_at"]),
        attempt=int(headers["timeball_attempt"]),
        fence=int(headers["timeball_fence"]),
    )


class Once(Task):  # pyright: ignore[reportUntypedBaseClass]
    """A base for tasks: `@app.task(base=Once)`. A second delivery, and one that was given up, do not begin.

    Needs a Redis result backend, the same one that Timeball reads. Calls that do not come from Timeball run as ever.
    """

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Begin, unless somebody has. Raises Ignore, ImproperlyConfigured."""
        if run_of(self) is not None:
            _begin(self)
        return self.run(*args, **kwargs)


def _begin(task: Any) -> None:
    request, client = task.request, getattr(task.backend, "client", None)
    if client is None or not hasattr(client, "setnx"):
        raise ImproperlyConfigured(
            f"timeball.celery.Once needs a Redis result backend (redis://HOST/0), not {type(task.backend).__name__}"
        )
    mark = f"{request.hostname} {request.id}"
    if not client.set(begun_key(request.id, request.retries), mark, nx=True, ex=KEEP_SECONDS):
        _log.warning("task %s was delivered again and does not begin a second time", request.id)
        raise Ignore(f"task {request.id} has begun before")
    # Its owner closes first and then looks for the mark: one of both sees the other.
    if client.get(handover_key(request.id)) == CLOSED:
        _log.warning("task %s was given up before it came here and does not begin", request.id)
        task.backend.mark_as_revoked(request.id, GIVEN_UP, request=request, store_result=True)
        raise Ignore(f"task {request.id} was given up")
