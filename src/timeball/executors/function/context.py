"""What a function is given about its run. Owns what the function says back; knows nothing of threads or loops."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Mapping
from typing import Any

from timeball.clock import local_instant
from timeball.executors.capture import BoundedCapture, harmless
from timeball.executors.function.fence import CheckFence, Fence
from timeball.model.run import Output, Work

PROGRESS_CHARS_MAX = 200


class RunContext:
    """The run as its function sees it.

    `id`, `job`, `namespace`, `kind`, `attempt`, `args`; `due_at`: the tick, an aware datetime in UTC; `due_at_us`:
    the same in microseconds since the epoch; `fence`: rises with every attempt, for the far side to refuse older ones;
    `fence.check(connection)` proves in a transaction of the job's own that this attempt counts;
    `cancel_reason`: why the work has been asked to end, in words, empty while it has not.
    """

    def __init__(
        self,
        work: Work,
        bytes_max: int,
        check_fence: CheckFence | None = None,
        on_progress: Callable[[RunContext], None] = lambda _: None,
    ) -> None:
        self.id = work.run_id
        self.job = work.job
        self.namespace = work.namespace
        self.kind = work.kind.value
        self.attempt = work.attempt
        self.fence = Fence(work, check_fence)
        self.args: Mapping[str, Any] = work.args
        self.due_at_us = work.due_at
        self.progress_fraction: float | None = None
        self.progress_text = ""
        self._on_progress = on_progress
        self.bytes_max = bytes_max
        self._log: BoundedCapture | None = None
        self._cancelled: threading.Event | None = None
        self.cancel_reason = ""
        self._lock = threading.Lock()

    @property
    def due_at(self) -> dt.datetime:
        """The tick, in UTC."""
        return local_instant(self.due_at_us, dt.UTC)

    def log(self, text: str) -> None:
        """Add a line to the run's output (stream `log`), bounded: head and tail are kept."""
        with self._lock:
            if self._log is None:
                self._log = BoundedCapture(self.bytes_max)
            self._log.add(f"{text}\n".encode("utf-8", "backslashreplace"))

    def progress(self, fraction: float, text: str = "") -> None:
        """Say how far the work is: 0 to 1, and a few words (200 characters). Seen from any instance within seconds."""
        self.progress_fraction = min(1.0, max(0.0, float(fraction)))
        self.progress_text = harmless(str(text))[:PROGRESS_CHARS_MAX]
        self._on_progress(self)

    @property
    def cancelled(self) -> bool:
        """Whether the work has been asked to end: by a person, its time-out, the instance's end or its isolation."""
        return self._event().is_set()

    def wait_cancelled(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the work is asked to end, at most so long; whether it was. For sync functions."""
        return self._event().wait(timeout_seconds)

    def ask_to_end(self, reason: str) -> None:
        """Set the flag behind `cancelled`, and say why; the first reason counts."""
        self.cancel_reason = self.cancel_reason or reason
        self._event().set()

    def outputs(self) -> tuple[Output, ...]:
        """What was logged."""
        with self._lock:
            output = None if self._log is None else self._log.output("log")
        return () if output is None else (output,)

    def _event(self) -> threading.Event:
        with self._lock:
            if self._cancelled is None:
                self._cancelled = threading.Event()
            return self._cancelled
