"""The jobs' event loops. Owns their threads; a loop that a function blocks is left behind and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence

from timeball.clock import monotonic_us, seconds_to_us
from timeball.executors.function.call import Call

BLOCKED_SECONDS = 1.0
IGNORED_SECONDS = 5.0
LOOPS_MAX = 16
_log = logging.getLogger("timeball.executors")


class JobLoop:
    """One event loop in a daemon thread of its own."""

    def __init__(self, number: int) -> None:
        self._loop = asyncio.new_event_loop()
        self.calls: dict[tuple[int, int], Call] = {}
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._retired = False
        self._asked_at: int | None = None
        self._thread = threading.Thread(target=self._run, name=f"timeball-jobs-{number}", daemon=True)
        self._thread.start()

    def submit(self, calls: Sequence[Call]) -> None:
        """Begin calls; crosses into the thread once for all of them."""
        self.calls |= {call.key: call for call in calls}
        self._loop.call_soon_threadsafe(self._begin, calls)

    def cancel(self, call: Call) -> None:
        """Cancel a call's task; one that ignores it is told as ended after a while."""
        self._loop.call_soon_threadsafe(self._cancel, call)

    def blocked(self) -> bool:
        """Ask the loop for a sign of life; whether the last question is still open after BLOCKED_SECONDS."""
        now = monotonic_us()
        if self._asked_at is None:
            self._asked_at = now
            self._loop.call_soon_threadsafe(self._answer)
            return False
        return now - self._asked_at > seconds_to_us(BLOCKED_SECONDS)

    def blocker(self) -> str:
        """Which task the loop is in."""
        task = asyncio.current_task(self._loop)
        return "unknown work" if task is None else task.get_name()

    def retire(self) -> list[Call]:
        """Take nothing new; the calls that have not begun here."""
        self._retired = True
        waiting = [call for call in list(self.calls.values()) if not call.begun]
        for call in waiting:
            self.calls.pop(call.key, None)
        return waiting

    def stop(self) -> None:
        """End the thread once the loop comes round."""
        with contextlib.suppress(RuntimeError):  # closed already
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(_tell_trouble)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _answer(self) -> None:
        self._asked_at = None

    def _begin(self, calls: Sequence[Call]) -> None:
        create = self._loop.create_task
        for call in calls:
            if call.begun or call.told:
                continue
            self._tasks[call.key] = create(self._call(call), name=f"run {call.work.run_id} of job {call.work.job!r}")

    async def _call(self, call: Call) -> None:
        timer: asyncio.TimerHandle | None = None
        if call.begin():
            if call.work.timeout_seconds is not None:
                timer = self._loop.call_later(call.work.timeout_seconds, self._time_out, call)
            try:
                call.returned(await call.invoke())
            except BaseException as error:  # noqa: BLE001 - whatever a function raises ends its own run only
                call.raised(error)
            if timer is not None:
                timer.cancel()
        self._tasks.pop(call.key, None)
        self.calls.pop(call.key, None)
        if self._retired and not self._tasks:
            self._loop.stop()

    def _time_out(self, call: Call) -> None:
        call.ask_to_end(call.timed_out())
        self._cancel(call)

    def _cancel(self, call: Call) -> None:
        task = self._tasks.get(call.key)
        if task is None:
            return
        task.cancel()
        self._loop.call_later(IGNORED_SECONDS, self._give_up, call)

    def _give_up(self, call: Call) -> None:
        if not call.told and call.ending is not None:
            state, reason, error = call.ending
            call.tell(state, reason, f"{error}; the function ignored its cancellation and may still be running")


class JobLoops:
    """The loop in use, and those left behind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: JobLoop | None = None
        self._left: list[JobLoop] = []
        self._number = 0

    def submit(self, calls: Sequence[Call]) -> None:
        """Begin calls on the loop in use."""
        with self._lock:
            loop = self._current = self._current or self._fresh()
            loop.submit(calls)

    def cancel(self, call: Call) -> None:
        """Cancel a call, wherever it runs."""
        with self._lock:
            loops = [loop for loop in (self._current, *self._left) if loop is not None]
        for loop in loops:
            if call.key in loop.calls:
                loop.cancel(call)

    def watch(self) -> None:
        """Replace the loop in use when a function blocks it."""
        with self._lock:
            loop = self._current
            if loop is None or not loop.calls or not loop.blocked():
                return
            if len(self._left) >= LOOPS_MAX:
                return
            _log.warning("%s blocks its event loop; other work goes on on a fresh one", loop.blocker())
            self._left.append(loop)
            waiting = loop.retire()
            self._current = self._fresh()
            self._current.submit(waiting)

    def close(self) -> None:
        """End the threads of loops that come round."""
        with self._lock:
            for loop in (self._current, *self._left):
                if loop is not None:
                    loop.stop()

    def _fresh(self) -> JobLoop:
        self._number += 1
        return JobLoop(self._number)


def _tell_trouble(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    _log.warning("on the jobs' event loop: %s", context.get("message"), exc_info=_exception(context))


def _exception(context: dict[str, object]) -> BaseException | None:
    error = context.get("exception")
    return error if isinstance(error, BaseException) else None
