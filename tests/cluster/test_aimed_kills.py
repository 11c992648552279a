"""Kill -9 aimed at whoever has the next tick in hand: no tick is lost, none runs twice. Gaps: `./dev bench kills`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.aimed_kills import kill_again_and_again


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("owner", "kills"),
    [
        (True, 3),
        pytest.param(True, 100, marks=pytest.mark.full),
        pytest.param(False, 100, marks=pytest.mark.full),
    ],
)
def test_no_kill_costs_or_doubles_a_tick(postgres_url: str, tmp_path: Path, owner: bool, kills: int) -> None:
    done = kill_again_and_again(postgres_url, tmp_path, kills=kills, owner=owner)
    assert done.kills == kills
    assert done.report.violations == []
    assert (done.report.duplicates, done.report.missed, done.report.without_fate) == (0, 0, 0)
    assert done.report.ticks >= kills
    print(f"owner={owner} kills={kills} gaps {[round(gap / 1e6, 2) for gap in done.gaps_us[:8]]}")
