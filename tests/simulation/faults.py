"""What befalls the instances and the database: crashes, pauses, cuts, drains, steps of the clock, outages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tests.simulation.node import DEPTH_MAX, LOOPS, Died, Node
from tests.simulation.work import SECOND
from timeball.errors import Unavailable

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

WAITS = ((3, 3, 2, 2, 2, 3, 3, 3, 2, 1, 1), (3, 3, 3, 2, 1, 1), (3, 1, 1), (1, 1))
"""In seconds, with the others at work in between: past a membership and a new leader's grace, past a membership, past
a lease or a claim, and past a claim only.
"""


class Faults:
    """The world's bad luck, drawn from its seed."""

    def __init__(self, world: Cluster) -> None:
        self._world = world

    def act(self) -> None:
        """One fault, or a recovery from faults."""
        faults: dict[Callable[[], None], float] = {
            self._crash_one: 3,
            self._pause_one: 4,
            self._stall_one: 5 if self._world.depth == 0 else 0,
            self._cut_one: 3,
            self._sever_one: 4 if self._world.depth == 0 else 0,
            self._drain_one: 2,
            self._mend: 10,
            self._jump: 1,
            self._sleep: 1,
            self._refuse: 0.6 if self._world.depth == 0 and not self._world.clients.busy else 0,
        }
        self._world.rng.choices(tuple(faults), weights=tuple(faults.values()))[0]()

    def _idle_nodes(self) -> list[Node]:
        return [node for node in self._world.nodes if not node.busy]

    def _crash_one(self) -> None:
        if nodes := self._idle_nodes():
            self._world.did["crashes"] += 1
            self._world.crash(self._world.rng.choice(nodes))

    def _pause_one(self) -> None:
        if nodes := self._idle_nodes():
            node = self._world.rng.choice(nodes)
            node.paused = True
            self._world.did["pauses"] += 1
            self._world.note(f"{node.name} is paused")

    def _stall_one(self) -> None:
        """An instance with work in hand sleeps until it is given up, and then says how the work ended."""
        nodes = [node for node in self._idle_nodes() if node.executor.running()]
        if not nodes:
            return
        node = self._world.rng.choice(nodes)
        node.paused = True
        with self._world.deeper():
            self.freeze(node)
        self._wake(node)
        for loop in ("work", "settler", "member"):
            if node in self._world.nodes:
                self._world.step(node, loop)

    def _cut_one(self) -> None:
        if nodes := self._idle_nodes():
            node = self._world.rng.choice(nodes)
            node.cut = True
            self._world.did["cuts"] += 1
            self._world.note(f"{node.name} is cut off")

    def _sever_one(self) -> None:
        """An instance with work in hand is cut off until it is given up and its work may begin elsewhere."""
        nodes = [node for node in self._idle_nodes() if node.executor.running() and not node.paused]
        if not nodes:
            return
        node = self._world.rng.choice(nodes)
        node.cut = True
        self._world.note(f"{node.name} is cut off for long")
        self._world.did["severed"] += 1
        with self._world.deeper():
            self._others_go_on(WAITS[0])
        node.cut = False

    def _drain_one(self) -> None:
        nodes = [node for node in self._idle_nodes() if not node.draining and not node.cut and not node.paused]
        if not nodes:
            return
        node = self._world.rng.choice(nodes)
        self._world.note(f"{node.name} drains")
        self._world.did["drains"] += 1
        node.draining = node.engine.member.draining = True
        member, store = node.engine.member, node.engine._store
        try:
            store.claims.give_back(member.id, [claim.run_id for claim in node.engine.held.clear()])
            node.engine.lease.resign("draining")
        except Died:
            self._world.crash(node)
        except Unavailable:
            self._world.note(f"{node.name} could not say that it leaves")

    def _mend(self) -> None:
        """The paused and cut wake up, each with some luck; the dead are replaced."""
        for node in self._idle_nodes():
            if self._world.rng.random() < 0.6 and (node.paused or node.cut):
                node.cut = False
                self._wake(node)
                self._world.note(f"{node.name} is well again")
        if len(self._world.nodes) < self._world.size:
            self._world.join()

    def _wake(self, node: Node) -> None:
        """What must have ended by now ends before anything else."""
        node.paused = node.frozen = False
        node.look(self._world.mono)

    def _jump(self) -> None:
        by_us = self._world.rng.choice((SECOND, 5 * SECOND, 15 * SECOND))
        self._world.did["jumps"] += 1
        self._world.note(f"the database's clock steps by {by_us / SECOND:g} s")
        self._world.bench.move_clock(by_us)
        self._world.jumped_at = self._world.mono

    def _sleep(self) -> None:
        self._world.did["sleeps"] += 1
        self._world.advance(self._world.rng.choice((4, 12, 40)) * SECOND)

    def _refuse(self) -> None:
        """The database takes no connections for some steps."""
        self._world.note("the database refuses")
        self._world.did["refusals"] += 1
        moved = 0
        self._world.refused = True
        with self._world.deeper(DEPTH_MAX), self._world.bench.refusing():
            for _ in range(self._world.rng.randrange(5, 25)):
                with contextlib.suppress(Unavailable):
                    self._world.step_any()
                by_us = self._world.rng.choice((0, 100_000, 500_000))
                self._world.pass_time(by_us, database=False)
                moved += by_us
        self._world.refused = False
        self._world.bench.move_clock(moved)
        self._world.note(f"the database is back after {moved / SECOND:g} s")

    def freeze(self, node: Node) -> None:
        """Stopped between what it read and what it is about to write, for longer than anybody may wait for it."""
        self._world.note(f"{node.name} freezes in its step")
        self._world.did["freezes"] += 1
        node.frozen = True
        self._others_go_on(self._world.rng.choice(WAITS))
        self._world.note(f"{node.name} goes on")
        self._wake(node)

    def _others_go_on(self, waits: Sequence[int]) -> None:
        others = [node for node in self._world.nodes if not (node.busy or node.paused or node.cut)]
        for seconds in waits:
            self._world.advance(seconds * SECOND)
            for loop in LOOPS:
                for other in others:
                    if other in self._world.nodes and self._world.rng.random() < 0.8:
                        self._world.step(other, loop)
            if self._world.rng.random() < 0.3:
                self._world.clients.act()
