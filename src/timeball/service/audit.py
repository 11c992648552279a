"""The audit: recompute the ticks of every job from its recorded definitions and compare them with the ledger.

It trusts nothing that planning wrote except the definitions: ticks come from the schedule module, runs from the
ledger, and every tick of an active stretch must have exactly one fate.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from timeball.clock import format_instant, seconds_to_us
from timeball.errors import InvalidInput, NotFound
from timeball.model.job import Definition, JobState
from timeball.model.states import FATES
from timeball.policy.misfire import start_by
from timeball.schedule import Schedule, schedule_of
from timeball.service.chains import Chain, Stretch
from timeball.store import Store
from timeball.store.audits import LedgerRow, VersionRow

GRACE_SECONDS = 15
"""How long after its due instant a tick may lack a row, or past its window a fate, before that counts."""
VIOLATIONS_MAX = 200
SLICE_MAX = 5000
_FATES = frozenset(str(state) for state in FATES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken promise: `duplicate`, `without-fate`, `extra` (a run at no tick) or `wrong-count`."""

    kind: str
    job: str
    due_at: int
    detail: str

    def to_json(self) -> dict[str, str | None]:
        """Keys as in the API."""
        return {
            "kind": self.kind,
            "job": self.job,
            "due_at": format_instant(self.due_at),
            "detail": self.detail,
        }


