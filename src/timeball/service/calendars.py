"""Use-cases about named calendars: create, edit, delete, look; and that the jobs which carry one follow it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from timeball.errors import InvalidInput, NotFound, StoreError
from timeball.model.calendar import Calendar, Content
from timeball.model.fields import check_name, check_storable
from timeball.model.job import Job, JobState
from timeball.schedule import closures_of, resolve_zone, schedule_of
from timeball.service.copies import reach_note
from timeball.service.jobs import Applied, JobService
from timeball.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarChange:
    """What an edit did. `followed`: the jobs that have a new version; `left`: those that could not, and why."""

    calendar: Calendar
    changed: bool
    followed: Sequence[str]
    left: Mapping[str, str]


class CalendarService:
    """The calendars of one namespace, for one actor."""

    def __init__(self, store: Store, jobs: JobService, *, namespace: str, actor: str) -> None:
        self._store = store
        self._jobs = jobs
        self._namespace = namespace
        self._actor = actor
        self.notes: list[str] = []
        """Remarks for the person who asked, e.g. until when a calendar reaches."""

    def create(self, name: str, content: Content) -> Calendar:
        """A new calendar. Raises InvalidInput, ScheduleError (a rule is wrong), Conflict (the name is taken)."""
        self.check(name, content)
        calendar = self._store.calendars.create(self._namespace, name, content, actor=self._actor)
        self._note_reach(calendar)
        return calendar

    def edit(
        self, name: str, content: Content, *, expected_version: int | None = None, leave: Collection[str] = ()
    ) -> CalendarChange:
        """Other content. The jobs that carry the calendar follow, each in a transaction of its own, but for `leave`.

        They are checked before anything is changed. After a failure the same edit again takes the rest along. Raises
        NotFound, Conflict, InvalidInput naming the job that could not have such a calendar.
        """
        self.check(name, content, leave=leave)
        calendar, changed = self._store.calendars.edit(
            self._namespace, name, content, actor=self._actor, expected_version=expected_version
        )
        self._note_reach(calendar)
        return self._followed(calendar, changed, leave)

    def delete(self, name: str) -> None:
        """Gone. Raises NotFound, Conflict naming jobs that carry it."""
        self._store.calendars.delete(self._namespace, name, actor=self._actor)

    def get(self, name: str) -> Calendar:
        """One calendar. Raises NotFound."""
        return self._store.calendars.get(self._namespace, name)

    def list(self) -> Sequence[Calendar]:
        """All calendars, by name."""
        return self._store.calendars.all(self._namespace)

    def users(self, name: str) -> Sequence[Job]:
        """The jobs that carry a calendar, by id."""
        return self._store.calendars.users(self._namespace, name)

    def behind(self, calendar: Calendar) -> Sequence[str]:
        """Jobs whose copy is not what the calendar says: an edit has not come to them, or was cut off before."""
        jobs = self.users(calendar.name)
        return [
            job.name for job in jobs if calendar.content.copy_in(job.definition.calendar) != job.definition.calendar
        ]

    def check(self, name: str, content: Content, *, leave: Collection[str] = ()) -> None:
        """Refuse what cannot be read, and what a job that carries the calendar could not have."""
        check_name(name)
        check_storable("description", content.description)
        closures_of(content.exclude)
        if content.timezone:
            resolve_zone(content.timezone)
        for job in self.users(name):
            if job.state is JobState.BROKEN or job.name in leave:
                continue
            definition = dataclasses.replace(job.definition, calendar=content.copy_in(job.definition.calendar))
            try:
                schedule_of(definition, name=job.name, anchor_at=job.anchor_at)
            except InvalidInput as error:
                error.about(f"job {job.name!r}, which has the calendar {name!r}")
                raise

    def apply(self, wanted: Mapping[str, Content], *, dry_run: bool, leave: Collection[str]) -> Sequence[Applied]:
        """Make these calendars be so; others stay. `leave`: jobs that will be saved afterwards anyway."""
        existing = {calendar.name: calendar for calendar in self.list()}
        done: list[Applied] = []
        for name, content in wanted.items():
            before = existing.get(name)
            action = "create" if before is None else "unchanged" if before.content == content else "edit"
            version = None if before is None else before.version
            if not dry_run and before is None:
                version = self.create(name, content).version
            elif not dry_run:
                version = self.edit(name, content, leave=leave).calendar.version
            done.append(Applied(name=name, action=action, version=version))
        return done

    def _followed(self, calendar: Calendar, changed: bool, leave: Collection[str]) -> CalendarChange:
        followed: list[str] = []
        left: dict[str, str] = {}
        jobs = [job for job in self.users(calendar.name) if job.name not in leave and job.state is not JobState.BROKEN]
        for number, job in enumerate(jobs):
            try:
                result = self._jobs.follow(job.name, calendar.name)
            except InvalidInput as error:  # the job was changed after it had been checked
                left[job.name] = str(error)
                continue
            except NotFound:
                continue  # deleted meanwhile
            except StoreError as error:
                error.about(f"the calendar is changed, and {number} of {len(jobs)} jobs were gone through")
                error.hint = error.hint or "edit it again in the same way: the other jobs will follow"
                raise
            if result is not None:
                followed.append(job.name)
                self._note_closed(result.job)
        return CalendarChange(calendar=calendar, changed=changed, followed=followed, left=left)

    def _note_closed(self, job: Job) -> None:
        if job.state is JobState.ACTIVE and job.next_due_at is None:
            self.notes.append(f"the calendar leaves no coming tick to job {job.name!r}")

    def _note_reach(self, calendar: Calendar) -> None:
        note = reach_note(calendar.name, calendar.content, self._store.members.clock())
        if note is not None:
            self.notes.append(note)
