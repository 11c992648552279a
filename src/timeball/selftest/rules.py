"""The rules about what ran: each takes a history and yields what breaks it. Pure; evidence counts, not our tables."""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from timeball.selftest.evidence import BEGIN, Mark
from timeball.selftest.history import Change, History, LedgerRun, Version, Violation

EARLY_MAX_US = 20_000
"""How long before its tick a begin may be marked. An instance knows the database's clock only by half a round trip, and
the start's own condition (`start_lead_max_seconds`) bounds what that can do."""
NOT_STARTED = frozenset({"planned", "claimed", "missed"})
MAYBE_STARTED = frozenset({"cancelled", "skipped"})


@dataclass(frozen=True)
class Index:
    """A history, looked up in several ways."""

    history: History
    begins: dict[tuple[int, int], list[Mark]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[tuple[int, int], list[Mark]] = field(default_factory=lambda: defaultdict(list))

    @cached_property
    def runs(self) -> dict[int, LedgerRun]:
        """The ledger's rows by id."""
        return {run.id: run for run in self.history.runs}

    @cached_property
    def versions(self) -> dict[tuple[str, int], Version]:
        """Recorded definitions by job and version."""
        return {(version.job, version.version): version for version in self.history.versions}

    @cached_property
    def attempts(self) -> dict[int, list[int]]:
        """Attempts of each run that left evidence, in their order."""
        found: dict[int, set[int]] = defaultdict(set)
        for run_id, attempt in self.begins:
            found[run_id].add(attempt)
        return {run_id: sorted(attempts) for run_id, attempts in found.items()}

    def version_of(self, run: LedgerRun) -> Version | None:
        """The definition that a run followed."""
        return self.versions.get((run.job, run.version))


def index_of(history: History) -> Index:
    """Sort the marks by attempt."""
    index = Index(history)
    for mark in history.marks:
        (index.begins if mark.what == BEGIN else index.ends)[mark.key].append(mark)
    return index


def one_begin_per_attempt(index: Index) -> Iterator[Violation]:
    """G2: an attempt is started once."""
    for (run_id, attempt), marks in index.begins.items():
        if len(marks) > 1:
            who = ", ".join(f"{m.instance} ({m.pid})" for m in marks)
            yield _about(marks[0], "begun-twice", f"attempt {attempt} of run {run_id} has {len(marks)} begins: {who}")


def one_run_per_tick(index: Index) -> Iterator[Violation]:
    """G1: no tick is run under two names."""
    ticks: dict[tuple[str, int], dict[int, Mark]] = defaultdict(dict)
    for marks in index.begins.values():
        mark = marks[0]
        run = index.runs.get(mark.run_id)
        if (run.kind if run else mark.kind or "scheduled") == "scheduled":
            ticks[(mark.job, mark.due_at)][mark.run_id] = mark
    for by_run in ticks.values():
        if len(by_run) > 1:
            mark = next(iter(by_run.values()))
            yield _about(mark, "tick-twice", f"begun as runs {', '.join(map(str, sorted(by_run)))}")


def evidence_is_in_the_ledger(index: Index) -> Iterator[Violation]:
    """What began is known: its run, its tick, its attempt, its fence."""
    for marks in index.begins.values():
        mark = marks[0]
        run = index.runs.get(mark.run_id)
        if run is None:
            yield _about(mark, "unknown-run", "it began, and the ledger has no such run")
        elif (run.job, run.due_at) != (mark.job, mark.due_at):
            yield _about(mark, "wrong-tick", f"the ledger has run {run.id} as {run.job} at {run.due_at}")
        elif mark.attempt > run.attempt:
            yield _about(mark, "unknown-attempt", f"attempt {mark.attempt} began; the ledger knows {run.attempt}")
        elif run.fence_of(mark.attempt) != mark.fence:
            known = run.fence_of(mark.attempt)
            yield _about(mark, "wrong-fence", f"it was given fence {mark.fence}; the ledger has {known}")


def ledger_is_in_the_evidence(index: Index) -> Iterator[Violation]:
    """What succeeded did begin and end; what was missed or never started did not begin."""
    for run in index.history.runs:
        key = (run.id, run.attempt)
        if run.state == "succeeded" and not (index.begins.get(key) and index.ends.get(key)):
            yield _of(run, "success-without-work", f"attempt {run.attempt} is called succeeded; its work left no mark")
        unstarted = run.state in NOT_STARTED or (run.state in MAYBE_STARTED and run.started_at is None)
        if unstarted and index.begins.get(key):
            yield _of(run, "work-without-start", f"it is called {run.state}, and its work began")


def attempts_keep_their_order(index: Index) -> Iterator[Violation]:
    """Attempts of one run follow each other, with rising fences; they overlap only where a lost run is run again."""
    for run_id, attempts in index.attempts.items():
        run = index.runs.get(run_id)
        version = None if run is None else index.version_of(run)
        if run is None or version is None:
            continue
        again = version.on_lost == "rerun"
        if len(attempts) > version.attempts_max and not again:
            detail = f"attempts {', '.join(map(str, attempts))} began; the job allows {version.attempts_max}"
            yield _of(run, "run-again", detail)
        for one, other in itertools.pairwise(attempts):
            before, after = index.begins[(run_id, one)][0], index.begins[(run_id, other)][0]
            if after.fence <= before.fence:
                detail = f"attempt {other} has fence {after.fence}, attempt {one} had {before.fence}"
                yield _of(run, "fence-fell", detail)
            end = max((m.mono_us for m in index.ends.get((run_id, one), [])), default=before.mono_us)
            if end > after.mono_us and not again:
                yield _of(run, "attempts-overlap", f"attempt {other} began before attempt {one} had ended")


def exclusive_runs_keep_apart(index: Index) -> Iterator[Violation]:
    """Runs of a job that must not overlap do not, unless the cluster had given one of them up."""
    spans: dict[str, list[tuple[int, int, LedgerRun]]] = defaultdict(list)
    for key, marks in index.begins.items():
        run, ends = index.runs.get(key[0]), index.ends.get(key)
        version = None if run is None else index.version_of(run)
        if run is None or version is None or version.overlap == "allow" or not ends or run.ever_lost:
            continue
        spans[run.job].append((marks[0].mono_us, ends[-1].mono_us, run))
    for group in spans.values():
        ordered = sorted(group, key=lambda span: span[0])
        for (_, end, one), (begin, _, other) in itertools.pairwise(ordered):
            if begin < end and one.id != other.id:
                yield _of(
                    other, "runs-overlap", f"it began {(end - begin) / 1000:.1f} ms before run {one.id} had ended"
                )


def nothing_begins_after_its_stop(index: Index) -> Iterator[Violation]:
    """G5: after stop has answered nothing begins, until a start is sent; what the answer named is told."""
    for job, changes in _changes_by_job(index.history.changes).items():
        begins = _begins_of(index, job)
        for number, change in enumerate(changes):
            if change.kind != "stop" or change.answered_us is None:
                continue
            first = bisect.bisect_right(begins, change.answered_us, key=_at)
            until = next((c.sent_us for c in itertools.islice(changes, number, None) if c.kind == "start"), None)
            last = len(begins) if until is None else bisect.bisect_left(begins, until, key=_at)
            for mark in begins[first:last]:
                if mark.run_id not in change.running:
                    after = (mark.mono_us - change.answered_us) / 1000
                    yield _about(mark, "begun-after-stop", f"it began {after:.1f} ms after stop had answered")


def nothing_old_begins_after_its_edit(index: Index) -> Iterator[Violation]:
    """G5: after edit has answered nothing of an older edition begins; what the answer named is told."""
    for job, changes in _changes_by_job(index.history.changes).items():
        edits = [(c.answered_us, c) for c in changes if c.kind == "edit" and c.answered_us is not None]
        for mark in _begins_of(index, job):
            before = bisect.bisect_left(edits, mark.mono_us, key=lambda edit: edit[0])
            if not before:
                continue
            answered, edit = edits[before - 1]
            if mark.edition < edit.edition and mark.run_id not in edit.running:
                after = (mark.mono_us - answered) / 1000
                detail = f"edition {mark.edition} began {after:.1f} ms after edition {edit.edition} was answered"
                yield _about(mark, "begun-after-edit", detail)


def nothing_begins_early(index: Index) -> Iterator[Violation]:
    """No work begins before its tick."""
    history = index.history
    slack = EARLY_MAX_US + history.offset_error_us
    for marks in index.begins.values():
        early = marks[0].due_at - (marks[0].mono_us + history.offset_us)
        if early > slack:
            yield _about(marks[0], "begun-early", f"it began {early / 1000:.1f} ms before its tick")


def keys_make_one_run(index: Index) -> Iterator[Violation]:
    """One idempotency key is one run, and the ledger has it."""
    for trigger in index.history.triggers:
        ids = sorted(set(trigger.run_ids))
        if len(ids) > 1:
            names = ", ".join(map(str, ids))
            detail = f"key {trigger.key} was answered with runs {names}"
            yield Violation(rule="key-twice", job=trigger.job, run_id=ids[0], detail=detail)
        for run_id in ids:
            if run_id not in index.runs:
                detail = f"run {run_id} was answered for key {trigger.key}, and the ledger has no such run"
                yield Violation(rule="trigger-vanished", job=trigger.job, run_id=run_id, detail=detail)


RULES: tuple[Callable[[Index], Iterator[Violation]], ...] = (
    one_begin_per_attempt,
    one_run_per_tick,
    evidence_is_in_the_ledger,
    ledger_is_in_the_evidence,
    attempts_keep_their_order,
    exclusive_runs_keep_apart,
    nothing_begins_after_its_stop,
    nothing_old_begins_after_its_edit,
    nothing_begins_early,
    keys_make_one_run,
)


def _changes_by_job(changes: Sequence[Change]) -> dict[str, list[Change]]:
    found: dict[str, list[Change]] = defaultdict(list)
    for change in sorted(changes, key=lambda c: c.sent_us):
        found[change.job].append(change)
    return found


def _begins_of(index: Index, job: str) -> list[Mark]:
    """In the order of their instants."""
    return sorted((m for m in index.history.marks if m.what == BEGIN and m.job == job), key=_at)


def _at(mark: Mark) -> int:
    return mark.mono_us


def _about(mark: Mark, rule: str, detail: str) -> Violation:
    return Violation(rule=rule, job=mark.job, due_at=mark.due_at, run_id=mark.run_id, detail=detail)


def _of(run: LedgerRun, rule: str, detail: str) -> Violation:
    return Violation(rule=rule, job=run.job, due_at=run.due_at, run_id=run.id, detail=detail)
