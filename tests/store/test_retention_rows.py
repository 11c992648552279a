"""Rows of `tests/cases/behaviour.jsonl` about retention, through the janitor of a whole instance."""

from __future__ import annotations

import pytest

from tests.store.scene import HOUR, SECOND
from tests.store.stepped import Bench
from timeball.engine.engine import Engine
from timeball.model.states import FATES, LIVE, State
from timeball.store.database import sql

MINUTE = 60 * SECOND
DAY = 24 * HOUR
BEGIN = "2030-06-05T12:00:00Z"
BATCH_MAX = 1000
OLD_RUNS = (
    "INSERT INTO timeball_run (job_id, job_version, kind, due_at, state, handler, ready_at, start_by, ended_at) "
    "WITH RECURSIVE n(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
    "SELECT {job_id}, 1, 'scheduled', {until} - i * {every}, '{state}', 'function:note', "
    "{until} - i * {every}, {until}, {ended} FROM n"
)


def history(bench: Bench, job: str, count: int, *, every: int = SECOND, state: str = "succeeded") -> None:
    """Runs of the past, as they would stand in the ledger; the newest ended a moment before the job was made."""
    made = bench.jobs.get(job)
    until = made.cursor_at
    ended = f"{until} - i * {every}" if State(state) in FATES else "NULL"
    bench.administer(OLD_RUNS.format(count=count, job_id=made.id, until=until, every=every, state=state, ended=ended))


def count(bench: Bench, where: str = "1 = 1") -> int:
    row = bench.store.database.read(lambda tx: tx.one(sql(f"SELECT count(*) FROM timeball_run WHERE {where}")))
    assert row is not None
    return row[0]


def leader(bench: Bench, **settings: float) -> Engine:
    one = bench.instance("one", **settings)
    one.lease.step()
    return one


def clean(bench: Bench, one: Engine) -> int:
    """Let the janitor go until it rests; the most that one step removed."""
    most, steps = 0, 0
    while True:
        before = count(bench)
        one.member.step()
        one.lease.step()
        pause = one.janitor.step()
        most = max(most, before - count(bench))
        steps += 1
        if pause > 0:
            return most
        assert steps < 1000


@pytest.mark.parametrize(("days", "per_job", "left"), [(2.0, 1_000_000, 48), (30.0, 20, 20), (1.0, 20, 20)])
def test_ret_001_the_history_of_a_frequent_job_stays_within_both_limits(
    bench: Bench, days: float, per_job: int, left: int
) -> None:
    bench.set_clock(BEGIN)
    one = leader(bench, retention_days=days, retention_runs_per_job=per_job)
    for name in ("frequent", "other"):
        bench.jobs.create(name, bench.define("0 0 1 1 *"))
    history(bench, "frequent", 500, every=HOUR)  # as many an hour as its share of a year
    history(bench, "other", 10, every=HOUR)
    clean(bench, one)
    frequent = bench.jobs.get("frequent")
    assert left - 1 <= count(bench, f"job_id = {frequent.id}") <= left
    oldest = min(run.due_at for run in bench.runs("frequent"))
    assert oldest >= frequent.cursor_at - (left + 1) * HOUR
    assert count(bench, f"job_id <> {frequent.id}") == 10


def test_ret_001_a_year_never_holds_more_than_the_limits(bench: Bench) -> None:
    bench.set_clock(BEGIN)
    one = leader(bench, retention_days=7, retention_runs_per_job=100, horizon_seconds=3600)
    bench.jobs.create("job", bench.define("@every 6h", misfire="run_all", catchup_max=100, overlap="allow"))
    for _ in range(52):
        bench.move_clock(7 * DAY)
        bench.round(one)
        clean(bench, one)
        assert count(bench, "state = 'succeeded'") <= 7 * 4 + 28
    bench.move_clock(7 * DAY + HOUR)
    clean(bench, one)
    assert len(bench.calls) > 52 * 20
    assert count(bench, "state = 'succeeded'") == 0


def test_ret_001_many_successes_do_not_push_out_the_failures(bench: Bench) -> None:
    bench.set_clock(BEGIN)
    one = leader(bench, retention_runs_per_job=20)
    bench.jobs.create("job", bench.define("0 0 1 1 *"))
    history(bench, "job", 3, every=9 * HOUR + SECOND, state="failed")
    history(bench, "job", 100, every=HOUR // 4)
    clean(bench, one)
    assert count(bench, "state = 'failed'") == 3


def test_ret_003_a_deleted_job_with_many_runs_is_emptied_by_the_janitor_in_batches(bench: Bench) -> None:
    bench.set_clock(BEGIN)
    one = leader(bench)
    bench.jobs.create("big", bench.define("0 0 1 1 *"))
    bench.jobs.create("small", bench.define("0 0 1 1 *"))
    history(bench, "big", 50_000)
    history(bench, "small", 100)
    big = bench.jobs.get("big").id
    bench.jobs.delete("big")
    assert [job.name for job in bench.jobs.list()] == ["small"]
    assert count(bench, f"job_id = {big}") == 50_000  # the request removed none of them
    assert 0 < clean(bench, one) <= BATCH_MAX  # by number
    assert count(bench, f"job_id = {big}") < 50_000
    bench.move_clock(31 * DAY)
    assert 0 < clean(bench, one) <= BATCH_MAX  # by age
    assert count(bench, f"job_id = {big}") == 0


@pytest.mark.parametrize("state", sorted(FATES))
def test_ret_004_retention_covers_every_state_in_which_a_run_can_end(bench: Bench, state: State) -> None:
    bench.set_clock(BEGIN)
    one = leader(bench, retention_days=1, retention_runs_per_job=1_000_000)
    bench.jobs.create("job", bench.define("0 0 1 1 *"))
    history(bench, "job", 1000, state=state)
    clean(bench, one)
    assert count(bench) == 1000
    bench.move_clock(DAY + MINUTE)
    clean(bench, one)
    assert count(bench) == 0


@pytest.mark.parametrize("state", sorted(FATES))
def test_ret_004_retention_by_number_covers_every_state_too(bench: Bench, state: State) -> None:
    bench.set_clock(BEGIN)
    one = leader(bench, retention_runs_per_job=5)
    bench.jobs.create("job", bench.define("0 0 1 1 *"))
    history(bench, "job", 50, every=HOUR, state=state)
    clean(bench, one)
    assert count(bench) == 5


@pytest.mark.parametrize("state", sorted(LIVE))
def test_ret_004_what_has_not_ended_is_kept_however_old_it_is(bench: Bench, state: State) -> None:
    bench.set_clock(BEGIN)
    one = leader(bench, retention_days=1, retention_runs_per_job=1)
    bench.jobs.create("job", bench.define("0 0 1 1 *"))
    history(bench, "job", 5, every=3 * DAY, state=state)
    clean(bench, one)
    assert count(bench) == 5


def test_ret_004_cancelled_runs_go_like_others(bench: Bench) -> None:
    bench.set_clock(BEGIN)
    one = leader(bench, retention_days=1)
    bench.jobs.create("job", bench.define("none"))
    for _ in range(100):
        bench.jobs.trigger("job")
    bench.jobs.stop("job")
    assert {run.state for run in bench.runs("job")} == {"cancelled"}
    clean(bench, one)
    assert count(bench) == 100
    bench.move_clock(DAY + MINUTE)
    clean(bench, one)
    assert count(bench) == 0
