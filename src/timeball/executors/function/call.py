"""One call of a function from its start to its outcome. Owns that exactly one outcome is told, in every race."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any

from timeball.clock import monotonic_us, seconds_to_us
from timeball.executors.capture import BoundedCapture
from timeball.executors.contract import Report
from timeball.executors.function.context import RunContext
from timeball.executors.function.endings import Fail, Retry, Skip
from timeball.executors.function.shape import Shape
from timeball.model.run import Outcome, Output, Work
from timeball.model.states import State

RESULT_CHARS_MAX = 4096
SKIP_CHARS_MAX = 200
Verdict = tuple[State, str, str]


class Call:
    """Whoever comes first begins it; whoever comes first tells its end; the others find it taken. Safe for threads."""

    __slots__ = (
        "_to_begin",
        "_to_tell",
        "begun_at",
        "context",
        "deadline",
        "ending",
        "key",
        "on_told",
        "shape",
        "work",
    )

    def __init__(
        self,
        work: Work,
        shape: Shape,
        report: Report,
        context: RunContext,
    ) -> None:
        self.work = work
        self.key = (work.run_id, work.attempt)
        self.context = context
        self.shape = shape
        self.begun_at = 0
        self.deadline: int | None = None
        self.ending: Verdict | None = None
        self._to_begin = [True]  # popping from a list is atomic
        self._to_tell = [report]
        self.on_told: Callable[[Call], None] = _nobody

    @property
    def told(self) -> bool:
        """Whether the outcome has been told."""
        return not self._to_tell

    @property
    def begun(self) -> bool:
        """Whether somebody has begun it."""
        return not self._to_begin

    def begin(self) -> bool:
        """Take the right to run it; False when it has begun elsewhere or is over already."""
        try:
            self._to_begin.pop()
        except IndexError:
            return False
        self.begun_at = monotonic_us()
        if self.work.timeout_seconds is not None:
            self.deadline = self.begun_at + seconds_to_us(self.work.timeout_seconds)
        return not self.told

    def invoke(self) -> Any:
        """Call the function; what it returns or raises is the caller's to handle."""
        shape = self.shape
        args = shape.arguments.read(self.work.args)
        return shape.function(self.context, **args) if shape.wants_run else shape.function(**args)

    def ask_to_end(self, verdict: Verdict) -> None:
        """Remember why it is to end; the first reason counts."""
        if self.ending is None:
            self.ending = verdict
        self.context.ask_to_end(self.ending[2])

    def timed_out(self) -> Verdict:
        """The verdict of its time-out."""
        return State.TIMED_OUT, "timeout", f"ended after its time-out of {self.work.timeout_seconds:g} s"

    def returned(self, value: object) -> None:
        """Tell that the function returned."""
        if self.ending is not None:
            self.tell(*self.ending)
            return
        result = None
        if value is not None:
            result = self._as_json(value)
        self.tell(State.SUCCEEDED, None, None, result)

    def raised(self, error: BaseException) -> None:
        """Tell that the function raised, whatever it is, SystemExit too."""
        if self.ending is not None:
            self.tell(*self.ending)
        elif isinstance(error, Skip):
            if len(error.why) > SKIP_CHARS_MAX:
                self.context.log(error.why)
            self.tell(State.SKIPPED, error.why[:SKIP_CHARS_MAX] or "the function had nothing to do")
        elif isinstance(error, Retry):
            after_us = None if error.after_seconds is None else seconds_to_us(error.after_seconds)
            why = error.why or "the function asked to be tried again"
            self.tell(State.FAILED, "retry", why, outputs=self._traceback(error), retry=True, retry_after_us=after_us)
        elif isinstance(error, Fail):
            retry = None if error.retry else False
            self.tell(State.FAILED, "fail", error.why, outputs=self._traceback(error), retry=retry)
        else:
            self.tell(State.FAILED, "exception", _words(error), outputs=self._traceback(error))

    def tell(
        self,
        state: State,
        reason: str | None = None,
        error: str | None = None,
        result: str | None = None,
        outputs: tuple[Output, ...] = (),
        *,
        retry: bool | None = None,
        retry_after_us: int | None = None,
    ) -> bool:
        """Tell the outcome, unless somebody has told one."""
        try:
            report = self._to_tell.pop()
        except IndexError:
            return False
        now = monotonic_us()
        report(
            Outcome(
                run_id=self.work.run_id,
                attempt=self.work.attempt,
                fence=self.work.fence,
                state=state,
                begun_at=self.begun_at or now,
                ended_at=now,
                reason=reason,
                error=error,
                result=result,
                outputs=(*self.context.outputs(), *outputs),
                retry=retry,
                retry_after_us=retry_after_us,
            )
        )
        self.on_told(self)
        return True

    def _traceback(self, error: BaseException) -> tuple[Output, ...]:
        capture = BoundedCapture(self.context.bytes_max)
        capture.add("".join(traceback.format_exception(error)).encode("utf-8", "replace"))
        output = capture.output("traceback")
        return () if output is None else (output,)

    def _as_json(self, value: object) -> str | None:
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError) as error:
            self.context.log(f"the returned {type(value).__name__} was not kept: {error}")
            return None
        if len(text) > RESULT_CHARS_MAX:
            self.context.log(f"the returned value was not kept: {len(text)} characters; at most {RESULT_CHARS_MAX}")
            return None
        return text


def _nobody(_call: Call) -> None:
    """Nobody to be told that a call has ended."""


def _words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as trouble:  # noqa: BLE001 - a __str__ of the user's
        text = f"(its text cannot be shown: {type(trouble).__name__})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
