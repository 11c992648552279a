"""Use-cases about the past: backfill a range; pause, and resume with a choice for the ticks that passed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from timeball.clock import format_instant
from timeball.errors import Conflict, InvalidInput
from timeball.model.fields import check_storable
from timeball.model.job import Job, JobState, Pause
from timeball.schedule import schedule_of
from timeball.service.jobs import JobService
from timeball.service.timing import ended, from_boundary, unplanned
from timeball.store import Store
from timeball.store.backfills import Backfill, PastTicks
from timeball.store.changes import Change, ChangeResult

TICKS_MAX = 10_000
AT_ONCE_MAX = 1000
REASON_CHARS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """The ticks that a pause or a stop has let pass: how many, the first and the last (microseconds)."""

    count: int
    first: int | None
    last: int | None


class BackfillService:
    """The past of one namespace's jobs, for one actor."""

    def __init__(self, store: Store, jobs: JobService, *, namespace: str, actor: str) -> None:
        self._store = store
        self._jobs = jobs
        self._namespace = namespace
        self._actor = actor

    def preview(self, name: str, *, since: int, until: int | None = None) -> list[int]:
        """The ticks of a past range by the job's definition as it is now. Raises NotFound, InvalidInput."""
        job, now = self._jobs.get(name), self._store.members.clock()
        return self._ticks(job, since, now if until is None else until, now)

    def backfill(
        self, name: str, *, since: int, until: int | None = None, at_once: int = 1, again: bool = False
    ) -> Backfill:
        """Make a run for each tick in `since <= tick <= until` (default: now), oldest first, `at_once` at a time.

        Ticks that have succeeded, or will run anyway, are left out, but for `again`. The job's overlap policy counts
        these runs too. A stop of the job cancels those that have not begun. Raises NotFound, InvalidInput, TargetError.
        """
        _check_at_once(at_once)
        end = self._store.members.clock() if until is None else until

        def plan(job: Job, made_up: frozenset[int], now: int) -> PastTicks:
            ticks = self._ticks(job, since, end, now)
            left = ticks if again else [tick for tick in ticks if tick not in made_up]
            return PastTicks(ticks=left, placement=self._jobs.placement(job.definition), at_once=at_once)

        return self._store.backfills.create(self._namespace, name, plan, since=since, until=end, actor=self._actor)

    def pause(
        self, name: str, *, reason: str = "", resume_at: int | None = None, cancel_running: bool = False
    ) -> ChangeResult:
        """A stop with a reason, an owner and an end: as true as a stop when this returns. `resume_at`: microseconds.

        A job that is stopped stays so. Pausing a paused job changes reason and end. Raises NotFound, InvalidInput.
        """
        if len(reason) > REASON_CHARS_MAX or not (reason == "" or reason.isprintable()):
            raise InvalidInput(f"a reason is one line of at most {REASON_CHARS_MAX} characters", field="reason")
        check_storable("reason", reason)
        now = self._store.members.clock()
        if resume_at is not None and resume_at <= now:
            raise InvalidInput(f"it would be resumed at {format_instant(resume_at)}, which has passed", field="until")

        def decide(job: Job, _declared: str | None) -> Change | None:
            if job.state not in (JobState.ACTIVE, JobState.PAUSED):
                return None
            before = job.pause

            def pause(boundary: int) -> Pause:
                since = boundary if before is None else before.since
                return Pause(reason=reason, actor=self._actor, since=since, resume_at=resume_at)

            if before is not None and before == pause(0) and not cancel_running:
                return None
            change = ended(job, "paused", JobState.PAUSED, cancel_running)
            return dataclasses.replace(change, pause=pause)

        return self._jobs.change(name, decide)

    def passed(self, name: str) -> Passed:
        """What a resume may choose from: the ticks since the pause began, by the definition as it is now."""
        job, now = self._jobs.get(name), self._store.members.clock()
        if job.pause is None:
            raise Conflict(f"job {name!r} is {job.state}, not paused", hint=f"timeball jobs show {name}")
        schedule = schedule_of(job.definition, name=job.name, anchor_at=job.anchor_at)
        if schedule.follows_runs is not None:
            return Passed(count=0, first=None, last=None)
        count = schedule.count_between(job.pause.since, now)
        first, last = schedule.next_after(job.pause.since), schedule.previous_before(now + 1)
        return Passed(count=count, first=first if count else None, last=last if count else None)

    def resume(self, name: str, *, make_up: str = "none", at_once: int = 1) -> ChangeResult:
        """Active again. `make_up`: which ticks that passed run: `none`, `latest`, `all`, or how many of the last.

        They are decided and made in the transaction that resumes. Raises NotFound, Conflict (not paused), InvalidInput.
        """
        wanted = _read_make_up(make_up)
        _check_at_once(at_once)

        def decide(job: Job, _declared: str | None) -> Change | None:
            if job.state is JobState.ACTIVE:
                return None
            pause = job.pause
            if job.state is not JobState.PAUSED or pause is None:
                raise Conflict(f"job {name!r} is {job.state}, not paused", hint=f"timeball jobs start {name}")
            placement = self._jobs.placement(job.definition)

            def made_up(boundary: int) -> PastTicks:
                ticks = self._last_ticks(job, pause.since, boundary, wanted)
                return PastTicks(ticks=ticks, placement=placement, at_once=at_once)

            return Change(
                kind="resumed",
                state=JobState.ACTIVE,
                definition=job.definition,
                placement=placement,
                times=from_boundary(job, job.definition, keep_anchor=True, may_close=True),
                unplanned=unplanned(job),
                cancel_pending=False,
                made_up=made_up if wanted else None,
            )

        return self._jobs.change(name, decide)

    def _last_ticks(self, job: Job, since: int, until: int, wanted: int) -> Sequence[int]:
        """The last so many ticks of a range, the oldest first. Raises InvalidInput beyond a bound."""
        schedule = schedule_of(job.definition, name=job.name, anchor_at=job.anchor_at)
        if schedule.follows_runs is not None:
            return []
        count = schedule.count_between(since, until)
        if min(count, wanted) > TICKS_MAX:
            raise InvalidInput(
                f"{count} ticks have passed, and at most {TICKS_MAX} can be made up for",
                hint=f"--make-up {TICKS_MAX}, or fewer",
                field="make_up",
            )
        ticks: list[int] = []
        tick = schedule.previous_before(until + 1)
        while tick is not None and tick > since and len(ticks) < wanted:
            ticks.append(tick)
            tick = schedule.previous_before(tick)
        return ticks[::-1]

    def _ticks(self, job: Job, since: int, until: int, now: int) -> list[int]:
        if until > now:
            raise InvalidInput(
                f"a backfill is for the past: {format_instant(until)} lies ahead",
                hint="no --until, for now",
                field="until",
            )
        if since > until:
            raise InvalidInput("the range is empty: since must lie before until", field="since")
        schedule = schedule_of(job.definition, name=job.name, anchor_at=job.anchor_at)
        if schedule.follows_runs is not None:
            raise InvalidInput("the ticks of @after follow its runs: there are none to make up for", field="schedule")
        count = schedule.count_between(since - 1, until)
        if count > TICKS_MAX:
            raise InvalidInput(
                f"that are {count} ticks; at most {TICKS_MAX} at a time", hint="name a shorter range", field="since"
            )
        return schedule.between(since - 1, until)


def _check_at_once(at_once: int) -> None:
    if not 1 <= at_once <= AT_ONCE_MAX:
        raise InvalidInput(f"at_once must lie between 1 and {AT_ONCE_MAX}, not {at_once}", field="at_once")


def _read_make_up(text: str) -> int:
    words = {"none": 0, "latest": 1, "all": 2**31}
    if text in words:
        return words[text]
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise InvalidInput(f"make_up cannot be {text!r}", hint="none, latest, all, or a number", field="make_up")
    return int(text)
