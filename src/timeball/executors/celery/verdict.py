"""What Celery's word about a task means for a run. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from timeball.executors.celery.keys import GIVEN_UP
from timeball.model.states import State

RESULT_CHARS_MAX = 4096
ERROR_CHARS_MAX = 4000
_ENDS = {"SUCCESS", "FAILURE", "REVOKED", "REJECTED", "IGNORED"}
_ENDED_FOR_SURE = {"terminated", "expired", GIVEN_UP}
"""Why a task was revoked, by the worker that had it. Any other worker writes `revoked`, also of what runs elsewhere."""


class Verdict(NamedTuple):
    """How a task ended. `notes`: lines for the run's log; `traceback`: as the worker wrote it."""

    state: State
    reason: str | None = None
    error: str | None = None
    result: str | None = None
    notes: tuple[str, ...] = ()
    traceback: str | None = None


class Sign(NamedTuple):
    """What the result backend has of a task. `known`: whether it still has our mark of the hand-over.

    `meta`: Celery's record of the task, None while there is none; `bytes_total`: of that record. `unreadable`: why it
    cannot be read, in words.
    """

    known: bool
    meta: Mapping[str, Any] | None = None
    bytes_total: int = 0
    unreadable: str | None = None

    @property
    def ended(self) -> bool:
        """Whether Celery says that the task has ended."""
        return self.unreadable is not None or (self.meta is not None and self.meta.get("status") in _ENDS)

    @property
    def revoked_by_hearsay(self) -> bool:
        """Whether a worker has noted that the task was revoked, and none says that it had the task and ended it."""
        if self.meta is None or self.meta.get("status") != "REVOKED":
            return False
        return not any(part in _ENDED_FOR_SURE for part in _parts(self.meta.get("result")))

    @property
    def succeeded(self) -> bool:
        """Whether Celery says that it has succeeded."""
        return self.meta is not None and self.meta.get("status") == "SUCCESS"


def read_sign(sign: Sign, task_id: str, asked: Verdict | None) -> Verdict | None:
    """The verdict, or None while the task has not ended. `asked`: what its end was asked for, if it was."""
    if sign.unreadable is not None:
        return Verdict(
            State.LOST, "no-result", f"the result of Celery task {task_id} cannot be read: {sign.unreadable}"
        )
    if sign.meta is None or not sign.ended or sign.revoked_by_hearsay:
        return None
    return _verdict(sign, sign.meta, task_id, asked)


def _verdict(sign: Sign, meta: Mapping[str, Any], task_id: str, asked: Verdict | None) -> Verdict:
    status, value = str(meta["status"]), meta.get("result")
    if status == "SUCCESS":
        return _succeeded(value, sign, asked)
    if status == "REVOKED":
        if asked is not None:
            return asked._replace(error=f"{asked.error}; Celery has ended task {task_id}")
        return revoked(task_id)._replace(error=f"Celery task {task_id} was revoked: {_words(value)}")
    if status == "FAILURE":
        traceback = meta.get("traceback")
        text = traceback if isinstance(traceback, str) else None
        return Verdict(State.FAILED, "exception", _words(value), traceback=text)
    return Verdict(State.FAILED, "rejected", f"Celery task {task_id} was {status.lower()} by its worker")


def revoked(task_id: str) -> Verdict:
    """The verdict on a task that somebody else revoked."""
    return Verdict(State.CANCELLED, "revoked", f"Celery task {task_id} was revoked")


def unconfirmed(asked: Verdict, task_id: str, grace_seconds: float) -> Verdict:
    """What to tell of a cancel when no worker says that it ended the task."""
    words = f"{asked.error}; no worker said within {grace_seconds:g} s that it ended Celery task {task_id}: it may run"
    return asked._replace(error=words)


def no_result(task_id: str, why: str, trouble: str | None) -> Verdict:
    """The verdict on a task of which nothing was heard."""
    cut = f"; its hand-over was cut off: {trouble}" if trouble else ""
    return Verdict(State.LOST, "no-result", f"no result from Celery task {task_id} {why}{cut}; it may still run")


def _succeeded(value: object, sign: Sign, asked: Verdict | None) -> Verdict:
    notes = () if asked is None else (f"the task succeeded before its end, which was asked for: {asked.error}",)
    if value is None:
        return Verdict(State.SUCCEEDED, notes=notes)
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > RESULT_CHARS_MAX:
        cut = f"the result was not kept: {sign.bytes_total} bytes; at most {RESULT_CHARS_MAX} characters are"
        return Verdict(State.SUCCEEDED, notes=(*notes, cut))
    return Verdict(State.SUCCEEDED, result=text, notes=notes)


def _words(value: object) -> str:
    """An exception as Celery's JSON has it: `{exc_type, exc_message, exc_module}`."""
    if not isinstance(value, Mapping):
        return str(value)[:ERROR_CHARS_MAX]
    kind, text = str(value.get("exc_type", "an exception")), ", ".join(_parts(value))
    return (f"{kind}: {text}" if text else kind)[:ERROR_CHARS_MAX]


def _parts(value: object) -> list[str]:
    """The arguments of an exception."""
    message = cast("Mapping[str, Any]", value).get("exc_message") if isinstance(value, Mapping) else None
    parts = cast("list[object]", message) if isinstance(message, list | tuple) else [message]
    return [str(part) for part in parts if part not in (None, "")]