@dataclass(slots=True)
class Report:
    """What the audit found; durations in microseconds inside, milliseconds in `to_json`."""

    jobs: int = 0
    ticks: int = 0
    runs: int = 0
    duplicates: int = 0
    missed: int = 0
    skipped: int = 0
    open: int = 0
    without_fate: int = 0
    extra: int = 0
    led: bool = True
    """Whether a leader has had time to give fates; without one, ticks that nobody has judged yet are open."""
    lateness: list[int] = field(default_factory=list[int])
    worst_gap_us: int = 0
    worst_gap_job: str | None = None
    violations: list[Violation] = field(default_factory=list[Violation])
    more_violations: int = 0

    def blame(self, violation: Violation) -> None:
        """Note a violation; beyond a bound only their number."""
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(violation)
        else:
            self.more_violations += 1

    @property
    def clean(self) -> bool:
        """No violation at all."""
        return not self.violations

    def to_json(self) -> dict[str, object]:
        """Keys as in the design."""
        late = sorted(self.lateness)
        return {
            "jobs": self.jobs,
            "ticks": self.ticks,
            "runs": self.runs,
            "duplicates": self.duplicates,
            "missed": self.missed,
            "skipped": self.skipped,
            "open": self.open,
            "without_fate": self.without_fate,
            "extra": self.extra,
            "led": self.led,
            "late": {
                "p50_ms": _quantile(late, 0.50),
                "p99_ms": _quantile(late, 0.99),
                "max_ms": _quantile(late, 1.0),
            },
            "worst_gap_ms": self.worst_gap_us / 1000,
            "worst_gap_job": self.worst_gap_job,
            "violations": [v.to_json() for v in self.violations],
            "more_violations": self.more_violations,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of time in which one version of a job was active: ticks after `after`, up to `until`."""

    schedule: Schedule
    definition: Definition
    after: int
    until: int

    def reboots(self, starts: Sequence[int]) -> list[int]:
        """The starts of the cluster that are ticks of this stretch."""
        return [at for at in starts if self.after < at <= self.until and self.schedule.fires_at_reboot(at)]


def audit(
    store: Store,
    namespace: str,
    *,
    job: str | None = None,
    since: int | None = None,
    until: int | None = None,
) -> Report:
    """Audit a namespace or one job over a period (instants; by default everything that is still recorded, up to now).

    Raises NotFound for a job that never was.
    """
    now = store.members.clock()
    end = min(until, now) if until is not None else now
    versions = store.audits.versions(namespace, job)
    if job is not None and not versions:
        raise NotFound(f"there never was a job named {job!r}", hint="timeball jobs list", field="job")
    lease = store.leases.read(namespace)
    report = Report(led=lease.valid and now - (lease.acquired_at or 0) > seconds_to_us(GRACE_SECONDS))
    starts = store.reboots.counted(namespace, after=since - 1 if since is not None else 0, until=end)
    for job_id, group in itertools.groupby(versions, key=lambda v: v.job_id):
        rows = list(group)
        begin = max(since - 1 if since is not None else 0, rows[0].purged_until)
        segments = list(_segments(rows, begin, end))
        report.jobs += 1
        walker = _Walker(report, rows[0].name, now, rows[0].cursor_at, segments)
        _compare(walker, _expected(segments, starts), store.audits.ledger(job_id, after=begin, until=end))
    return report


def _segments(versions: Sequence[VersionRow], begin: int, end: int) -> Iterator[Segment]:
    # The clock may have gone back between two versions: the earliest of all later ones ends this one.
    ends = list(itertools.accumulate((v.from_at for v in reversed(versions)), min, initial=end))
    for version, until in zip(versions, reversed(ends[:-1]), strict=True):
        after = max(begin, version.from_at)
        if version.state != JobState.ACTIVE or after >= until:
            continue
        try:
            definition = Definition.from_json(version.definition)
            schedule = schedule_of(definition, name=version.name, anchor_at=version.anchor_at)
        except InvalidInput:
            continue  # broken from the start: it never had a tick
        yield Segment(schedule=schedule, definition=definition, after=after, until=until)


def _expected(segments: Iterable[Segment], starts: Sequence[int]) -> Iterator[tuple[int, Segment]]:
    for segment in segments:
        yield from ((at, segment) for at in segment.reboots(starts))
        if segment.schedule.follows_runs is not None:
            continue  # its ticks follow from the ledger
        position = segment.after
        while True:
            ticks = segment.schedule.between(position, segment.until, SLICE_MAX)
            for tick in ticks:
                yield tick, segment
            if len(ticks) < SLICE_MAX:
                break
            position = ticks[-1]


def _compare(walker: _Walker, expected: Iterator[tuple[int, Segment]], ledger: Iterator[LedgerRow]) -> None:
    """Walk expected ticks and ledger rows side by side, in the order of their instants."""
    row = next(ledger, None)
    for tick, segment in expected:
        while row is not None and row.due_at < tick:
            walker.pass_row(row)
            row = next(ledger, None)
        rows: list[LedgerRow] = []
        while row is not None and row.due_at == tick:
            rows.append(row)
            row = next(ledger, None)
        walker.tick(tick, segment, rows)
    while row is not None:
        walker.pass_row(row)
        row = next(ledger, None)
    walker.end()


class _Walker:
    """The state of one job's comparison."""

    def __init__(self, report: Report, job: str, now: int, cursor_at: int, segments: Sequence[Segment]) -> None:
        self._report = report
        self._job = job
        self._now = now
        self._cursor_at = cursor_at
        self._stretch: LedgerRow | None = None
        self._in_stretch = 0
        self._started_before: int | None = None
        self._segment: Stretch | None = None
        self._chain = Chain(segments, now, self._blame_chain)

    def pass_row(self, row: LedgerRow) -> None:
        """A row at an instant that is no tick of any recorded definition, or a stretch that began before."""
        if row.last_due_at is not None:
            self._open_stretch(row)
            return
        if self._chain.covers(row.due_at):
            self.tick(row.due_at, self._chain.take(row), [row])
            return
        self._report.runs += 1
        if row.state == "skipped" and row.instance_id is None:
            return  # by hand, before an edit moved the job's ticks
        self._report.extra += 1
        self._blame("extra", row.due_at, f"run {row.run_id} ({row.state}) is at no tick of its job")

    def tick(self, tick: int, segment: Stretch, rows: Sequence[LedgerRow]) -> None:
        """One expected tick and the rows at its instant."""
        self._report.ticks += 1
        if segment is not self._segment:  # a stop in between is no gap
            self._segment, self._started_before = segment, None
        covered = self._covered(tick)
        if len(rows) + covered > 1:
            self._report.duplicates += len(rows) + covered - 1
            self._blame("duplicate", tick, f"{len(rows) + covered} rows for one tick")
        for row in rows:
            self._row(row, segment)
        if not rows and not covered:
            self._without_row(tick)

    def end(self) -> None:
        """Close what is open."""
        self._close_stretch()
        if self._report.led:
            self._chain.end(seconds_to_us(GRACE_SECONDS))

    def _covered(self, tick: int) -> int:
        stretch = self._stretch
        if stretch is None:
            return 0
        if stretch.last_due_at is not None and tick <= stretch.last_due_at:
            self._in_stretch += 1
            self._report.missed += 1
            return 1
        self._close_stretch()
        return 0

    def _row(self, row: LedgerRow, segment: Stretch) -> None:
        if row.last_due_at is not None:
            self._open_stretch(row)
            self._in_stretch = 1
            self._report.missed += 1
            return
        self._report.runs += 1
        self._report.missed += row.state == "missed"
        self._report.skipped += row.state == "skipped"
        if row.state not in _FATES:
            self._unfinished(row, segment)
        self._times(row)

    def _times(self, row: LedgerRow) -> None:
        started = row.begun_at or row.started_at
        if started is None:
            return
        if row.attempt == 1:
            self._report.lateness.append(started - row.ready_at)
        if self._started_before is not None:
            self._gap(started - self._started_before)
        self._started_before = started

    def _gap(self, gap_us: int) -> None:
        if gap_us > self._report.worst_gap_us:
            self._report.worst_gap_us, self._report.worst_gap_job = gap_us, self._job

    def _unfinished(self, row: LedgerRow, segment: Stretch) -> None:
        overdue = start_by(segment.definition, row.due_at) + seconds_to_us(GRACE_SECONDS) < self._now
        if row.state == "running" or row.attempt > 1 or not overdue or not self._report.led:
            self._report.open += 1
            return
        self._report.without_fate += 1
        self._blame("without-fate", row.due_at, f"run {row.run_id} is still {row.state}")

    def _without_row(self, tick: int) -> None:
        unplanned = tick > self._cursor_at and not self._report.led
        if unplanned or tick + seconds_to_us(GRACE_SECONDS) >= self._now:
            self._report.open += 1
            return
        self._report.without_fate += 1
        self._blame("without-fate", tick, "the ledger has no row for this tick")

    def _open_stretch(self, row: LedgerRow) -> None:
        self._close_stretch()
        self._stretch = row
        self._in_stretch = 0
        self._report.runs += 1

    def _close_stretch(self) -> None:
        stretch, self._stretch = self._stretch, None
        if stretch is not None and self._in_stretch > stretch.ticks:
            self._blame(
                "wrong-count",
                stretch.due_at,
                f"run {stretch.run_id} counts {stretch.ticks}, there were {self._in_stretch}",
            )

    def _blame_chain(self, kind: str, due_at: int, detail: str) -> None:
        self._report.without_fate += kind == "without-fate"
        self._report.extra += kind == "too-early"
        self._blame(kind, due_at, detail)

    def _blame(self, kind: str, due_at: int, detail: str) -> None:
        self._report.blame(Violation(kind=kind, job=self._job, due_at=due_at, detail=detail))


def _quantile(ordered: Sequence[int], part: float) -> float | None:
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] / 1000
