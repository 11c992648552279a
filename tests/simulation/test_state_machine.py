"""The same simulated clusters, driven by Hypothesis: a failure comes with the shortest history that shows it.

Each rule is one step of one loop, one request, one fault, or time that goes on; `luck` seeds what may happen inside of
the step (0: nothing does). Invariants are checked after every transaction, and at rest.
"""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.simulation.cluster import HISTORY_MAX, Cluster
from tests.simulation.invariants import Broken
from tests.simulation.node import LOOPS
from timeball.model.job import Definition
from timeball.policy.overlap import Candidate, Decision, Verdict
from timeball.store import starts

LUCK = st.integers(0, 200)
TIMES = st.sampled_from((1_000, 20_000, 300_000, 1_000_000, 4_000_000, 12_000_000))
CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


class Machine(RuleBasedStateMachine):
    """Two or three instances on one SQLite file, from the first heartbeat to the closed books."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._broken = False
        self.cluster = Cluster(f"sqlite:///{self._folder.name}/test.db", 1, instances=2)

    def _do(self, luck: int, action: Any, *arguments: Any) -> None:
        self.cluster.rng.seed(luck)
        self.cluster.restless = luck > 0
        try:
            with self.cluster.telling():
                action(*arguments)
        except Broken:
            self._broken = True
            raise

    @rule(number=st.integers(0, 2), loop=st.sampled_from(tuple(LOOPS)), luck=LUCK)
    def step(self, number: int, loop: str, luck: int) -> None:
        """One pass of one loop."""
        awake = [node for node in self.cluster.nodes if not node.paused]
        if awake:
            self._do(luck, self.cluster.step, awake[number % len(awake)], loop)

    @rule(rounds=st.integers(1, 3))
    def work(self, rounds: int) -> None:
        """Everybody goes on for some seconds."""
        for _ in range(rounds):
            for loop in LOOPS:
                for node in [node for node in self.cluster.nodes if not node.paused]:
                    self._do(0, self.cluster.step, node, loop)
            self._do(0, self.cluster.advance, 1_000_000)

    @rule(by_us=TIMES)
    def time_passes(self, by_us: int) -> None:
        """Nobody does anything."""
        self._do(0, self.cluster.advance, by_us)

    @rule(luck=LUCK)
    def request(self, luck: int) -> None:
        """Somebody makes, changes, stops or deletes a job."""
        self._do(luck, self.cluster.clients.act)

    @rule(luck=LUCK)
    def fault(self, luck: int) -> None:
        """A crash, a pause, a cut, a drain, a step of the clock, an outage; or a recovery."""
        self._do(luck, self.cluster.faults.act)

    def teardown(self) -> None:
        """Close the books, unless a rule has failed already."""
        try:
            if not self._broken:
                self.cluster.rest()
        finally:
            self.cluster.close()
            self._folder.cleanup()


def _run(examples: int, steps: int, *, random: bool = False) -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=not random,
            database=None,
            suppress_health_check=CHECKS,
        ),
    )


def test_no_history_breaks_a_promise() -> None:
    _run(6, 40)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_broken_promise_comes_with_a_short_history(monkeypatch: pytest.MonkeyPatch) -> None:
    def start_all(_definition: Definition, candidates: list[Candidate], *_: object) -> list[Decision]:
        return [Decision(run_id=candidate.run_id, verdict=Verdict.START) for candidate in candidates]

    monkeypatch.setattr(starts, "decide_starts", start_all)
    with pytest.raises(Broken, match=r"runs at once|though its job had") as broken:
        _run(100, 20)
    assert str(broken.value).count("\n  ") < HISTORY_MAX


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_no_long_history_breaks_a_promise() -> None:
    _run(200, 150, random=True)
