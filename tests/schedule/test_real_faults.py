"""Each row of `cases/schedules.jsonl`: a fault that real schedulers had, with the right answer."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from timeball.schedule import parse

ROWS = [json.loads(line) for line in (Path(__file__).parent / "cases" / "schedules.jsonl").read_text().splitlines()]
DIALECTS = {"unix": "standard", "sec6": "standard", "quartz": "quartz"}
CASES = [
    pytest.param(row["verify"], rule, id=f"{row['id']}-{rule}")
    for row in ROWS
    for rule in ("vixie", "literal")
    if rule in row["verify"]
]


def instant_of(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return round(moment.timestamp()) * 1_000_000


@pytest.mark.parametrize(("case", "rule"), CASES)
def test_a_fault_of_real_schedulers_is_not_repeated(case: dict[str, Any], rule: str) -> None:
    schedule = parse(case["expr"], timezone=case["tz"], dialect=DIALECTS[case["dialect"]], dst=rule)
    step = schedule.next_after if case["direction"] == "next" else schedule.previous_before
    ticks: list[int] = []
    tick = step(instant_of(case["start"]))
    while tick is not None and len(ticks) < case["n"]:
        ticks.append(tick)
        tick = step(tick)
    assert ticks == [instant_of(text) for text in case[rule]][: case["n"]]


def test_all_rows_are_there() -> None:
    assert len(ROWS) == 55
    assert len(CASES) == 110
