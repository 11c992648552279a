"""Worlds that are not brought to rest: many short ones, for whatever breaks a promise while faults go on.

This is where the named guards of tests/guards must be missed: without one of them a world breaks within a minute.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from tests.simulation.cluster import Cluster
from timeball.clock import monotonic_us

SECONDS = "TIMEBALL_TEST_HUNT_SECONDS"
WORLDS = 4
ACTIONS = 400
UNREST = 6


def test_no_world_breaks_a_promise_while_faults_go_on(tmp_path: Path) -> None:
    """So many worlds, or as many as can be played in the seconds that the environment grants."""
    granted = int(os.environ.get(SECONDS, "0")) * 1_000_000
    begun = monotonic_us()
    for seed in itertools.count(1000):
        if seed >= 1000 + WORLDS and monotonic_us() - begun > granted:
            break
        cluster = Cluster(f"sqlite:///{tmp_path}/{seed}.db", seed, instances=2 + seed % 3)
        cluster.unrest = UNREST
        try:
            cluster.play(ACTIONS)
        finally:
            cluster.close()
        assert cluster.did["steps"] > 0
