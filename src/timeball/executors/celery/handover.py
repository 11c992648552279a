"""One attempt on its way to Celery and back. Owns that exactly one outcome is told, in every race."""

from __future__ import annotations

import threading
from collections.abc import Callable

from timeball.clock import monotonic_us, seconds_to_us
from timeball.executors.capture import BoundedCapture
from timeball.executors.celery.target import CeleryTarget, identity_of, read_target, task_id_of
from timeball.executors.celery.verdict import Verdict, no_result
from timeball.executors.contract import Report
from timeball.model.run import Outcome, Output, Work
from timeball.model.states import State


class Refused(Exception):
    """The broker or the client will not take this message; nothing was sent."""


class HandOver:
    """Safe for threads.

    `task_id`: the task whose result counts; an earlier attempt's, when that one is followed. `marked`: that id has a
    mark in the result backend; `claimed`: the mark is ours, so the message is ours to send. `deadline`, `give_up_at`:
    monotonic readings in microseconds. `asked`: what to tell when Celery confirms that the task was ended.
    """

    def __init__(self, work: Work, place: str, report: Report, *, bytes_max: int, result_seconds: float) -> None:
        self.work = work
        self.key = (work.run_id, work.attempt)
        self.target: CeleryTarget = read_target(work.target)
        self.identity = identity_of(place, work)
        self.own_id = self.task_id = task_id_of(self.identity, work)
        self.begun_at = monotonic_us()
        self.seconds = result_seconds if work.timeout_seconds is None else work.timeout_seconds
        self.deadline = self.begun_at + seconds_to_us(self.seconds)
        self.asked: Verdict | None = None
        self.unconfirmed: Verdict | None = None
        self.give_up_at = 0
        self.forgotten_at: int | None = None
        self.trouble: str | None = None
        self.claimed = False
        self.marked = False
        self.on_told: Callable[[HandOver], None] = _nobody
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._waiting = True
        self._to_tell: list[Report] = [report]

    @property
    def told(self) -> bool:
        """Whether the outcome has been told."""
        return not self._to_tell

    @property
    def waiting(self) -> bool:
        """Whether it is certain that no message has been sent."""
        return self._waiting

    def take(self) -> bool:
        """From now on a message may have been sent; False when the outcome is told already."""
        with self._lock:
            if self.told:
                return False
            self._waiting = False
            return True

    def put_back(self) -> None:
        """It is certain again that no message has been sent."""
        with self._lock:
            self._waiting = True

    def ask_to_end(self, asked: Verdict, unconfirmed: Verdict, *, grace_seconds: float) -> bool:
        """Remember why it is to end, the first reason counts; True when Celery has to be told.

        What was never sent is told as ended here and now.
        """
        with self._lock:
            if self.asked is None:
                self.asked, self.unconfirmed = asked, unconfirmed
                self.give_up_at = monotonic_us() + seconds_to_us(grace_seconds)
            if not self._waiting:
                return True
        self.end_unsent()
        return False

    def end_unsent(self) -> None:
        """Tell that it ended as it was asked to, without Celery; for what is waiting."""
        assert self.asked is not None
        why = f"; {self.trouble}" if self.trouble else ""
        self.tell(self.asked._replace(error=f"{self.asked.error}; it was not handed over to Celery{why}"))

    def overdue(self) -> tuple[Verdict, Verdict]:
        """What its deadline means: when Celery confirms the end, and when nothing is heard."""
        lost = no_result(self.task_id, f"after {self.seconds:g} s", self.trouble)
        if self.work.timeout_seconds is None:
            return lost, lost
        return Verdict(State.TIMED_OUT, "timeout", f"ended after its time-out of {self.seconds:g} s"), lost

    def tell(self, verdict: Verdict) -> bool:
        """Tell the outcome, unless somebody has told one."""
        try:
            report = self._to_tell.pop()
        except IndexError:
            return False
        notes = verdict.notes
        if self.task_id != self.own_id:
            notes = (f"this is the outcome of Celery task {self.task_id}, handed over by an earlier attempt", *notes)
        report(
            Outcome(
                run_id=self.work.run_id,
                attempt=self.work.attempt,
                fence=self.work.fence,
                state=verdict.state,
                begun_at=self.begun_at,
                ended_at=monotonic_us(),
                reason=verdict.reason,
                error=verdict.error,
                result=verdict.result,
                outputs=self._outputs("\n".join(notes), verdict.traceback),
            )
        )
        self.on_told(self)
        return True

    def _outputs(self, notes: str, traceback: str | None) -> tuple[Output, ...]:
        found: list[Output] = []
        for stream, text in (("log", notes and f"{notes}\n"), ("traceback", traceback)):
            if text:
                capture = BoundedCapture(self._bytes_max)
                capture.add(text.encode("utf-8", "backslashreplace"))
                output = capture.output(stream)
                assert output is not None
                found.append(output)
        return tuple(found)


def _nobody(_hand: HandOver) -> None:
    """Nobody to be told that it has ended."""
