"""Named limits: how many runs of all the jobs that name one may run at once, or begin within a window. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from timeball.errors import InvalidInput
from timeball.model.fields import check_storable

RUNNING_MAX = 100_000
STARTED_MAX = 1_000_000
WINDOW_SECONDS_MAX = 86_400
DESCRIPTION_CHARS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRule:
    """What a limit says. `running_max` at once; `started_max` within any `window_seconds`; None: no such bound."""

    running_max: int | None = None
    started_max: int | None = None
    window_seconds: float | None = None
    description: str = ""

    def __post_init__(self) -> None:
        """Refuse what bounds nothing or cannot be; raises InvalidInput naming the field."""
        _check_whole("running_max", self.running_max, RUNNING_MAX)
        _check_whole("started_max", self.started_max, STARTED_MAX)
        window = self.window_seconds
        if (self.started_max is None) != (window is None):
            raise InvalidInput("started_max and window_seconds go together", field="window_seconds")
        if window is not None and (
            isinstance(window, bool)
            or not isinstance(cast("object", window), (int, float))
            or not 0.1 <= window <= WINDOW_SECONDS_MAX
        ):
            raise InvalidInput(
                f"window_seconds must lie between 0.1 and {WINDOW_SECONDS_MAX}, not {window!r}", field="window_seconds"
            )
        if self.running_max is None and self.started_max is None:
            raise InvalidInput(
                "a limit needs a bound", hint="running_max, or started_max with window_seconds", field="running_max"
            )
        check_storable("description", self.description)
        if len(self.description) > DESCRIPTION_CHARS_MAX:
            raise InvalidInput(f"description is longer than {DESCRIPTION_CHARS_MAX} characters", field="description")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit as stored. `updated_at` in microseconds UTC; `version` goes up at every change."""

    id: int
    name: str
    rule: LimitRule
    version: int
    updated_at: int


def _check_whole(name: str, value: object, most: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidInput(f"{name} must be a whole number between 1 and {most}, not {value!r}", field=name)
