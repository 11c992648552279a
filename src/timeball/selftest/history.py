"""What the checker is given: evidence, ledger, recorded definitions, answers to changes. Frozen values, no rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from timeball.selftest.evidence import Mark

LIVE_STATES = frozenset({"planned", "claimed", "running"})
ACTIVE = "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A recorded definition: its ticks after `from_at` count, up to the next version's `from_at`, if it is active."""

    job: str
    version: int
    from_at: int
    state: str
    schedule: str
    anchor_at: int
    overlap: str = "allow"
    on_lost: str = "fail"
    attempts_max: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRun:
    """A row of the ledger, with how its earlier attempts ended (`fences`, `lost_attempts` by attempt)."""

    id: int
    job: str
    kind: str
    due_at: int
    state: str
    last_due_at: int | None = None
    reason: str | None = None
    attempt: int = 1
    fence: int | None = None
    started_at: int | None = None
    late: bool = False
    version: int = 1
    instance: str | None = None
    fences: Mapping[int, int | None] = field(default_factory=dict[int, "int | None"])
    lost_attempts: frozenset[int] = frozenset()

    @property
    def ever_lost(self) -> bool:
        """Whether the cluster ever gave up an attempt of it."""
        return self.state == "lost" or self.late or bool(self.lost_attempts)

    def fence_of(self, attempt: int) -> int | None:
        """The fence that the ledger has for an attempt."""
        return self.fence if attempt == self.attempt else self.fences.get(attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A stop, start or edit that was asked for. `sent_us`, `answered_us`: monotonic, this host; None: no answer came.

    `running`: runs that the answer named as still running. `edition`: what an edit made the job say.
    `database_at`: the database's instant of the answer.
    """

    job: str
    kind: str
    sent_us: int
    answered_us: int | None = None
    database_at: int | None = None
    running: frozenset[int] = frozenset()
    edition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """The answers to one idempotency key."""

    job: str
    key: str
    run_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Everything about one run of the self-test.

    `offset_us`: the database's clock minus this host's monotonic one; `offset_error_us`: how wrong that may be.
    `reboots`: the starts of the cluster, by the database's clock.
    `faults`: how many of each kind were really applied; `troubles`: what went wrong outside of any tick, by kind.
    """

    marks: Sequence[Mark] = ()
    versions: Sequence[Version] = ()
    runs: Sequence[LedgerRun] = ()
    changes: Sequence[Change] = ()
    triggers: Sequence[Trigger] = ()
    wanted_faults: Sequence[str] = ()
    faults: Mapping[str, int] = field(default_factory=dict[str, int])
    ticks_min: int = 0
    changes_min: int = 0
    offset_us: int = 0
    offset_error_us: int = 0
    lease_hands: int = 0
    reboots: Sequence[int] = ()
    troubles: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule. `due_at`, `run_id`: the tick and the run it is about, where it is about one."""

    rule: str
    detail: str
    job: str = ""
    due_at: int | None = None
    run_id: int | None = None
