"""Use-cases about single coming ticks: take one out, put it back, see which are out."""

from __future__ import annotations

from collections.abc import Callable, Collection

from timeball.clock import local_instant
from timeball.errors import Conflict, InvalidInput
from timeball.executors.registry import Registry
from timeball.model.fields import requires_key
from timeball.model.job import Job, JobState
from timeball.policy.jitter import ready_at
from timeball.policy.misfire import start_by
from timeball.schedule import Schedule, instant_of, resolve_zone, schedule_of
from timeball.store import Store
from timeball.store.jobs import Placement
from timeball.store.skips import Tick, TickChange


class TickService:
    """Coming ticks of the jobs of one namespace, for one actor."""

    def __init__(self, store: Store, registry: Registry, *, namespace: str, actor: str) -> None:
        self._store = store
        self._registry = registry
        self._namespace = namespace
        self._actor = actor

    def skip(self, name: str, tick: str | None = None) -> tuple[TickChange, int]:
        """Take a coming tick out, by default the next one that is not out yet; the answer and the tick's instant.

        `tick`: as `@at` writes instants, in the job's zone unless it names an offset. When this returns, the tick's run
        will not start, on any instance; the ledger keeps it as skipped. Raises InvalidInput (no tick of the job),
        NotFound, Conflict (the job is not active, or the tick's run has begun).
        """
        return self._store.skips.skip(self._namespace, name, self._chooser(tick), actor=self._actor)

    def unskip(self, name: str, tick: str) -> tuple[TickChange, int]:
        """Put a tick back that was taken out; the answer and the tick's instant. Raises Conflict when none was."""
        job = self._store.jobs.get(self._namespace, name)
        due_at = instant_of(tick, timezone=job.definition.timezone, field="tick")
        change = self._store.skips.unskip(
            self._namespace, name, due_at, lambda locked: self._tick(locked, due_at), actor=self._actor
        )
        return change, due_at

    def skipped(self, job: Job) -> dict[int, str]:
        """The coming ticks that are out, as instants, each with the reason."""
        return self._store.skips.coming(job.id, after=self._store.members.clock())

    def _chooser(self, tick: str | None) -> Callable[[Job, int, Collection[int]], int]:
        def choose(job: Job, now: int, out: Collection[int]) -> int:
            if job.state is not JobState.ACTIVE:
                raise Conflict(f"job {job.name!r} is {job.state.value}: no tick of it is coming")
            schedule = _schedule(job)
            if schedule.follows_runs is not None:
                raise Conflict(
                    f"job {job.name!r} follows its own runs: its next tick is known only when a run has ended",
                    hint="timeball jobs stop and start, or runs cancel once it is planned",
                )
            if tick is None:
                return _first_in(job, schedule, now, out)
            due_at = instant_of(tick, timezone=job.definition.timezone, field="tick")
            if due_at <= now:
                raise InvalidInput("that instant has passed", hint=_offer(schedule, now), field="tick")
            if schedule.next_after(due_at - 1) != due_at:
                raise InvalidInput(
                    f"job {job.name!r} has no tick at that instant", hint=_offer(schedule, now), field="tick"
                )
            return due_at

        return choose

    def _tick(self, job: Job, due_at: int) -> Tick | None:
        definition = job.definition
        if job.state is not JobState.ACTIVE or _schedule(job).next_after(due_at - 1) != due_at:
            return None
        handler = self._registry.handler_of(definition.executor, definition.target)
        return Tick(
            ready_at=ready_at(definition, job.id, due_at),
            start_by=start_by(definition, due_at),
            placement=Placement(handler=handler, requires=requires_key(definition.requires)),
        )


def _schedule(job: Job) -> Schedule:
    return schedule_of(job.definition, name=job.name, anchor_at=job.anchor_at)


def _first_in(job: Job, schedule: Schedule, now: int, out: Collection[int]) -> int:
    due_at = schedule.next_after(now)
    while due_at is not None and due_at in out:
        due_at = schedule.next_after(due_at)
    if due_at is None:
        raise Conflict(f"no tick of job {job.name!r} is coming")
    return due_at


def _offer(schedule: Schedule, now: int) -> str:
    coming = schedule.next_after(now)
    if coming is None:
        return "no tick is coming"
    return f"the next one is {local_instant(coming, resolve_zone(schedule.timezone)).isoformat(' ')}"
