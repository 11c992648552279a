"""What a function can raise to say how its run ends. Knows nothing of who catches it."""

from __future__ import annotations

import datetime as dt
import math

_DECADE_SECONDS = 10 * 366 * 86_400


class RunEnding(Exception):
    """Root of the three; `why`: words for people."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class Retry(RunEnding):
    """This attempt failed, and another one is wanted whatever `retry_on` says, while `attempts_max` allows it.

    `after`: seconds (or a timedelta) until the next attempt; None: as the job's back-off says. Raises ValueError for a
    wait that is negative or longer than ten years.
    """

    def __init__(self, why: str = "", *, after: float | dt.timedelta | None = None) -> None:
        super().__init__(why)
        seconds = after.total_seconds() if isinstance(after, dt.timedelta) else after
        if seconds is not None and not (math.isfinite(seconds) and 0 <= seconds <= _DECADE_SECONDS):
            raise ValueError(f"Retry(after={after!r}): seconds from 0 to ten years")
        self.after_seconds = seconds


class Skip(RunEnding):
    """There was nothing to do: the run ends as `skipped`, with these words as its reason, and is never tried again."""

    def __init__(self, why: str) -> None:
        super().__init__(why)


class Fail(RunEnding):
    """The run failed, and these words say why. `retry=False`: trying again would not help."""

    def __init__(self, why: str, *, retry: bool = True) -> None:
        super().__init__(why)
        self.retry = retry
