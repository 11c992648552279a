"""Who takes part: instances and the lease."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class InstanceState(StrEnum):
    """`active` claims and is watched; `draining` claims no more; `stopped` left in order; `expired` was given up."""

    ACTIVE = "active"
    DRAINING = "draining"
    STOPPED = "stopped"
    EXPIRED = "expired"


class Execute(StrEnum):
    """Which instances claim runs: any, only the leader, or not this one."""

    ANY = "any"
    LEADER = "leader"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One process start that takes part. `id` is random per start: never host, pod or process id."""

    id: str
    namespace: str
    name: str
    host: str
    pid: int
    version: str
    state: InstanceState
    execute: str
    labels: Mapping[str, str]
    handlers: tuple[str, ...]
    started_at: int
    heartbeat_at: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The row that makes one instance the leader. `holder` None: free. `epoch` rises at every change of holder."""

    namespace: str
    holder: str | None
    epoch: int
    acquired_at: int | None
    expires_at: int
    read_at: int

    @property
    def valid(self) -> bool:
        """Whether somebody leads by the database's clock at the time of reading."""
        return self.holder is not None and self.expires_at > self.read_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Proof of leadership that goes into every leader's write: the full token is epoch and holder together."""

    namespace: str
    holder: str
    epoch: int
