"""Whole clusters under random faults: whatever happens, and in whatever order, the promises hold.

A failure prints its seed and the last actions. To see one again: `Cluster(url, seed, ...)`, `play` and `rest` with the
same numbers tell the same story, since ids, salts, waits and clocks all come from the seed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.cluster import Cluster
from tests.simulation.invariants import Broken
from timeball.store.leases import Leases

FAST_SEEDS = range(20)
FAST_ACTIONS = 300
FULL_SEEDS = range(100, 600)
FULL_ACTIONS = 900
SEEDS_PER_TEST = 20


def _simulate(url: str, seed: int, actions: int, *, unrest: float = 2.5) -> Cluster:
    cluster = Cluster(url, seed, instances=2 + seed % 3)
    cluster.unrest = unrest
    try:
        cluster.play(actions)
        cluster.rest()
    finally:
        cluster.close()
    return cluster


@pytest.mark.parametrize("seed", FAST_SEEDS)
def test_nothing_fires_twice_and_nothing_vanishes(tmp_path: Path, seed: int) -> None:
    cluster = _simulate(f"sqlite:///{tmp_path}/test.db", seed, FAST_ACTIONS)
    assert cluster.did["begins"] > 0


def test_the_same_holds_on_postgresql(postgres_url: str) -> None:
    cluster = _simulate(postgres_url, 1, 250)
    assert cluster.did["begins"] > 0


def test_a_seed_tells_the_same_story_each_time(tmp_path: Path) -> None:
    first, second = (_simulate(f"sqlite:///{tmp_path}/{name}.db", 4, 250) for name in ("first", "second"))
    assert first.did == second.did
    assert first.history == second.history
    assert first.checker.runs == second.checker.runs


def test_a_leader_that_does_not_prove_its_term_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leases, "prove", lambda *_: None)
    with pytest.raises(
        Broken, match=r"(?s)seed \d+ after .* did a leader's work, but the lease says .*the last actions"
    ):
        for seed in range(200):  # one of the first dozen
            _simulate(f"sqlite:///{tmp_path}/{seed}.db", seed, FAST_ACTIONS, unrest=4)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", FULL_SEEDS[::SEEDS_PER_TEST])
def test_thousands_of_minutes(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        _simulate(f"sqlite:///{tmp_path}/{seed}.db", seed, FULL_ACTIONS)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 108))
def test_many_minutes_on_postgresql(postgres_url: str, seed: int) -> None:
    _simulate(postgres_url, seed, FULL_ACTIONS)
