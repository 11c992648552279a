"""Rows of `tests/cases/behaviour.jsonl` about what stands in the database, as steps of whole instances."""

from __future__ import annotations

from typing import Any

import pytest

from tests.store.scene import SECOND
from tests.store.stepped import Bench, eventually
from timeball.app.wiring import make_registry
from timeball.clock import parse_instant
from timeball.engine.engine import Engine
from timeball.engine.loop import Loop
from timeball.events.bus import Bus
from timeball.events.facts import JobBroken
from timeball.executors.registry import FunctionTable
from timeball.service.audit import audit
from timeball.settings import Settings
from timeball.store.database import sql
from timeball.store.runs import RunFilter, StoredRun

MINUTE = 60 * SECOND
DAY = 86_400 * SECOND
BEGIN = "2030-06-05T12:00:30Z"


def older(bench: Bench) -> Engine:
    """An instance of a version of the program that does not have the function `fresh` yet."""
    functions = FunctionTable()
    functions.register("note", bench._note)
    settings = Settings(database_url=bench.url, name="older")
    engine = Engine(bench.open(), settings, make_registry(settings, functions), Bus())
    bench._engines.append(engine)
    engine.member.step()
    return engine


def corrupt(bench: Bench, table: str, key: str, job_id: int, text: str) -> None:
    with bench.store.database.transaction() as tx:
        changed = tx.count(sql(f"UPDATE {table} SET definition = :text WHERE {key} = :id"), text=text, id=job_id)
    assert changed == 1


