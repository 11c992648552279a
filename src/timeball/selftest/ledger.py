"""Reading what the checker compares with: runs, attempts, recorded definitions, hands of the lease."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from timeball.clock import Sample, monotonic_us
from timeball.model.job import Definition
from timeball.selftest.cluster import NAMESPACE
from timeball.selftest.history import LIVE_STATES, LedgerRun, Version
from timeball.service.audit import audit
from timeball.store import Store
from timeball.store.runs import RunFilter, StoredRun

ALL = 1_000_000_000
NEVER = 1 << 62
SAMPLES = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """The database's clock minus this host's monotonic one, and how wrong that may be; microseconds."""

    us: int
    error_us: int


def sample_offset(store: Store) -> Offset:
    """The best of a few looks at the database's clock."""

    def look() -> Sample:
        sent = monotonic_us()
        return Sample(database_us=store.members.clock(), sent_us=sent, received_us=monotonic_us())

    best = min((look() for _ in range(SAMPLES)), key=lambda sample: sample.error_us)
    return Offset(us=best.database_us - (best.sent_us + best.received_us) // 2, error_us=best.error_us)


def read_versions(store: Store) -> Iterator[Version]:
    """Every recorded definition of every job."""
    for row in store.audits.versions(NAMESPACE, None):
        definition = Definition.from_json(row.definition)
        yield Version(
            job=row.name,
            version=row.version,
            from_at=row.from_at,
            state=row.state,
            schedule=definition.schedule,
            anchor_at=row.anchor_at,
            overlap=definition.overlap,
            on_lost=definition.on_lost,
            attempts_max=definition.attempts_max,
        )


def read_runs(store: Store) -> Iterator[LedgerRun]:
    """The whole ledger."""
    for run in store.runs.list(NAMESPACE, RunFilter(limit=ALL)):
        yield _with_attempts(store, run)


def _with_attempts(store: Store, run: StoredRun) -> LedgerRun:
    earlier = store.runs.attempts(run.id) if run.attempt > 1 else []
    return LedgerRun(
        id=run.id,
        job=run.job,
        kind=run.kind,
        due_at=run.due_at,
        state=run.state,
        last_due_at=run.last_due_at,
        reason=run.reason,
        attempt=run.attempt,
        fence=run.fence,
        started_at=run.started_at,
        late=run.late,
        version=run.job_version,
        instance=run.instance,
        fences={attempt.attempt: attempt.fence for attempt in earlier},
        lost_attempts=frozenset(attempt.attempt for attempt in earlier if attempt.state == "lost"),
    )


def live_runs(store: Store) -> int:
    """How many runs have no fate yet."""
    return len(store.runs.list(NAMESPACE, RunFilter(states=sorted(LIVE_STATES), limit=ALL)))


def read_reboots(store: Store) -> list[int]:
    """The starts of the cluster."""
    return store.reboots.counted(NAMESPACE, after=0, until=NEVER)


def lease_hands(store: Store) -> int:
    """How often the lease has changed hands, the first taking included."""
    return len(store.events.latest(NAMESPACE, kind="lease.taken", limit=ALL))


def audit_troubles(store: Store) -> list[tuple[str, str]]:
    """What the product's own audit finds: it must agree with the outside evidence."""
    return [
        (f"audit-{v.kind}", f"{v.job} {v.to_json()['due_at']}: {v.detail}") for v in audit(store, NAMESPACE).violations
    ]
