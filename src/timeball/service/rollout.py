"""`apply`: the calendars and then the jobs of a file. Owns the order; the two services do the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timeball.errors import InvalidInput
from timeball.service.calendars import CalendarService
from timeball.service.files import Wanted
from timeball.service.jobs import Applied, JobService


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledOut:
    """What was done, or would be."""

    calendars: Sequence[Applied]
    jobs: Sequence[Applied]


def roll_out(calendars: CalendarService, jobs: JobService, wanted: Wanted, *, prune: bool, dry_run: bool) -> RolledOut:
    """Make the calendars and the jobs be what a file says. Everything is checked before anything is changed.

    A job of the file is saved once, with its calendar as it is then; a job that only carries a calendar of the file
    follows it. Calendars that the file does not name stay, also with `prune`: other jobs may use them.
    """
    jobs.checked(wanted.jobs, wanted.calendars)
    for name, content in wanted.calendars.items():
        try:
            calendars.check(name, content, leave=wanted.jobs.keys())
        except InvalidInput as error:
            error.about(f"calendar {name!r}")
            raise
    first = calendars.apply(wanted.calendars, dry_run=dry_run, leave=wanted.jobs.keys())
    then = jobs.apply(wanted.jobs, prune=prune, dry_run=dry_run, calendars=wanted.calendars)
    return RolledOut(calendars=first, jobs=then)