def fire(bench: Bench, tick: int, *engines: Engine) -> None:
    bench.set_clock(tick - SECOND)
    bench.round(*engines)
    bench.set_clock(tick + SECOND // 2)
    bench.round(*engines)


@pytest.mark.parametrize("damage", ["schedule", "field"])
def test_db_010_one_broken_definition_is_set_aside_and_shown_and_the_others_run_on_time(
    bench: Bench, damage: str
) -> None:
    tick = parse_instant("2030-06-05T12:01:00Z")
    bench.set_clock(BEGIN)
    for number in range(20):
        bench.jobs.create(f"job-{number:02}", bench.define("* * * * *"))
    broken = bench.jobs.get("job-07")
    text = broken.definition.to_json()
    spoilt = {"schedule": text.replace("* * * * *", "61 * * * *"), "field": text.replace('"overlap"', '"overlop"')}
    corrupt(bench, "timeball_job", "id", broken.id, spoilt[damage])
    one = bench.instance("one")
    facts: list[Any] = []
    one._bus.subscribe(facts.append)
    bench.round(one)
    fire(bench, tick, one)
    assert sorted(bench.calls) == [(f"job-{number:02}", tick) for number in range(20) if number != 7]
    assert [fact.job for fact in facts if isinstance(fact, JobBroken)] == ["job-07"]
    shown = {job.name: (job.state.value, job.problem) for job in bench.jobs.list()}
    state, problem = shown.pop("job-07")
    assert state == "broken"
    assert problem
    assert set(shown.values()) == {("active", None)}
    bench.jobs.edit("job-07", bench.define("* * * * *"))
    fire(bench, tick + MINUTE, one)
    assert ("job-07", tick + MINUTE) in bench.calls


def test_db_010_a_planned_run_whose_definition_cannot_be_read_does_not_hold_up_the_others(bench: Bench) -> None:
    tick = parse_instant("2030-06-05T12:01:00Z")
    bench.set_clock(BEGIN)
    for number in range(20):
        bench.jobs.create(f"job-{number:02}", bench.define("* * * * *"))
    leader, owner = bench.instance("leader", execute="none"), bench.instance("owner")
    leader.lease.step()
    leader.planner.step()
    broken = bench.jobs.get("job-07")
    text = broken.definition.to_json().replace('"overlap"', '"overlop"')
    corrupt(bench, "timeball_job_version", "job_id", broken.id, text)
    claiming = Loop("claim", owner.claimer.step, Bus())
    for at in (tick - SECOND, tick + SECOND // 2, tick + 2 * SECOND, tick + 4 * SECOND):
        bench.set_clock(at)
        owner.member.step()
        claiming._pass()
        owner.starter.step()
        owner.runner.step()
        eventually(lambda: not owner.runner.load())
    assert sorted(bench.calls) == [(f"job-{number:02}", tick) for number in range(20) if number != 7]


def test_db_010_a_run_that_was_taken_with_an_unreadable_definition_fails_and_says_so(bench: Bench) -> None:
    bench.set_clock(BEGIN)
    one = bench.instance("one")
    job = bench.jobs.create("job", bench.define("none", overlap="allow"))
    bench.jobs.trigger("job")
    corrupt(bench, "timeball_job_version", "job_id", job.id, job.definition.to_json().replace('"overlap"', '"overlop"'))
    one.claimer._backlog = True
    one.claimer.step()
    eventually(lambda: not one.runner.load())
    one.settler.step()
    (run,) = bench.runs("job")
    assert run.state == "failed"
    assert "unreadable definition" in (run.error or "")


@pytest.mark.parametrize("leading", ["older", "newer"])
def test_db_011_runs_of_a_job_that_an_older_instance_does_not_know_wait_for_one_that_does(
    bench: Bench, leading: str
) -> None:
    begin = parse_instant("2030-06-05T12:01:00Z")
    bench.set_clock(BEGIN)
    bench.functions.register("fresh", bench._note)
    old, new = older(bench), bench.instance("newer")
    (old if leading == "older" else new).lease.step()
    bench.jobs.create("known", bench.define("* * * * *"))
    bench.jobs.create("fresh", bench.define("* * * * *", "fresh"))
    bench.round(old, new)
    ticks = [begin + minute * MINUTE for minute in range(10)]
    for tick in ticks:
        bench.set_clock(tick - 20 * SECOND)  # it goes on by itself, and a slow host takes its time
        bench.round(old, new)
        bench.set_clock(tick + SECOND // 2)
        bench.round(old)  # it has the first word, and leaves alone what it does not know
        assert ("fresh", tick) not in bench.calls
        bench.round(new)
    assert sorted(bench.calls) == sorted((name, tick) for name in ("known", "fresh") for tick in ticks)
    fresh = [run for run in bench.runs("fresh") if run.due_at <= ticks[-1]]
    assert {(run.state, run.instance) for run in fresh} == {("succeeded", "newer")}
    assert any(run.instance == "older" for run in bench.runs("known"))
    assert audit(bench.store, "default").violations == []


def without_its_function_for_15_days(bench: Bench) -> list[tuple[str, int]]:
    noon = parse_instant("2030-06-05T12:01:00Z")
    bench.set_clock(BEGIN)
    bench.functions.register("fresh", bench._note)
    bench.jobs.create("fresh", bench.define("1 12 * * *", "fresh"))
    old = older(bench)
    bench.round(old)
    for day in range(15):
        fire(bench, noon + day * DAY, old)
        bench.set_clock(noon + day * DAY + 60 * MINUTE)
        bench.round(old)
        while old.janitor.step() == 0:
            pass
    assert bench.calls == []
    job = bench.jobs.get("fresh")
    assert (job.state.value, job.version, job.problem) == ("active", 1, None)
    ticks = [noon + day * DAY for day in range(15)]
    waiting = {run.due_at: run.state for run in bench.runs("fresh")}
    assert sorted(waiting) == ticks
    assert set(waiting.values()) <= {"planned", "missed"}
    new = bench.instance("newer")
    for second in range(-2, 40):
        bench.set_clock(noon + 15 * DAY + second * SECOND + SECOND // 2)
        bench.round(old, new)
    assert ("fresh", noon + 15 * DAY) in bench.calls
    assert len(bench.calls) == len(set(bench.calls))
    return bench.calls


def test_db_012_nothing_of_a_job_is_removed_because_no_instance_has_its_function(bench: Bench) -> None:
    calls = without_its_function_for_15_days(bench)
    assert {run.state for run in bench.runs("fresh") if (run.job, run.due_at) in calls} == {"succeeded"}
    assert len(bench.runs("fresh")) >= 16
    assert audit(bench.store, "default").violations == []


def test_db_012_what_nobody_could_run_for_days_runs_once_when_somebody_can(bench: Bench) -> None:
    noon = parse_instant("2030-06-05T12:01:00Z")
    calls = without_its_function_for_15_days(bench)
    assert [due for _, due in calls] == [noon + 14 * DAY, noon + 15 * DAY]


def test_a_job_of_a_newer_version_is_left_to_an_instance_that_knows_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick = parse_instant("2030-06-05T12:01:00Z")
    bench.set_clock(BEGIN)
    old, new = older(bench), bench.instance("newer")
    monkeypatch.setattr(new.member, "_version", "9.0")
    new.member._instance = new.member._fresh()
    new.member.joined = False
    bench.round(old, new)
    bench.jobs.create("known", bench.define("* * * * *"))
    fresh = bench.jobs.create("fresh", bench.define("* * * * *"))
    text = fresh.definition.to_json().replace('{"args"', '{"aftertaste":"sweet","args"')
    for table, key in (("timeball_job", "id"), ("timeball_job_version", "job_id")):
        corrupt(bench, table, key, fresh.id, text)
    planning = Loop("plan", old.planner.step, Bus())
    planning._pass()
    assert planning.failing  # so it steps aside, and does not set the job aside for all
    assert [run.due_at for run in bench.runs("known")][-1] == tick
    state = bench.store.database.read(lambda tx: tx.one(sql("SELECT state FROM timeball_job WHERE name = 'fresh'")))
    assert state is not None
    assert state[0] == "active"


def test_ticks_and_runs_of_a_newer_version_get_their_fate_from_an_instance_that_knows_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.set_clock(BEGIN)
    one = bench.instance("one")
    bench.jobs.create("job", bench.define("* * * * *", "long", on_lost="rerun"))
    bench.round(one)
    fire(bench, parse_instant("2030-06-05T12:01:00Z"), one)
    assert bench.begun.acquire(timeout=10)
    job = bench.jobs.get("job")
    text = job.definition.to_json().replace('{"args"', '{"aftertaste":"sweet","args"')
    corrupt(bench, "timeball_job_version", "job_id", job.id, text)
    two = bench.instance("two")
    monkeypatch.setattr(two.member, "others_differ", lambda: True)
    monkeypatch.setattr(two.reaper, "_others_differ", lambda: True)
    reaping = Loop("reap", two.reaper.step, Bus())
    for _ in range(40):
        bench.move_clock(5 * SECOND)
        two.member.step()
        two.lease.step()
        two.planner.step()
        reaping._pass()
    assert reaping.failing
    assert {run.state for run in bench.runs("job")} <= {"running", "planned", "claimed"}
    monkeypatch.setattr(two.reaper, "_others_differ", lambda: False)
    reaping._pass()
    assert {"lost", "missed"} <= {run.state for run in bench.runs("job")}


def test_a_stop_keeps_what_this_version_cannot_read(bench: Bench) -> None:
    bench.set_clock(BEGIN)
    job = bench.jobs.create("fresh", bench.define("* * * * *"))
    text = job.definition.to_json().replace('{"args"', '{"aftertaste":"sweet","args"')
    corrupt(bench, "timeball_job", "id", job.id, text)
    bench.jobs.stop("fresh")
    for table, key in (("timeball_job", "id"), ("timeball_job_version", "job_id")):
        rows = bench.store.database.read(
            lambda tx, table=table, key=key: tx.all(
                sql(f"SELECT definition FROM {table} WHERE {key} = :id ORDER BY version DESC"), id=job.id
            )
        )
        assert rows[0][0] == text


def all_runs(bench: Bench) -> list[StoredRun]:
    return bench.store.runs.list("default", RunFilter(limit=1000))


def deadlocks(bench: Bench) -> int:
    """How many the server has had to break; SQLite has one writer and none."""
    if bench.store.database.dialect.name == "sqlite":
        return 0
    count = sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    row = bench.store.database.read(lambda tx: tx.one(count))
    assert row is not None
    return row[0]


def test_db_008_four_instances_that_claim_end_and_retry_at_once_never_lock_each_other_for_good(bench: Bench) -> None:
    def fail_once(run: Any) -> None:
        bench.calls.append((run.job, run.attempt))
        if run.attempt == 1:
            raise RuntimeError("once")

    bench.functions.register("once", fail_once)
    names = [f"job-{number:02}" for number in range(30)]
    for name in names:
        policies = {"attempts_max": 2, "backoff_seconds": 0.05, "overlap": "queue", "queue_max": 100}
        bench.jobs.create(name, bench.define("none", "once", **policies))
    for name in names * 5:
        bench.jobs.trigger(name)
    engines = [bench.instance(name, poll_seconds=0.05, claim_batch_max=7, settle_batch_max=5) for name in "abcd"]
    for engine in engines:
        engine.start()
    try:
        for number in range(40):  # changes lock the same jobs, and their runs, meanwhile
            bench.jobs.edit(names[number % 30], bench.define("none", "once", priority=number, attempts_max=2))
        eventually(lambda: {run.state for run in all_runs(bench)} <= {"succeeded", "failed"})
    finally:
        for engine in engines:
            engine.stop(5)
    runs = all_runs(bench)
    assert len(runs) == 150
    assert len(bench.calls) == sum(run.attempt for run in runs)
    assert deadlocks(bench) == 0
