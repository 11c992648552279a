"""Use-cases about jobs: create, edit, start, stop, delete, trigger, look. Checks before it writes; writes by one verb.

The command line, the API and the pages call these and nothing else.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timeball.clock import pause_us
from timeball.errors import Conflict, InvalidInput, NotFound, TargetError, TimeballError
from timeball.executors.registry import Registry
from timeball.model.calendar import Content, calendar_name
from timeball.model.fields import check_mapping, check_name, requires_key
from timeball.model.job import Definition, Job, JobState
from timeball.schedule import Schedule, refuse_without_ticks, schedule_of, tzdata_version
from timeball.service.copies import CalendarCopies
from timeball.service.timing import ended, from_boundary, from_now, same_phase, same_wish, ticks_after, unplanned
from timeball.store import Store
from timeball.store.changes import Change, ChangeResult
from timeball.store.jobs import Placement

EARLY_START_MAX_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What `apply` did, or would do, with one job."""

    name: str
    action: str
    version: int | None


class JobService:
    """Jobs of one namespace, for one actor (who is asking; it goes into the trail)."""

    def __init__(self, store: Store, registry: Registry, *, namespace: str, actor: str) -> None:
        self._store = store
        self._registry = registry
        self._namespace = namespace
        self._actor = actor
        self._copies = CalendarCopies(store, namespace)
        self.notes: list[str] = []
        """Remarks for the person who asked, e.g. what could not be checked."""

    def create(self, name: str, definition: Definition, *, active: bool = True, declared: str | None = None) -> Job:
        """A new job, planned from now on. Raises InvalidInput, ScheduleError, TargetError, Conflict."""

        def save(whole: Definition) -> Job:
            self.check(name, whole)
            return self.create_unchecked(name, whole, active=active, declared=declared)

        job = self._copies.saving(definition, save)
        self._note(self._copies.note(job.definition))
        return job

    def create_unchecked(self, name: str, definition: Definition, *, active: bool, declared: str | None = None) -> Job:
        """The same without checking the target: for jobs that arrive stopped; starting them checks it."""
        check_name(name)
        schedule_of(definition, name=name, anchor_at=0)
        return self._store.jobs.create(
            self._namespace,
            name,
            definition,
            active=active,
            times=from_now(name, definition, may_be_past=declared is not None or not active),
            actor=self._actor,
            tzdata=tzdata_version(),
            declared=declared,
        )

    def edit(self, name: str, definition: Definition, *, expected_version: int | None = None) -> ChangeResult:
        """A new definition; an unchanged one changes nothing. No tick of the old one starts after this returns."""

        def save(whole: Definition) -> ChangeResult:
            self.check(name, whole)
            return self._change(name, lambda job, _: self._edited(job, whole), expected_version)

        result = self._copies.saving(definition, save)
        self._note(self._copies.note(definition))
        return result

    def follow(self, name: str, calendar: str) -> ChangeResult | None:
        """Take what a calendar says by now into a job that carries it, even if no tick is left; None: not needed.

        Raises NotFound, ScheduleError (the job cannot have such a calendar). A broken job is left for who mends it.
        """

        def save() -> ChangeResult:
            content = self._store.calendars.get(self._namespace, calendar).content
            return self._change(name, lambda job, _: self._follows(job, calendar, content), None)

        result = self._copies.again(save)
        return result if result.changed else None

    def declare(self, name: str, definition: Definition) -> None:
        """What the program's code says about a job: created if it is new, edited if the code has changed.

        A person's later edit, stop or start stays until the code itself says something new.
        """
        text = definition.to_json()
        self._copies.saving(definition, lambda whole: self._declare(name, whole, text))

    def start(self, name: str) -> ChangeResult:
        """Active from now on: the first tick is the next after now; the time it was stopped is not replayed."""
        return self._change(name, self._started, None)

    def stop(self, name: str, *, cancel_running: bool = False) -> ChangeResult:
        """Stopped: when this returns, no later tick starts anywhere; what still runs is listed."""
        return self._change(name, lambda job, _: self._stopped(job, cancel_running), None)

    def change(self, name: str, decide: Callable[[Job, str | None], Change | None]) -> ChangeResult:
        """Any other change, decided with the job's row locked. Raises NotFound and what `decide` raises."""
        return self._change(name, decide, None)

    def delete(self, name: str, *, cancel_running: bool = False) -> ChangeResult:
        """Gone, its name free, its history kept until retention removes it."""
        return self._change(name, lambda job, _: ended(job, "deleted", JobState.DELETED, cancel_running), None)

    def trigger(self, name: str, *, args: Mapping[str, Any] | None = None, idempotency_key: str | None = None) -> int:
        """A manual run, due now; its id. The schedule is not touched, and a stopped job stays stopped."""
        if idempotency_key is not None:
            check_name(idempotency_key, "idempotency_key")
        if args is not None:
            check_mapping("args", args)
            job = self._store.jobs.get(self._namespace, name)
            self._check_target(job.definition, {**job.definition.args, **args})
        return self._store.jobs.trigger(
            self._namespace,
            name,
            place=self._place,
            args=args,
            idempotency_key=idempotency_key,
            actor=self._actor,
        )

    def get(self, name: str) -> Job:
        """One job. Raises NotFound."""
        return self._store.jobs.get(self._namespace, name)

    def list(self, *, state: str = "") -> Sequence[Job]:
        """All jobs by name, or those in one state."""
        return self._store.jobs.all(self._namespace, state=state)

    def schedule_of(self, job: Job) -> Schedule:
        """A job's schedule, parsed. Raises ScheduleError."""
        return schedule_of(job.definition, name=job.name, anchor_at=job.anchor_at)

    def with_next_tick(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """The same jobs, `next_due_at` being their next tick after the database's now: planned ticks count too.

        As stored it is where planning goes on, beyond what is planned.
        """
        now = self._store.members.clock()
        schedules = {job.id: self._readable(job) for job in jobs if job.state is JobState.ACTIVE}
        following = [job_id for job_id, schedule in schedules.items() if schedule and schedule.follows_runs is not None]
        coming = self._store.plans.coming(following, after=now) if following else {}

        def next_tick(job: Job) -> int | None:
            schedule = schedules.get(job.id)
            if job.id in coming:
                return next(iter(coming[job.id]), None)
            if schedule is not None:
                return schedule.next_after(now)
            return job.next_due_at if job.id in schedules else None  # the planner has not seen it yet

        return [dataclasses.replace(job, next_due_at=next_tick(job)) for job in jobs]

    def _readable(self, job: Job) -> Schedule | None:
        try:
            return self.schedule_of(job)
        except InvalidInput:
            return None

    def next_ticks(self, name: str, count: int) -> tuple[Job, list[int]]:
        """The next ticks of a job after the database's now, as instants; none while it is stopped.

        Of `@after` the one that is planned, if the run before it has ended.
        """
        job = self.get(name)
        if job.state is not JobState.ACTIVE:
            return job, []
        now = self._store.members.clock()
        schedule = self.schedule_of(job)
        if schedule.follows_runs is not None:
            return job, self._store.plans.coming([job.id], after=now)[job.id][:count]
        return job, ticks_after(schedule, now, count)

    def apply(
        self,
        wanted: Mapping[str, tuple[Definition, bool]],
        *,
        prune: bool,
        dry_run: bool,
        calendars: Mapping[str, Content] | None = None,
    ) -> list[Applied]:
        """Make the namespace's jobs be these (definition, active); with `prune` others are deleted.

        Everything is checked before anything is changed; then each job is one transaction, and an error says how far
        it came. `calendars`: those that are about to be in the database, for a dry run.
        """
        whole = self.checked(wanted, calendars)
        existing = {job.name: job for job in self.list()}
        unwanted = sorted(existing.keys() - wanted.keys()) if prune else []
        done: list[Applied] = []
        try:
            for name in [*whole, *unwanted]:
                change = self._apply_one(existing.get(name), name, whole.get(name), dry_run=dry_run)
                done.append(change)
        except TimeballError as error:
            error.about(f"after {len(done)} of {len(wanted) + len(unwanted)} jobs")
            error.hint = error.hint or "apply it again: what is done stays as it is"
            raise
        return done

    def checked(
        self, wanted: Mapping[str, tuple[Definition, bool]], calendars: Mapping[str, Content] | None = None
    ) -> dict[str, tuple[Definition, bool]]:
        """The same with what their calendars say. Raises InvalidInput naming the job that cannot work."""
        existing, now = {job.name: job.definition for job in self.list()}, self._store.members.clock()
        found: dict[str, tuple[Definition, bool]] = {}
        for name, (definition, active) in wanted.items():
            check_name(name)
            try:
                whole = self._copies.whole(definition, calendars)
                self.check(name, whole)
                if name not in existing or not same_wish(existing[name], whole):
                    refuse_without_ticks(whole, name=name, anchor_at=now, after=now)
            except InvalidInput as error:
                error.about(f"job {name!r}")
                raise
            found[name] = (whole, active)
        return found

    def check(self, name: str, definition: Definition) -> None:
        """Refuse a definition that cannot work: its schedule, its target. Raises ScheduleError, TargetError."""
        schedule_of(definition, name=name, anchor_at=0)
        self._check_target(definition, definition.args)

    def placement(self, definition: Definition) -> Placement:
        """Where the runs of a definition may run, once its target has been checked. Raises TargetError."""
        self._check_target(definition, definition.args)
        return self._place(definition)

    def _apply_one(
        self, job: Job | None, name: str, wanted: tuple[Definition, bool] | None, *, dry_run: bool
    ) -> Applied:
        if wanted is None:
            if not dry_run:
                self.delete(name)
            return Applied(name=name, action="delete", version=None)
        definition, active = wanted
        if job is None:
            made = None if dry_run else self.create(name, definition, active=active)
            return Applied(name=name, action="create", version=made.version if made else None)
        actions: list[str] = []
        version = job.version
        if job.definition.to_json() != definition.to_json():
            actions.append("edit")
            version = version if dry_run else self.edit(name, definition).job.version
        if active != (job.state is JobState.ACTIVE):
            actions.append("start" if active else "stop")
            if not dry_run:
                version = (self.start(name) if active else self.stop(name)).job.version
        return Applied(name=name, action="+".join(actions) or "unchanged", version=version)

    def _change(
        self, name: str, decide: Callable[[Job, str | None], Change | None], expected_version: int | None
    ) -> ChangeResult:
        result = self._store.changes.change(
            self._namespace, name, decide, actor=self._actor, expected_version=expected_version
        )
        # A start is committed a moment early: wait until it has begun, so that nothing starts after the answer.
        begun = max((run.started_at for run in result.still_running), default=0)
        if begun <= result.at:
            return result
        pause_us(min(begun - result.at, EARLY_START_MAX_US))
        return dataclasses.replace(result, at=begun)

    def _declare(self, name: str, definition: Definition, text: str) -> None:
        try:
            self._change(name, lambda job, before: self._declared(job, definition, before, text), None)
        except NotFound:
            self._create_declared(name, definition, text)

    def _create_declared(self, name: str, definition: Definition, text: str) -> None:
        try:
            self.create(name, definition, declared=text)
        except Conflict:
            # Another instance with the same code was a moment faster.
            self._change(name, lambda job, before: self._declared(job, definition, before, text), None)

    def _declared(self, job: Job, definition: Definition, before: str | None, text: str) -> Change | None:
        if before == text:
            return None
        change = self._edited(job, definition)
        if change is None:
            return None
        return _with_declared(change, text)

    def _follows(self, job: Job, calendar: str, content: Content) -> Change | None:
        if job.state is JobState.BROKEN or calendar_name(job.definition.calendar) != calendar:
            return None
        copy = content.copy_in(job.definition.calendar)
        return self._edited(job, dataclasses.replace(job.definition, calendar=copy), may_close=True)

    def _edited(self, job: Job, definition: Definition, *, may_close: bool = False) -> Change | None:
        broken = job.state is JobState.BROKEN
        if not broken and job.definition.to_json() == definition.to_json():
            return None
        as_before = not broken and same_wish(job.definition, definition)
        # An unchanged schedule keeps the phase of @every.
        same = not broken and same_phase(job.definition, definition)
        return Change(
            kind="edited",
            state=JobState.ACTIVE if broken else job.state,
            definition=definition,
            placement=self._place(definition),
            times=from_boundary(job, definition, keep_anchor=same, may_close=may_close or as_before),
            unplanned=unplanned(job),
            cancel_pending=False,
            pause=None if (pause := job.pause) is None else lambda _: pause,
        )

    def _started(self, job: Job, _declared: str | None) -> Change | None:
        if job.state is JobState.BROKEN:
            raise InvalidInput(f"job {job.name!r} is broken: {job.problem}", hint="edit its definition first")
        if job.state is JobState.ACTIVE:
            return None
        self.check(job.name, job.definition)
        return Change(
            kind="started",
            state=JobState.ACTIVE,
            definition=job.definition,
            placement=self._place(job.definition),
            times=from_boundary(job, job.definition, keep_anchor=True, may_close=True),
            unplanned=unplanned(job),
            cancel_pending=False,
        )

    def _stopped(self, job: Job, cancel_running: bool) -> Change | None:
        if job.state is JobState.STOPPED and not cancel_running:
            return None
        return ended(job, "stopped", JobState.STOPPED, cancel_running)

    def _place(self, definition: Definition) -> Placement:
        return Placement(
            handler=self._registry.handler_of(definition.executor, definition.target),
            requires=requires_key(definition.requires),
        )

    def _check_target(self, definition: Definition, args: Mapping[str, Any]) -> None:
        handler = self._registry.handler_of(definition.executor, definition.target)
        for name in self._registry.check_secrets(definition.target, args):
            self._note(
                f"secret {name!r} could not be checked: this process has no secrets; where an instance lacks it, "
                f"the run fails"
            )
        if definition.executor == "function" and handler not in self._registry.handlers():
            self._check_elsewhere(handler, args)
            return
        self._registry.check(definition.executor, definition.target, args)

    def _note(self, note: str | None) -> None:
        if note is not None and note not in self.notes:
            self.notes.append(note)

    def _check_elsewhere(self, handler: str, args: Mapping[str, Any]) -> None:
        """A function that this program does not have: some instance that is up must have it."""
        live = self._store.members.live(self._namespace)
        known = {h for instance in live for h in instance.handlers} | set(self._registry.handlers())
        functions = sorted(h.removeprefix("function:") for h in known if h.startswith("function:"))
        name = handler.removeprefix("function:")
        if handler in known:
            if args:
                self._note(f"this program does not have function {name!r}, so its arguments are checked when it runs")
            return
        if not live and not functions:
            self._note(f"no instance is up, so function {name!r} could not be checked; runs wait for one that has it")
            return
        close = difflib.get_close_matches(name, functions, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(functions) or 'none'}"
        raise TargetError(f"no instance that is up has a function named {name!r}", hint=hint, field="target")


def _with_declared(change: Change, text: str) -> Change:
    return dataclasses.replace(change, declared=text)
