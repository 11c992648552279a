"""What must hold after every transaction of the simulated cluster, judged from outside.

Two witnesses: a log that triggers write beside the ledger (each insert, update and removal of a run), and the word of
the functions themselves about their begin and end, which is kept in this process. Neither is written by the product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from timeball.executors.contract import Outcome, Work
from timeball.model.cluster import Term
from timeball.model.job import Definition, OnLost
from timeball.model.states import LIVE, PENDING, SETTLED, State, is_legal
from timeball.service.audit import audit
from timeball.store import Store
from timeball.store.database import sql

COLUMNS = "job_id, kind, due_at, salt, state, attempt, fence, exclusive, instance_id, started_at"
_TABLE = (
    "CREATE TABLE sim_log (id {id} PRIMARY KEY, op TEXT, was TEXT, run_id BIGINT, job_id BIGINT, kind TEXT, "
    "due_at BIGINT, salt BIGINT, state TEXT, attempt BIGINT, fence BIGINT, exclusive BIGINT, instance_id TEXT, "
    "started_at BIGINT)"
)


def _values(row: str) -> str:
    return ", ".join(f"{row}.{column}" for column in ("id", *COLUMNS.split(", ")))


def _insert(op: str, was: str, row: str) -> str:
    return f"INSERT INTO sim_log (op, was, run_id, {COLUMNS}) VALUES ('{op}', {was}, {_values(row)});"


SQLITE_LOG = (
    _TABLE.format(id="INTEGER"),
    *(
        f"CREATE TRIGGER sim_{op} AFTER {op} ON timeball_run BEGIN {_insert(op, was, row)} END"
        for op, was, row in (
            ("INSERT", "NULL", "NEW"),
            ("UPDATE", "OLD.state", "NEW"),
            ("DELETE", "OLD.state", "OLD"),
        )
    ),
)
POSTGRES_LOG = (
    _TABLE.format(id="BIGINT GENERATED ALWAYS AS IDENTITY"),
    "CREATE FUNCTION sim_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    f"IF TG_OP = 'INSERT' THEN {_insert('INSERT', 'NULL', 'NEW')} "
    f"ELSIF TG_OP = 'UPDATE' THEN {_insert('UPDATE', 'OLD.state', 'NEW')} "
    f"ELSE {_insert('DELETE', 'OLD.state', 'OLD')} END IF; RETURN NULL; END $$",
    "CREATE TRIGGER sim_log AFTER INSERT OR UPDATE OR DELETE ON timeball_run FOR EACH ROW EXECUTE FUNCTION sim_note()",
)
_READ = sql(f"SELECT id, op, was, run_id, {COLUMNS} FROM sim_log WHERE id > :after ORDER BY id")
_INSTANCE = sql("SELECT state, expires_at FROM timeball_instance WHERE id = :id")
_LEASE = sql("SELECT holder, epoch, expires_at FROM timeball_lease WHERE namespace = 'default'")
_HOLDER = sql("SELECT holder, expires_at FROM timeball_lease WHERE namespace = 'default'")


class Broken(AssertionError):
    """The simulation has failed; says its seed, the reason and the last actions."""


class Violated(BaseException):
    """An invariant does not hold. Not an Exception: a loop that outlives every error must not swallow this one."""


class Entry(NamedTuple):
    """One line of the triggers' log: what was done to a run, and the run as it then was."""

    id: int
    op: str
    was: str | None
    run_id: int
    job_id: int
    kind: str
    due_at: int
    salt: int
    state: str
    attempt: int
    fence: int | None
    exclusive: int
    instance_id: str | None
    started_at: int | None

    @property
    def key(self) -> tuple[int, int]:
        """The attempt: run and number."""
        return self.run_id, self.attempt


