"""Use-cases about the cluster: who takes part, who leads, since when, and what changed hands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timeball.model.cluster import Instance, Lease
from timeball.store import Store
from timeball.store.events import StoredEvent

LIVE_STATES = frozenset({"active", "draining"})
CHANGES_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The cluster by the database's clock. `instances`: members that are up; `changes`: the newest first."""

    now: int
    lease: Lease
    leader: Instance | None
    instances: Sequence[Instance]
    gone: Sequence[Instance]
    changes: Sequence[StoredEvent]


def cluster_status(store: Store, namespace: str) -> ClusterStatus:
    """Who is up, who leads. Raises LeaseRowMissing."""
    lease = store.leases.read(namespace)
    everyone = store.members.all(namespace)
    now = lease.read_at
    up = [i for i in everyone if i.state in LIVE_STATES and i.expires_at > now]
    leader = next((i for i in everyone if lease.valid and i.id == lease.holder), None)
    return ClusterStatus(
        now=now,
        lease=lease,
        leader=leader,
        instances=up,
        gone=[i for i in everyone if i not in up][-CHANGES_MAX:],
        changes=[
            event
            for kind in ("lease.taken", "lease.released", "instance.expired")
            for event in store.events.latest(namespace, kind=kind, limit=CHANGES_MAX)
        ],
    )
