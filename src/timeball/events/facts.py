"""Facts: what happened, one frozen value each, published after the commit that made it true."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Root of all facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceJoined(Fact):
    """This instance takes part."""

    instance_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGivenUp(Fact):
    """The cluster has given this instance up (it was silent too long); it comes back under a new id."""

    instance_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesExpired(Fact):
    """The leader gave up instances whose membership ran out."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRefused(Fact):
    """The schema under this running instance is one that it cannot work on; it does nothing until it is right."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaAccepted(Fact):
    """The schema is right again after it was refused."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStarted(Fact):
    """An instance joined and none from before it lives: `@reboot` jobs are due. `at_us`: by the database's clock."""

    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTaken(Fact):
    """This instance leads."""

    name: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEnded(Fact):
    """This instance does not lead any more, or may not trust that it does."""

    name: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TicksMissed(Fact):
    """Ticks of a job misfired and will not run."""

    job: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBroken(Fact):
    """A stored definition cannot be read; the job is set aside."""

    job: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReplanned(Fact):
    """The time zone database has changed and moved coming ticks. Instants in microseconds; at most ten of each."""

    job: str
    tzdata: str
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRewound(Fact):
    """The database's clock went back, and the job's cursor with it, by so many microseconds."""

    job: str
    by_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Fact):
    """An attempt ended and its end is written. `duration_us`: from its begin, microseconds."""

    run_id: int
    job: str
    attempt: int
    state: str
    reason: str | None
    error: str | None
    duration_us: int
    retried: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSuperseded(Fact):
    """An end was refused: another attempt, or another verdict, came first."""

    run_id: int
    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSkipped(Fact):
    """A tick did not start because of its job's overlap policy; `reason` names the run that blocked it."""

    run_id: int
    job: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsLost(Fact):
    """Runs of instances that are gone."""

    run_ids: tuple[int, ...]
    rerun: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStepped(Fact):
    """The database's clock moved against this host's monotonic clock."""

    by_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFailing(Fact):
    """A loop's step raised; it is tried again after a pause."""

    loop: str
    error: str
    database: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRecovered(Fact):
    """A loop that was failing works again."""

    loop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainEnded(Fact):
    """The instance has left; `left`: runs that had not ended; `unsettled`: how many outcomes were never written."""

    name: str
    left: tuple[int, ...]
    unsettled: int = 0
