"""Why: one sentence about what became of a job at a time, from the ledger, the history of the job, and who was up."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timeball.clock import MICROS, format_instant, local_instant, parse_instant, seconds_to_us
from timeball.errors import InvalidInput, NotFound
from timeball.model.cluster import Execute, Instance
from timeball.model.job import Definition, JobState
from timeball.model.states import FATES, State
from timeball.schedule import Schedule, resolve_zone, schedule_of
from timeball.store import Store
from timeball.store.histories import PastVersion
from timeball.store.runs import StoredRun

MINUTE = 60 * MICROS
_LOCAL = re.compile(r"(?:(\d{4}-\d{2}-\d{2})[T ])?(\d{2}:\d{2})(:\d{2})?")
_FATES = frozenset(str(state) for state in FATES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time that was asked about: `begin <= instant < end`, in microseconds."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Because:
    """One answer. `due_at`: the tick, in microseconds; None when there is none. `version`: of the job at that time."""

    sentence: str
    due_at: int | None = None
    run_id: int | None = None
    state: str | None = None
    version: int | None = None


def read_time(text: str, *, now: int, timezone: str) -> Span:
    """An instant (RFC 3339), or a local time of the job's zone: `09:00`, `2026-12-01 09:00`, `… 09:00:30`.

    A text without seconds means the whole minute. Raises InvalidInput.
    """
    text = text.strip()
    match = _LOCAL.fullmatch(text)
    if match is None:
        try:
            begin = parse_instant(text)
        except ValueError as error:
            raise InvalidInput(
                f"{text!r} is no time", hint="09:00, '2026-12-01 09:00', or 2026-12-01T09:00:00Z", field="time"
            ) from error
        return Span(begin=begin, end=begin + (1 if "." in text else MICROS))
    zone = resolve_zone(timezone)
    day = match[1] or local_instant(now, zone).date().isoformat()
    try:
        moment = dt.datetime.fromisoformat(f"{day}T{match[2]}{match[3] or ':00'}").replace(tzinfo=zone)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is no time: {error}", field="time") from error
    begin = parse_instant(moment.isoformat())
    return Span(begin=begin, end=begin + (MICROS if match[3] else MINUTE))


def why(
    store: Store, namespace: str, name: str, time: str, *, handler_of: Callable[[Definition], str]
) -> list[Because]:
    """What became of a job at a time: a sentence for each of its ticks and runs then, or why there is none.

    `handler_of`: the key of what an instance must have to run a definition. Raises NotFound for a job that never
    was, InvalidInput for what is no time.
    """
    versions = store.histories.versions(namespace, name)
    if not versions:
        raise NotFound(f"there never was a job named {name!r}", hint="timeball jobs list", field="name")
    now = store.members.clock()
    span = read_time(time, now=now, timezone=_definition(versions[-1]).timezone)
    past = [v for v in versions if v.from_at < span.end]
    if not past:
        first = versions[0]
        words = f"the job was only created at {format_instant(first.changed_at)} by {first.actor}"
        return [Because(sentence=f"{_clock(span.begin, first)}: {words}")]
    asked = _Asked(store, namespace, name, now, span, versions, handler_of)
    runs = [store.runs.get(namespace, run_id) for run_id in asked.run_ids(past[-1].job_id)]
    if runs:
        return [asked.about(run) for run in runs]
    return [asked.nothing(past[-1])]


class _Asked:
    """One question, and what its answers need."""

    def __init__(
        self,
        store: Store,
        namespace: str,
        name: str,
        now: int,
        span: Span,
        versions: Sequence[PastVersion],
        handler_of: Callable[[Definition], str],
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._name = name
        self._now = now
        self._span = span
        self._versions = versions
        self._handler_of = handler_of

    def run_ids(self, job_id: int) -> list[int]:
        """The runs due then."""
        return self._store.histories.runs(job_id, since=self._span.begin, until=self._span.end)

    def about(self, run: StoredRun) -> Because:
        """A run, or a stretch of missed ticks that the time lies in."""
        version = next(v for v in reversed(self._versions) if v.version == run.job_version)
        stretch = f" (with {run.ticks - 1} other ticks, up to {_clock(run.last_due_at or 0, version)})"
        when = _clock(run.due_at, version) + (stretch if run.ticks > 1 else "")
        kind = "" if run.kind == "scheduled" else f" {run.kind}"
        words = self._words(run, _definition(version))
        sentence = f"{when}{kind} {run.state}: {words}; definition {version.version} by {version.actor}"
        return Because(sentence=sentence, due_at=run.due_at, run_id=run.id, state=run.state, version=version.version)

    def nothing(self, version: PastVersion) -> Because:
        """No run is due then: why not."""
        words = self._no_tick(version)
        return Because(sentence=f"{_clock(self._span.begin, version)} {words}", version=version.version)

    def _words(self, run: StoredRun, definition: Definition) -> str:
        if run.state not in _FATES:
            return self._waiting(run, definition)
        reason = " ".join((run.reason or "").split())
        if run.state == State.SKIPPED and reason.startswith("overlap"):
            return f"{reason}; policy {definition.overlap}"
        if run.state == State.MISSED:
            return f"{self._who_was_up(run, definition)}; {reason}"
        return f"{_done(run)}{f': {reason}' if reason else ''}{_first_line(run.error)}"

    def _waiting(self, run: StoredRun, definition: Definition) -> str:
        if run.state == State.RUNNING:
            return f"on {run.instance} since {format_instant(run.started_at)}, attempt {run.attempt}"
        if run.ready_at > self._now:
            return f"it is due in {_span_words(run.ready_at - self._now)}" + (
                f", as attempt {run.attempt}" if run.attempt > 1 else ""
            )
        handler = self._handler_of(definition)
        able = [i for i in self._store.members.live(self._namespace) if _can(i, handler, definition)]
        if not able:
            return f"it waits: no instance is up that can run it ({_needs(handler, definition)})"
        for name in definition.limits:
            limit = self._store.limits.get(self._namespace, name)
            running = self._store.limits.use(self._namespace, limit).running
            if limit.rule.running_max is not None and running >= limit.rule.running_max:
                return f"it waits for limit {name!r}: {running} of {limit.rule.running_max} run"
        return f"it waits for its turn; policy {definition.overlap}"

    def _who_was_up(self, run: StoredRun, definition: Definition) -> str:
        begin = run.due_at
        end = max(run.last_due_at or 0, run.due_at) + seconds_to_us(definition.misfire_after_seconds)
        recorded = self._store.members.all(self._namespace)
        up = [i for i in recorded if i.started_at <= end and i.heartbeat_at >= begin]
        if not up:
            before = max((i.heartbeat_at for i in recorded if i.heartbeat_at < begin), default=None)
            after = min((i.started_at for i in recorded if i.started_at > begin), default=None)
            return f"no instance was up {_between(before, after)}"
        handler = self._handler_of(definition)
        able = [i for i in up if _can(i, handler, definition)]
        if not able:
            return f"no instance that was up could run it ({_needs(handler, definition)})"
        return f"{', '.join(sorted({i.name for i in able}))} could not start it in time"

    def _no_tick(self, version: PastVersion) -> str:
        if version.state != JobState.ACTIVE:
            return f"no tick: the job was {version.state} at {format_instant(version.changed_at)} by {version.actor}"
        definition = _definition(version)
        named = f"definition {version.version} by {version.actor}: {definition.schedule!r} in {definition.timezone}"
        schedule = schedule_of(definition, name=self._name, anchor_at=version.anchor_at)
        if schedule.follows_runs is not None:
            return f"no tick: each tick follows the end of the run before ({named})"
        tick = schedule.next_after(self._span.begin - 1)
        if tick is None or tick >= self._span.end:
            return f"no tick{self._closed(version, definition)}: {named}; {self._around(schedule, version)}"
        return f"{self._unrecorded(version, tick)} ({named})"

    def _unrecorded(self, version: PastVersion, tick: int) -> str:
        """A tick that is no row."""
        if tick <= version.from_at:
            return f"no tick of this definition: it counts from {format_instant(version.from_at)} on"
        if tick <= version.purged_until:
            return f"it is not known: retention has removed the runs up to {format_instant(version.purged_until)}"
        if tick > self._now:
            return f"coming: due in {_span_words(tick - self._now)}"
        return f"a tick without a row: timeball audit --job {self._name} says more"

    def _closed(self, version: PastVersion, definition: Definition) -> str:
        """Whether there would be a tick but for the calendar, or but for the ends of the schedule."""
        for field, words in (
            ("calendar", "closed by its calendar"),
            ("start_at", "before start_at"),
            ("end_at", "after end_at"),
        ):
            if not getattr(definition, field):
                continue
            without = dataclasses.replace(definition, **{field: {} if field == "calendar" else ""})
            schedule = schedule_of(without, name=self._name, anchor_at=version.anchor_at)
            tick = schedule.next_after(self._span.begin - 1)
            if tick is not None and tick < self._span.end:
                return f" ({words})"
        return ""

    def _around(self, schedule: Schedule, version: PastVersion) -> str:
        before, after = schedule.previous_before(self._span.begin), schedule.next_after(self._span.end - 1)
        words = [
            "none before" if before is None else f"the one before is {_clock(before, version)}",
            "none after" if after is None else f"the next one {_clock(after, version)}",
        ]
        return ", ".join(words)


def _done(run: StoredRun) -> str:
    if run.begun_at is None and run.started_at is None:
        return "it never began"
    begun = run.begun_at or run.started_at or 0
    took = "" if run.ended_at is None else f", took {_span_words(max(0, run.ended_at - begun))}"
    attempt = f"attempt {run.attempt} " if run.attempt > 1 else ""
    late = begun - run.due_at
    return f"{attempt}on {run.instance}, {'on time' if late < MICROS else f'{_span_words(late)} late'}{took}"


def _first_line(error: str | None) -> str:
    lines = [line for line in (error or "").splitlines() if line.strip()]
    return f" ({lines[-1].strip()[:200]})" if lines else ""


def _can(instance: Instance, handler: str, definition: Definition) -> bool:
    labels = dict(instance.labels)
    fits = all(labels.get(key) == value for key, value in definition.requires.items())
    return handler in instance.handlers and fits and instance.execute != Execute.NONE


def _needs(handler: str, definition: Definition) -> str:
    labels = [f"{key}={value}" for key, value in sorted(definition.requires.items())]
    return ", ".join([handler, *labels])


def _between(before: int | None, after: int | None) -> str:
    since = "" if before is None else f" since {format_instant(before)}"
    until = "" if after is None else f" until {format_instant(after)}"
    return (since + until).strip() or "then"


def _definition(version: PastVersion) -> Definition:
    try:
        return Definition.from_json(version.definition)
    except InvalidInput:
        return Definition(schedule="none", executor="", target={})


def _clock(instant: int, version: PastVersion) -> str:
    """Local time in the job's zone."""
    moment = local_instant(instant, resolve_zone(_definition(version).timezone))
    return moment.isoformat(" ", timespec="seconds")


def _span_words(us: int) -> str:
    seconds = us / MICROS
    if seconds < 10:
        return f"{seconds:.3g} s"
    parts = [(int(seconds // 86_400), "d"), (int(seconds // 3600 % 24), "h"), (int(seconds // 60 % 60), "min")]
    words = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(words or [f"{seconds:.0f} s"])
