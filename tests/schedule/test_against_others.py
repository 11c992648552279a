"""The engine beside CronSim and croniter. A difference must be explained: the definition itself is the judge.

CronSim has no rule for fixed times with seconds (so `literal` is compared there); its known faults are listed below.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest
from croniter import croniter
from cronsim import CronSim

from timeball.schedule import parse

from . import stepper

SECOND = 1_000_000
HARD_DIFFERENCES_MAX = 0.05
PROBE_ZONES = ("Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/Santiago", "Australia/Lord_Howe")


def is_tick(drawn: stepper.Drawn, name: str, second: int, *, fixed: bool) -> bool:
    """Judge one instant by the definition, with nothing but the clock of `zoneinfo`."""
    info = stepper.zone(name)
    now = (stepper.EPOCH + timedelta(seconds=second)).astimezone(info)
    wall = now.replace(tzinfo=None, fold=0)
    if not fixed:
        return drawn.matches(wall)
    if now.fold:
        return False
    before = (stepper.EPOCH + timedelta(seconds=second - 1)).astimezone(info).replace(tzinfo=None, fold=0)
    while before < wall:
        before += timedelta(seconds=1)
        if drawn.matches(before):
            return True
    return False


def theirs(text: str, name: str, second: int) -> int | None:
    start = (stepper.EPOCH + timedelta(seconds=second)).astimezone(stepper.zone(name))
    found = next(CronSim(text, start), None)
    return None if found is None else round(found.timestamp())


def compare(random_: random.Random, name: str, second: int) -> bool | None:
    """Compare one triple; None when CronSim cannot read it, else whether the two agree."""
    near = stepper.NAIVE_EPOCH + timedelta(seconds=second + stepper.offset_at(stepper.zone(name), second))
    drawn = stepper.draw(random_, near)
    if "W" in drawn.text.replace("LW", "").replace("WED", ""):
        return None
    fixed = drawn.fixed and len(drawn.text.split()) == 5
    schedule = parse(drawn.text, timezone=name, dst="vixie" if fixed else "literal")
    ours = schedule.next_after(second * SECOND)
    assert ours is not None
    ours //= SECOND
    other = theirs(drawn.text, name, second)
    if other == ours:
        return True
    label = f"{drawn.text} {name} from {second}: {ours}, CronSim {other}"
    assert is_tick(drawn, name, ours, fixed=fixed), label
    if other is not None and second < other < ours:
        assert not is_tick(drawn, name, other, fixed=fixed), label
    return False


def compare_many(seed: int, count: int) -> tuple[int, int]:
    """Compare triples, half of them within a day of a change of the clocks. Return how many, and how many differ."""
    random_ = random.Random(seed)
    changes = {name: stepper.transitions(name, 2015, 2035) for name in PROBE_ZONES}
    more = random_.sample(stepper.zone_names(), 40)
    compared = different = 0
    while compared < count:
        hard = random_.random() < 0.5
        name = random_.choice(PROBE_ZONES if hard else more)
        if hard:
            second = random_.choice(changes[name]) + random_.randint(-86_400, 86_400)
        else:
            second = random_.randrange(1_420_000_000, 2_080_000_000)
        agrees = compare(random_, name, second)
        if agrees is not None:
            compared += 1
            different += not agrees
    return compared, different


def test_cronsim_agrees_or_is_wrong_by_the_definition() -> None:
    compared, different = compare_many(1, 4000)
    assert different < compared * HARD_DIFFERENCES_MAX


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_cronsim_agrees_over_a_million_triples_or_is_wrong_by_the_definition(part: int) -> None:
    compared, different = compare_many(100 + part, 100_000)
    assert different < compared * HARD_DIFFERENCES_MAX


@pytest.mark.parametrize(
    ("text", "name", "start", "right", "wrong"),
    [
        # the hour is looked for in steps of an hour, which half an hour of change puts out of step: a week is lost
        (
            "59 1 9 * * SUN",
            "Australia/Lord_Howe",
            "2027-04-03T11:00+11:00",
            "2027-04-04T09:01:59+10:30",
            "2027-04-11T09:01:59+10:30",
        ),
        # a day is begun at a midnight that does not exist, and its hour is then taken for granted
        (
            "*/2 */6 15 * *",
            "America/Sao_Paulo",
            "2017-10-14T16:13-03:00",
            "2017-10-15T06:00-02:00",
            "2017-10-15T01:00-02:00",
        ),
        # asked from within the repeated hour, the answer lies in the past
        (
            "41 1,0 * * SUN",
            "America/New_York",
            "2020-11-01T01:33-05:00",
            "2020-11-08T00:41-05:00",
            "2020-11-01T01:41-04:00",
        ),
    ],
)
def test_known_faults_of_cronsim_are_not_ours(text: str, name: str, start: str, right: str, wrong: str) -> None:
    since, ours, other = (round(datetime.fromisoformat(moment).timestamp()) for moment in (start, right, wrong))
    dst = "literal" if len(text.split()) == 6 else "vixie"
    assert parse(text, timezone=name, dst=dst).next_after(since * SECOND) == ours * SECOND
    assert theirs(text, name, since) == other


def test_croniter_agrees_where_no_clock_changes() -> None:
    random_ = random.Random(3)
    compared = 0
    while compared < 1500:
        second = random_.randrange(1_420_000_000, 2_080_000_000)
        near = stepper.NAIVE_EPOCH + timedelta(seconds=second)
        drawn = stepper.draw(random_, near)
        fields = drawn.text.split()
        if len(fields) == 6 or "W" in drawn.text or fields[4].endswith("L") or (fields[2] != "*" and fields[4] != "*"):
            continue
        start = stepper.EPOCH + timedelta(seconds=second)
        expected = round(croniter(drawn.text, start).get_next(datetime).timestamp()) * SECOND
        assert parse(drawn.text).next_after(second * SECOND) == expected, f"{drawn.text} from {second}"
        compared += 1
