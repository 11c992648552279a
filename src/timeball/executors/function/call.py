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
from timeball.model.run import Outcome, Output, Work
from timeball.model.states import State

RESULT_CHARS_MAX = 4096
Verdict = tuple[State, str, str]


class Call:
    """Whoever comes first begins it; whoever comes first tells its end; the others find it taken. Safe for threads."""

    __slots__ = (
        "_bytes_max",
        "_function",
        "_to_begin",
        "_to_tell",
        "_wants_run",
        "begun_at",
        "context",
        "deadline",
        "ending",
        "key",
        "on_told",
        "work",
    )

    def __init__(
        self, work: Work, function: Callable[..., Any], report: Report, bytes_max: int, *, wants_run: bool
    ) -> None:
        self.work = work
        self.key = (work.run_id, work.attempt)
        self.context = RunContext(work, bytes_max)
        self.begun_at = 0
        self.deadline: int | None = None
        self.ending: Verdict | None = None
        self._function = function
        self._wants_run = wants_run
        self._bytes_max = bytes_max
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
        args = self.work.args
        return self._function(self.context, **args) if self._wants_run else self._function(**args)

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
            return
        capture = BoundedCapture(self._bytes_max)
        capture.add("".join(traceback.format_exception(error)).encode("utf-8", "replace"))
        output = capture.output("traceback")
        text = _words(error)
        self.tell(State.FAILED, "exception", text, None, () if output is None else (output,))

    def tell(
        self,
        state: State,
        reason: str | None = None,
        error: str | None = None,
        result: str | None = None,
        outputs: tuple[Output, ...] = (),
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
            )
        )
        self.on_told(self)
        return True

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
