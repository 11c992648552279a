"""The thread around a step: what it tells of trouble, and when it believes that the trouble is over."""

from __future__ import annotations

import threading

from tests.cluster.instances import eventually
from timeball.engine.loop import Loop
from timeball.errors import Unavailable
from timeball.events.bus import Bus
from timeball.events.facts import Fact, LoopFailing, LoopRecovered


def test_a_pass_that_asked_nobody_is_no_recovery() -> None:
    facts: list[Fact] = []
    bus = Bus()
    bus.subscribe(facts.append)
    down, proves, passes = threading.Event(), threading.Event(), [0]
    down.set()

    def step() -> float:
        passes[0] += 1
        if down.is_set():
            raise Unavailable("away")
        return 0.01

    loop = Loop("claim", step, bus, may_recover=proves.is_set)
    loop.start()
    try:
        eventually(lambda: loop.failing)
        down.clear()
        before = passes[0]
        eventually(lambda: passes[0] > before + 5)
        assert loop.failing
        assert [type(fact) for fact in facts] == [LoopFailing]
        proves.set()
        eventually(lambda: not loop.failing)
        assert [type(fact) for fact in facts] == [LoopFailing, LoopRecovered]
    finally:
        loop.stop()
