"""The engine beside a stepper that looks at each second: all zones, at each of their transitions of 2015 to 2035."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest

from timeball.schedule import Schedule, parse
from timeball.schedule.union import Union

from . import stepper

SECOND = 1_000_000
BEFORE, AFTER = 3 * 3600, 4 * 3600
SLICE_SEED = 20_240_310


def compare(name: str, transition: int, random_: random.Random, expressions: int) -> None:
    start, end = transition - BEFORE, transition + AFTER
    shown = stepper.walls(name, start - 1, end)
    near = stepper.NAIVE_EPOCH + timedelta(seconds=transition + stepper.offset_at(stepper.zone(name), transition - 1))
    for _ in range(expressions):
        drawn = stepper.draw(random_, near)
        elapsed = [tick for tick in stepper.elapsed_ticks(drawn, shown, start - 1) if tick >= start]
        fixed = stepper.fixed_ticks(drawn, shown, start - 1)
        for dst, expected in (("literal", elapsed), ("vixie", fixed if drawn.fixed else elapsed)):
            schedule = parse(drawn.text, timezone=name, dst=dst)
            check(schedule, start, end, [tick * SECOND for tick in expected], f"{drawn.text} {name} {dst} {transition}")


def check(schedule: Schedule, start: int, end: int, expected: list[int], label: str) -> None:
    after, until = start * SECOND - 1, end * SECOND - 1
    assert schedule.between(after, until) == expected, label
    assert schedule.count_between(after, until) == len(expected), label
    backwards: list[int] = []
    tick = schedule.previous_before(end * SECOND)
    while tick is not None and tick > after:
        backwards.append(tick)
        tick = schedule.previous_before(tick)
    assert backwards[::-1] == expected, label
    bits = schedule.marks(start, end - start).get(0, 0)
    assert bits == sum(1 << tick // SECOND - start for tick in expected), label
    assert Union(text="", parts=(schedule, schedule)).count_between(after, until) == len(expected), label


def compare_zones(names: list[str], seed: int, *, share: float, expressions: int) -> int:
    random_ = random.Random(seed)
    compared = 0
    for name in names:
        for transition in stepper.transitions(name, 2015, 2035):
            if random_.random() < share:
                compare(name, transition, random_, expressions)
                compared += 1
    return compared


def test_the_engine_agrees_with_the_stepper_at_a_slice_of_all_transitions() -> None:
    names = random.Random(SLICE_SEED).sample(stepper.zone_names(), 60)
    assert compare_zones(names, SLICE_SEED, share=0.03, expressions=4) > 10


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        ("Pacific/Apia", "2011-12-30T10:00"),  # a day is skipped
        ("Pacific/Kwajalein", "1993-08-21T12:00"),  # a day is skipped, by another way
        ("Australia/Lord_Howe", "2025-04-05T15:00"),  # half an hour back
        ("Australia/Lord_Howe", "2025-10-04T15:30"),  # half an hour forward
        ("Africa/Casablanca", "2025-02-23T02:00"),  # two changes around Ramadan
        ("Africa/Casablanca", "2025-04-06T02:00"),
        ("America/Sao_Paulo", "2017-10-15T03:00"),  # no midnight
        ("America/Santiago", "2022-09-11T04:00"),
        ("Asia/Pyongyang", "2018-05-04T15:00"),
        ("Asia/Manila", "1844-12-31T00:00"),  # a day is skipped, before 1970
        ("America/Juneau", "1867-10-18T00:00"),  # a day is repeated
        ("Europe/Paris", "1940-06-14T22:00"),
        ("Europe/London", "1941-05-04T01:00"),  # double summer time
        ("Antarctica/Troll", "2025-03-30T01:00"),  # two hours at once
        ("America/New_York", "2400-03-12T07:00"),  # far ahead
    ],
)
def test_the_engine_agrees_with_the_stepper_at_odd_changes(name: str, moment: str) -> None:
    near = datetime.fromisoformat(moment + "+00:00")
    second = round((near - stepper.EPOCH).total_seconds())
    compare(name, second, random.Random(name + moment), 8)


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(12))
def test_the_engine_agrees_with_the_stepper_at_each_transition_of_all_zones(part: int) -> None:
    names = list(stepper.zone_names()[part::12])
    assert compare_zones(names, part, share=1.0, expressions=8) > 100
