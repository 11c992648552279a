"""A cluster in one thread: whole instances over one real database, stepped in the order that a seed draws.

Between any two transactions of a step other instances may act, the clock may go on, the instance may die, or the
answer of a commit may get lost. All time is simulated: the database's clock and the hosts' monotonic clock.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter, deque
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from tests.conftest import HostClock
from tests.simulation.clients import Clients
from tests.simulation.faults import Faults
from tests.simulation.invariants import POSTGRES_LOG, SQLITE_LOG, Broken, Checker, Violated
from tests.simulation.node import DEPTH_MAX, DRAINING, LOOPS, Died, Node
from tests.simulation.work import SECOND, SimExecutor
from tests.store.stepped import Bench
from timeball.clock import ClusterClock, parse_instant, seconds_to_us
from timeball.engine.engine import Engine
from timeball.errors import ClaimLost, Unavailable
from timeball.events.bus import Bus
from timeball.executors.contract import Outcome, Work
from timeball.executors.registry import Registry
from timeball.model.cluster import Term
from timeball.model.job import JobState
from timeball.service.jobs import JobService
from timeball.settings import Settings
from timeball.store import Store

BEGIN = parse_instant("2030-06-05T12:00:30Z")
HISTORY_MAX = 40
REST_ROUNDS_MAX = 150
"""A run of three attempts, each as long as work can be, ends within these seconds."""
MEMBERSHIP = seconds_to_us(Settings().membership_seconds)
COMMIT_TAKES = (0, 0, 50_000, 300_000)
INTERLEAVE = 0.04
INTERLEAVE_WRITE = 0.12
MEDDLE = 0.15
"""How often somebody edits a job just after starts were committed, some of them before their instant."""
FREEZE = 0.012
FREEZE_START = 0.05
ANSWER_LOST = 0.01
DEATH_IN_STEP = 0.002
POSTGRES_CLOCK = (
    "CREATE OR REPLACE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
    f"'SELECT to_timestamp({BEGIN // SECOND}) + (SELECT moved_us FROM public.test_clock) * interval ''1 microsecond'''"
)


class SimClock(HostClock):
    """The database's clock where that is the host's: it stands still unless it is moved."""

    def __call__(self) -> int:
        return BEGIN + self.moved_us


class Cluster:
    """The world: `play` lets it happen, `rest` lets it come to an end; both raise Broken with seed and history."""

    def __init__(self, url: str, seed: int, *, instances: int = 3) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self._patches = contextlib.ExitStack()
        self._simulate_chance()
        self.bench = Bench(url, SimClock())
        postgres = url.startswith("postgresql")
        self.bench.administer(*((POSTGRES_CLOCK, *POSTGRES_LOG) if postgres else SQLITE_LOG))
        self.history: deque[str] = deque(maxlen=HISTORY_MAX)
        self.did: Counter[str] = Counter()
        self.checker = Checker(self.bench.store)
        self.nodes: list[Node] = []
        self.checker.excused = self._excused
        self.mono = 1_000 * SECOND
        self.jumped_at = 0
        self.depth = 0
        self.restless = True
        self.unrest = 2.5
        """How often people and faults have their turn, beside 80 steps of instances."""
        self.refused = False
        self._names = 0
        self.size = instances
        self.faults = Faults(self)
        store, registry = self._tapped(self.bench.open(), None), self._registry("client")[0]
        self.clients = Clients(self, store, JobService(store, registry, namespace="default", actor="sim"))
        for _ in range(instances):
            self.join()

    @property
    def minutes(self) -> float:
        """Simulated minutes so far."""
        return (self.bench.now() - BEGIN) / SECOND / 60

    # --- what may happen

    def play(self, actions: int) -> None:
        """So many random actions."""
        with self.telling():
            for _ in range(actions):
                self.act()

    def rest(self) -> None:
        """All faults end, one fresh instance takes everything over, and the books are closed."""
        with self.telling():
            self.restless = False
            for node in list(self.nodes):
                self.crash(node)
            node = self.join()
            self._rounds(node, 40)
            for job in self.clients.jobs.list():
                if job.state is JobState.ACTIVE:
                    self.clients.change("stop", job.name)
            self._rounds(node, 20)
            for _ in range(REST_ROUNDS_MAX):
                if not self.checker.unfinished():
                    break
                self._rounds(node, 1)
            self.checker.at_rest("default")

    def close(self) -> None:
        """Close every connection; give chance and time back to the product."""
        self._patches.close()
        self.bench.close()

    def _simulate_chance(self) -> None:
        """Ids, salts and waits of the product come from the seed, so that a seed is one story."""
        rng = random.Random(self.seed)
        ids = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"{rng.getrandbits(128):032x}"))
        for target, replacement in (
            ("timeball.engine.member.uuid", ids),
            ("timeball.store.jobs.secrets", SimpleNamespace(randbits=rng.getrandbits)),
            ("timeball.service.jobs.pause_us", self._pause),
        ):
            self._patches.enter_context(mock.patch(target, replacement))

    def act(self) -> None:
        action = self.rng.choices(
            (self.step_any, self._advance, self.clients.act, self.faults.act),
            weights=(70, 14, 10, 4) if self.depth else (80, 14, self.unrest, self.unrest),
        )[0]
        action()

    def step_any(self) -> None:
        awake = [node for node in self.nodes if not node.paused and not node.busy]
        if awake:
            node = self.rng.choice(awake)
            self.step(node, self.rng.choices(tuple(LOOPS), weights=tuple(LOOPS.values()))[0])

    def _advance(self) -> None:
        self.advance(self.rng.choice((1_000, 20_000, 100_000, 300_000, 700_000, SECOND, 2 * SECOND)))

    # --- instances

    def join(self) -> Node:
        """A new instance. Its first heartbeat may fail; the next one joins."""
        self._names += 1
        name = f"i{self._names}"
        registry, executor = self._registry(name)
        settings = Settings(database_url=self.bench.url, name=name, start_lead_max_seconds=1.0)
        store = self._tapped(self.bench.open(), name)
        engine = Engine(store, settings, registry, Bus(), clock=ClusterClock(lambda: self.mono))
        node = Node(name, engine, executor)
        self.nodes.append(node)
        self.step(node, "member")
        return node

    def step(self, node: Node, loop: str) -> None:
        """One step of one loop, as the thread around it would do it: errors of the world are its daily bread."""
        if node.draining and loop not in DRAINING:
            return
        self.note(f"{node.name} {loop}")
        node.busy, node.loop = True, loop
        node.ids.add(node.engine.member.id)
        try:
            self._call(node, loop)
            if node.draining:
                self._leave_when_idle(node)
        except Died:
            self.crash(node)
        except ClaimLost:
            self.note(f"{node.name} {loop}: claim lost")
        except Unavailable as error:
            if "sim:" not in str(error):
                raise
            self.note(f"{node.name} {loop}: {error}")
        finally:
            node.busy = False
        self.did["steps"] += 1

    def _call(self, node: Node, loop: str) -> None:
        if loop == "work":
            node.executor.advance()
        elif loop == "member" or node.engine.clock._offset_us is not None:
            (node.engine._beat if loop == "member" else getattr(node.engine, loop).step)()

    def crash(self, node: Node) -> None:
        """The process is gone; so is what it ran."""
        self.note(f"{node.name} crashes")
        for key in node.executor.die():
            self.checker.died(key)
        if node in self.nodes:
            self.nodes.remove(node)
        node.paused = True

    def _leave_when_idle(self, node: Node) -> None:
        if node.engine.runner.load() == 0 and len(node.engine.settler) == 0 and node in self.nodes:
            node.engine.member.leave()
            self.note(f"{node.name} has left")
            self.nodes.remove(node)

    # --- time and the database

    def advance(self, by_us: int) -> None:
        """Time goes on for everybody."""
        self.note(f"+{by_us / SECOND:g} s")
        self.pass_time(by_us)

    def pass_time(self, by_us: int, *, database: bool = True) -> None:
        """The same, untold; on its way whoever is awake and has work looks whether the work may go on."""
        end = self.mono + by_us
        while self.mono < end:
            awake = [node for node in self.nodes if not node.asleep and node.engine.runner.load()]
            for node in awake:
                if node.look_at <= self.mono:
                    node.look(self.mono)
            until = min([end, *(node.look_at for node in awake)])
            if database:
                self.bench.move_clock(until - self.mono)
            self.mono = until
        self.checker.judge_belief(self._believed(), self.mono)

    def _pause(self, by_us: int) -> None:
        """In place of the real wait of a service: time goes on, and the instances with it."""
        self.advance(by_us)

    # --- between transactions

    @contextlib.contextmanager
    def deeper(self, by: int = 1) -> Generator[None]:
        """Inside of another step: what happens here may be interrupted only so often again."""
        self.depth += by
        try:
            yield
        finally:
            self.depth -= by

    def _tapped(self, store: Store, name: str | None) -> Store:
        """Let the simulation act before and after each transaction of a store."""
        database = cast(Any, store.database)
        for verb in ("transaction", "snapshot"):
            setattr(database, verb, self._tap(getattr(database, verb), name, writes=verb == "transaction"))
        return store

    def _tap(self, inner: Callable[..., Any], name: str | None, *, writes: bool) -> Callable[..., Any]:
        @contextlib.contextmanager
        def tapped(**options: Any) -> Generator[Any]:
            node = next((node for node in self.nodes if node.name == name), None)
            self._before(node, writes=writes)
            with self._marked(), inner(**options) as tx:
                yield tx
            self._after(node, writes=writes)

        return tapped

    @contextlib.contextmanager
    def _marked(self) -> Generator[None]:
        """Mark errors of a database that refuses as the simulation's own."""
        try:
            yield
        except Unavailable as error:
            if not self.refused:
                raise
            raise Unavailable(f"sim: {error}") from error

    def _before(self, node: Node | None, *, writes: bool) -> None:
        if self.depth < DEPTH_MAX and self.restless:
            luck = self.rng.random()
            if node is not None and writes and luck < (FREEZE_START if node.loop == "starter" else FREEZE):
                with self.deeper():
                    self.faults.freeze(node)
            elif luck < (INTERLEAVE_WRITE if writes else INTERLEAVE):
                with self.deeper():
                    for _ in range(self.rng.randrange(1, 6)):
                        self.act()
        if node is not None and node.cut:
            raise Unavailable("sim: cut off")

    def _after(self, node: Node | None, *, writes: bool) -> None:
        if not writes:
            return
        self.checker.observe(node.engine.member.id if node is not None else None)
        if node is not None and node.loop == "lease":
            self.checker.note_lease(self.mono)
        self.checker.judge_belief(self._believed(), self.mono)
        if node is None or not self.restless:
            return
        if node.loop == "starter":  # slow commits are learned from: starts then come before their instant
            self.pass_time(self.rng.choice(COMMIT_TAKES))
            if self.depth < DEPTH_MAX and self.rng.random() < MEDDLE:
                with self.deeper():
                    self.clients.edit_one()
        luck = self.rng.random()
        if luck < DEATH_IN_STEP:
            self.did["deaths in a step"] += 1
            raise Died
        if luck < DEATH_IN_STEP + ANSWER_LOST:
            self.did["answers lost"] += 1
            raise Unavailable("sim: the answer of the commit is lost")

    def _believed(self) -> list[Term]:
        return [term for node in self.nodes if (term := node.engine.lease.term()) is not None]

    def _excused(self, attempt: tuple[int, int]) -> bool:
        """Whether an attempt may live beside its successor: its host sleeps, or a jump made its membership shorter."""
        if self.mono - self.jumped_at <= MEMBERSHIP:
            return True
        return any(node.asleep for node in self.nodes if node.executor.holds(attempt))

    # --- evidence, rest, and the story of a failure

    def _registry(self, name: str) -> tuple[Registry, SimExecutor]:
        def begin(work: Work) -> None:
            node = next(node for node in self.nodes if node.name == name)
            self.note(f"{name} begins run {work.run_id}.{work.attempt} of job {work.job_id} due {work.due_at}")
            self.did["begins"] += 1
            self.checker.begin(work, node.ids, self.bench.now(), node.engine.clock.error_us)

        def end(outcome: Outcome) -> None:
            self.note(f"{name} ends run {outcome.run_id}.{outcome.attempt} {outcome.state}")
            self.checker.end(outcome)

        executor = SimExecutor(self.rng, lambda: self.mono, begin, end)
        return Registry([executor]), executor

    def _rounds(self, node: Node, count: int) -> None:
        for _ in range(count):
            for loop in LOOPS:
                self.step(node, loop)
            self.advance(SECOND)

    def note(self, line: str) -> None:
        """Add to the story."""
        self.history.append(line)

    @contextlib.contextmanager
    def telling(self) -> Generator[None]:
        """Around actions: what breaks in them comes out as Broken, with seed and history."""
        try:
            yield
        except (Exception, Violated) as error:
            story = "\n  ".join(self.history)
            raise Broken(
                f"seed {self.seed} after {self.did['steps']} steps, {self.minutes:.1f} minutes: "
                f"{type(error).__name__}: {error}\nthe last actions:\n  {story}"
            ) from error
