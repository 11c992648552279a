"""Every error Timeball raises. Owns the codes; knows nothing of HTTP, SQL or the command line.

An error says what was wrong, where, and what would be right. `code` is stable and meant for programs, the text
is meant for people. The command line turns the class into its exit status, the API into its HTTP status.
"""

from __future__ import annotations

from typing import Self


class TimeballError(Exception):
    """Root of all errors.

    `code`: stable, kebab-case. `hint`: what would be right, or None. `field`: the part of the input, or None.
    """

    code: str = "error"

    def __init__(self, message: str, *, hint: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field

    def about(self, subject: str) -> Self:
        """Put before the message what it is about, where several things were given at once."""
        self.message = f"{subject}: {self.message}"
        return self

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidInput(TimeballError):
    """What was given cannot be accepted; nothing was changed."""

    code = "invalid-input"


class UnknownField(InvalidInput):
    """A field that this version of the program does not know; a newer one may."""


class SettingsError(InvalidInput):
    """A setting is unknown, malformed, or would break a guarantee."""

    code = "invalid-setting"


class ScheduleError(InvalidInput):
    """A schedule's text is wrong or can never fire.

    `kind`: the stable kebab-case reason (`reversed-range`, `never-fires`, …), shown as the code.
    `position`: 0-based index into `text`, the whole schedule, where the trouble begins, or None.
    """

    code = "invalid-schedule"

    def __init__(
        self,
        message: str,
        *,
        kind: str = "invalid-schedule",
        position: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, field="schedule")
        self.code = kind
        self.position = position
        self.text: str | None = None


class TargetError(InvalidInput):
    """A job's target (function, command, …) is unknown or not allowed here."""

    code = "invalid-target"


class SecretError(TargetError):
    """A secret that a target or its args refer to is not there, or cannot be used."""

    code = "invalid-secret"


class NotFound(TimeballError):
    """No such job, run or instance."""

    code = "not-found"


class Conflict(TimeballError):
    """Someone else changed it first, or the name is taken; nothing was changed."""

    code = "conflict"


class CalendarChanged(Conflict):
    """A named calendar is no longer what a job was about to be saved with; nothing was changed. Read it again."""

    code = "calendar-changed"


class StoreError(TimeballError):
    """The database could not do what was asked."""

    code = "store-error"


class Busy(StoreError):
    """A lock or serialization conflict: the whole transaction was rolled back and may be tried again."""

    code = "database-busy"


class Unavailable(StoreError):
    """The database cannot be reached (or answers with an outage). Back off and try again."""

    code = "database-unavailable"


class Unusable(Unavailable):
    """The server or this host refuses what the URL asks for: waiting alone does not help, somebody must act."""

    code = "database-unusable"


class Duplicate(StoreError):
    """A unique key is taken; the transaction was rolled back."""

    code = "duplicate-key"


class SchemaMismatch(StoreError):
    """The schema is missing or from another version."""

    code = "schema-mismatch"


class Corrupt(StoreError):
    """The database holds something that our own statements cannot have written. Stop; a person must look."""

    code = "database-corrupt"


class LeaseRowMissing(Corrupt):
    """The lease's row is not there: nobody leads until it is back (`timeball db upgrade` seeds it)."""

    code = "lease-row-missing"


class Superseded(TimeballError):
    """The work that asks is not its run's any more: given up, ended, or another attempt has begun. Write nothing."""

    code = "superseded"


class ClaimLost(TimeballError):
    """Another instance has taken over; an expected answer, never an overwrite."""

    code = "claim-lost"