@dataclass(slots=True)
class Answer:
    """What the last answered stop, edit, start or delete of a job says about its later starts."""

    mark: int
    """The mark in the arguments of the definition that counts; -1: none may start."""
    fresh_after: int = 0
    """Ticks up to here belong to the time before the job was stopped."""
    listed: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Attempts that an answer named as still running: they had started before."""
    wanted: set[int] = field(default_factory=set[int])
    """Runs that a person wanted again since the last stop."""


class Checker:
    """Reads the log after each transaction, hears of each begin and end, and raises Violated."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read_up_to = 0
        self.runs: dict[int, Entry] = {}
        self.definitions: dict[int, Definition] = {}
        self.begun: dict[tuple[int, int], int] = {}
        """Attempts whose function began, and the mark of the definition by which it did."""
        self.living: set[tuple[int, int]] = set()
        self._ticks: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._ended: dict[tuple[int, int], tuple[int, State]] = {}
        self._started: dict[tuple[int, int], Entry] = {}
        self._lost: set[tuple[int, int]] = set()
        self._unbegun: set[tuple[int, int]] = set()
        self._by_hand: set[int] = set()
        self._fence_of_run: dict[int, int] = {}
        self._fence_of_job: dict[int, int] = {}
        self._answers: dict[int, Answer] = {}
        self._lease_ends: dict[tuple[str | None, int], int] = {}
        """When each term ends, by the hosts' monotonic clock: nobody may believe in it for longer."""
        self.excused: Callable[[tuple[int, int]], bool] = lambda _: False
        """Whether an attempt that was given up may still live, since its host could not know."""

    def observe(self, writer: str | None) -> None:
        """Take in what the last transaction did to the runs, and judge it. `writer`: the id of the instance."""
        rows = self._store.database.read(lambda tx: tx.all(_READ, after=self._read_up_to))
        entries = [Entry(*row) for row in rows]
        if not entries:
            return
        self._read_up_to = entries[-1].id
        by_run: dict[int, list[Entry]] = defaultdict(list)
        for entry in entries:
            self._note_tick(entry)
            self._note_loss(entry)
            by_run[entry.run_id].append(entry)
        if writer is not None and any(_is_leaders(entry) for entry in entries):
            self._judge_leader(writer)
        for changes in by_run.values():
            self._judge(changes[0].was, self.runs.get(changes[0].run_id), changes[-1])
        self._judge_overlap({changes[-1].job_id for changes in by_run.values()})

    def note_lease(self, mono: int) -> None:
        """The lease may have been taken or renewed just now."""
        row = self._store.database.read(lambda tx: tx.one(_LEASE))
        if row is not None:
            ends = mono + row[2] - self._store.members.clock()
            self._lease_ends[(row[0], row[1])] = max(ends, self._lease_ends.get((row[0], row[1]), 0))

    def judge_belief(self, terms: Sequence[Term], mono: int) -> None:
        """Whoever believes that it leads has a lease that has not ended, as far as its own clock could tell."""
        for term in terms:
            ends = self._lease_ends.get((term.holder, term.epoch), 0)
            _demand(mono < ends, f"{term.holder} believes in its term {term.epoch}, which ended {mono - ends} us ago")

    def _judge_leader(self, writer: str) -> None:
        row = self._store.database.read(lambda tx: tx.one(_HOLDER))
        holds = row is not None and row[0] == writer and row[1] > self._store.members.clock()
        _demand(holds, f"instance {writer} did a leader's work, but the lease says {row}")

    def _note_tick(self, entry: Entry) -> None:
        if entry.salt != 0 or entry.op == "UPDATE":
            return
        runs = self._ticks[(entry.job_id, entry.due_at)]
        if entry.op == "DELETE":
            runs.discard(entry.run_id)
            return
        runs.add(entry.run_id)
        _demand(len(runs) == 1, f"two rows for one tick of job {entry.job_id} at {entry.due_at}: {sorted(runs)}")

    def _note_loss(self, entry: Entry) -> None:
        if entry.op != "UPDATE" or entry.state != "lost" or entry.was == "lost":
            return
        self._lost.add(entry.key)
        row = self._store.database.read(lambda tx: tx.one(_INSTANCE, id=entry.instance_id))
        alive = row is not None and row[0] in ("active", "draining")
        _demand(not alive, f"{_name(entry)} was called lost though its instance is a member")

    def _judge(self, was: str | None, before: Entry | None, after: Entry) -> None:
        if after.op == "DELETE":
            _demand(after.state != "running", f"{_name(after)} was removed while it ran")
            self.runs.pop(after.run_id, None)
            return
        self.runs[after.run_id] = after
        if was is None or before is None:
            _demand(was is None, f"{_name(after)} changed before it came in")
            _demand(after.state in ("planned", "missed"), f"{_name(after)} came in as {after.state}")
            return
        _demand(was == before.state, f"{_name(after)} changed unseen from {before.state} to {was}")
        self._judge_move(before, after)

    def _judge_move(self, before: Entry, after: Entry) -> None:
        move = f"{_name(after)} went from {before.state} to {after.state}"
        old, new = State(before.state), State(after.state)
        _demand(old == new or is_legal(old, new), f"{move}: no legal move")
        again = new is State.PLANNED and old not in PENDING
        _demand(after.attempt == before.attempt + again, f"{move} as attempt {after.attempt} after {before.attempt}")
        if new is State.RUNNING and old is not State.RUNNING:
            self._judge_start(after)
        elif new is State.RUNNING:
            _demand((before.fence, before.instance_id) == (after.fence, after.instance_id), f"{move}: a new owner")
        elif new in SETTLED and old in (State.RUNNING, State.LOST):
            by_hand = old is State.LOST and after.run_id in self._by_hand
            self._judge_ending(after, self._ended.get(after.key), by_hand=by_hand)
        elif again:
            waited = before.key not in self._started  # it was cancelled before it could start
            ended = before.key in self._ended or before.key in self._lost or waited or self._given_back(before.key)
            _demand(ended, f"{move}: another attempt, though the last one has not ended")

    def _given_back(self, key: tuple[int, int]) -> bool:
        """Whether an attempt's start has committed and it has not begun; from now on it must not."""
        if key in self.begun or key not in self._started:
            return False
        self._unbegun.add(key)
        return True

    def _judge_start(self, started: Entry) -> None:
        name, fence = _name(started), started.fence or 0
        _demand(started.key not in self._started, f"{name} started twice")
        _demand(fence > self._fence_of_run.get(started.run_id, 0), f"{name} started with fence {fence}: not risen")
        if started.exclusive:
            top = self._fence_of_job.get(started.job_id, 0)
            _demand(fence > top, f"{name} started with fence {fence}, though its job had {top}")
        row = self._store.database.read(lambda tx: tx.one(_INSTANCE, id=started.instance_id))
        member = row is not None and row[0] in ("active", "draining") and row[1] > self._store.members.clock()
        _demand(member, f"{name} was started by {started.instance_id}, which is no member: {row}")
        self._started[started.key] = started
        self._fence_of_run[started.run_id] = fence
        self._fence_of_job[started.job_id] = max(fence, self._fence_of_job.get(started.job_id, 0))

    def _judge_ending(self, after: Entry, said: tuple[int, State] | None, *, by_hand: bool) -> None:
        if by_hand or (after.state == State.CANCELLED and self._given_back(after.key)):
            return
        _demand(said == (after.fence, after.state), f"{_name(after)} ended {after.state} by the ledger, but {said}")

    def _judge_overlap(self, jobs: set[int]) -> None:
        running: dict[int, list[Entry]] = defaultdict(list)
        for run in self.runs.values():
            if run.job_id in jobs and run.state == "running":
                running[run.job_id].append(run)
        for job_id, runs in running.items():
            newest = max(runs, key=lambda run: run.fence or 0)
            _demand(not newest.exclusive or len(runs) == 1, f"job {job_id}: {len(runs)} runs at once: {newest}")

    def begin(self, work: Work, ids: set[str], now: int, tolerance: int) -> None:
        """A function has begun on the instance that has had these ids, `now` by the database's clock.

        `tolerance`: what its instance cannot know of that clock, in microseconds.
        """
        key, name = (work.run_id, work.attempt), f"run {work.run_id}.{work.attempt}"
        started = self._started.get(key)
        _demand(key not in self.begun, f"{name} began twice")
        _demand(key not in self._unbegun, f"{name} began after its instance had said that it had not")
        if started is None:
            raise Violated(f"{name} began though its start was never committed")
        _demand(started.fence == work.fence, f"{name} began with fence {work.fence}, not {started.fence}")
        _demand(started.instance_id in ids, f"{name} began on {sorted(ids)}, though {started.instance_id} owns it")
        _demand(now >= (started.started_at or 0) - tolerance, f"{name} began before its instant {started.started_at}")
        self._judge_rivals(work)
        self._judge_answer(work, name)
        self.begun[key] = int(work.args["mark"])
        self.living.add(key)

    def _judge_rivals(self, work: Work) -> None:
        rivals = [key for key in self.living if key[0] == work.run_id]
        for rival in rivals:
            definition = self.definitions[self.begun[rival]]
            known = self.excused(rival) and definition.on_lost == OnLost.RERUN
            allowed = rival in self._lost and (known or work.run_id in self._by_hand)
            _demand(allowed, f"run {work.run_id}: attempts {rival[1]} and {work.attempt} live at once")

    def _judge_answer(self, work: Work, name: str) -> None:
        answer = self._answers.get(work.job_id)
        if answer is None or work.kind != "scheduled" or (work.run_id, work.attempt) in answer.listed:
            return
        mark = int(work.args["mark"])
        _demand(answer.mark == mark, f"{name} began with mark {mark} after an answer that left {answer.mark}")
        fresh = work.due_at > answer.fresh_after or work.run_id in answer.wanted
        _demand(fresh, f"{name} began: a tick of the time before a stop was answered")

    def end(self, outcome: Outcome) -> None:
        """A function has ended, and said so to its instance."""
        self.living.discard((outcome.run_id, outcome.attempt))
        self._ended[(outcome.run_id, outcome.attempt)] = (outcome.fence, outcome.state)

    def died(self, key: tuple[int, int]) -> None:
        """A function died with its instance."""
        self.living.discard(key)

    def answered(self, job_id: int, mark: int, still_running: list[int], *, stopped_at: int | None = None) -> None:
        """A change of a job was answered; `mark` as in Answer, `stopped_at` the instant of a stop."""
        answer = self._answers.setdefault(job_id, Answer(mark))
        answer.mark = mark
        answer.listed |= {self.runs[run_id].key for run_id in still_running if run_id in self.runs}
        if stopped_at is not None:
            answer.fresh_after = stopped_at
            answer.wanted.clear()

    def wanted(self, run: Entry) -> None:
        """A person is about to want a run again, or to say how it ended."""
        self._by_hand.add(run.run_id)
        if run.job_id in self._answers:
            self._answers[run.job_id].wanted.add(run.run_id)

    def unfinished(self) -> list[str]:
        """Runs that have no fate yet."""
        return [f"{_name(run)} {run.state}" for run in self.runs.values() if State(run.state) in LIVE]

    def at_rest(self, namespace: str) -> None:
        """Nothing is left to be done: every tick has one fate, by the ledger and by the audit."""
        left = self.unfinished()
        _demand(not left, f"not at rest: {left[:5]}")
        report = audit(self._store, namespace)
        found = [f"{v.kind} {v.job} {v.due_at} {v.detail}" for v in report.violations]
        _demand(report.clean, f"the audit found {found[:5]}")
        counts = (report.duplicates, report.without_fate, report.extra, report.open)
        _demand(counts == (0, 0, 0, 0), f"the audit counts {report.to_json()}")


def _is_leaders(entry: Entry) -> bool:
    """Whether only the leader may have written this: a planned tick, a missed one, a lost run."""
    planned = entry.op == "INSERT" and entry.kind == "scheduled"
    return planned or (entry.op == "UPDATE" and entry.state in ("missed", "lost") and entry.was != entry.state)


def _name(entry: Entry) -> str:
    return f"run {entry.run_id}.{entry.attempt}"


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Violated(otherwise)
