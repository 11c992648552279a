"""The schema under a running instance becomes another version's: it stands still, says why, and goes on afterwards."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from tests.store.scene import SECOND
from tests.store.stepped import Bench, eventually
from timeball.api.health import make_app
from timeball.clock import parse_instant
from timeball.engine.engine import Engine
from timeball.errors import SchemaMismatch
from timeball.events.facts import SchemaAccepted, SchemaRefused
from timeball.observe.logs import log_facts
from timeball.store.database import sql
from timeball.store.revision import HEAD

BEGIN = "2030-06-05T12:00:30Z"
TICK = parse_instant("2030-06-05T12:01:00Z")
MINUTE = 60 * SECOND
NEWER = ("UPDATE timeball_schema SET version_num = '9999'", f"UPDATE timeball_schema SET version_num = '{HEAD}'")
DAMAGES = {
    "newer": (*NEWER, "schema 9999, which was made by a newer version"),
    "older": (
        "UPDATE timeball_schema SET version_num = '0001'",
        f"UPDATE timeball_schema SET version_num = '{HEAD}'",
        "has schema 0001; this version works on",
    ),
    "no row": (
        "DELETE FROM timeball_schema",
        f"INSERT INTO timeball_schema (version_num) VALUES ('{HEAD}')",
        "no record of the version",
    ),
    "no table": (
        "ALTER TABLE timeball_schema RENAME TO aside",
        "ALTER TABLE aside RENAME TO timeball_schema",
        "no record of the version",
    ),
    "another table": (
        "ALTER TABLE timeball_instance RENAME TO aside",
        "ALTER TABLE aside RENAME TO timeball_instance",
        "timeball_instance",
    ),
}


def fire(bench: Bench, tick: int, *engines: Engine) -> None:
    for at in (tick - SECOND, tick + SECOND // 2):
        bench.set_clock(at)
        bench.round(*engines)


def facts_of(engine: Engine) -> list[Any]:
    facts: list[Any] = []
    engine._bus.subscribe(facts.append)
    return facts


def ledger(bench: Bench) -> list[tuple[Any, ...]]:
    return [
        tuple(row) for row in bench.store.database.read(lambda tx: tx.all(sql("SELECT id, state FROM timeball_run")))
    ]


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_instance_that_meets_a_schema_it_cannot_work_on_stands_still_says_so_once_and_goes_on_after(
    bench: Bench, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    harm, mend, words = DAMAGES[damage]
    bench.set_clock(BEGIN)
    one = bench.instance("one")
    bench.jobs.create("job", bench.define("* * * * *"))
    bench.round(one)
    fire(bench, TICK, one)
    assert bench.calls == [("job", TICK)]
    facts = facts_of(one)
    one._bus.subscribe(log_facts)
    bench.jobs.trigger("job")
    bench.administer(harm)
    before = ledger(bench)
    with caplog.at_level(logging.INFO, "timeball"):
        for minute in (1, 2):
            fire(bench, TICK + minute * MINUTE, one)
    assert (bench.calls, ledger(bench)) == ([("job", TICK)], before)
    (problem,) = one.health().problems
    assert words in problem
    assert one.lease.term() is None
    (told,) = [fact for fact in facts if isinstance(fact, SchemaRefused)]
    assert words in told.reason
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1
    bench.administer(mend)
    for minute in (3, 4):
        fire(bench, TICK + minute * MINUTE, one)
    assert one.health().problems == ()
    assert ("job", TICK + 4 * MINUTE) in bench.calls
    assert len([fact for fact in facts if isinstance(fact, SchemaAccepted)]) == 1


def test_what_ended_under_a_schema_of_another_version_is_written_when_it_is_right_again(bench: Bench) -> None:
    bench.set_clock(BEGIN)
    one = bench.instance("one")
    bench.jobs.create("job", bench.define("none", "long"))
    bench.jobs.trigger("job")
    bench.round(one)
    assert bench.begun.acquire(timeout=10)
    bench.administer(NEWER[0])
    one.member.step()
    bench.release.set()
    eventually(lambda: len(one.settler) == 1)
    one.settler.step()
    assert [run.state for run in bench.runs("job")] == ["running"]
    bench.administer(NEWER[1])
    one.member.step()
    one.settler.step()
    assert [run.state for run in bench.runs("job")] == ["succeeded"]


def test_no_verb_of_an_instances_store_writes_into_a_schema_of_another_version(bench: Bench) -> None:
    one = bench.instance("one")
    one.lease.step()
    term = one.lease.term()
    assert term is not None
    bench.administer(NEWER[0])
    one.member.step()
    one.stop(0)  # not even an orderly end
    assert bench.store.leases.read("default").holder == one.member.id
    assert [instance.state for instance in bench.store.members.all("default")] == ["active"]
    with pytest.raises(SchemaMismatch, match="9999"):
        one._store.leases.release(term, actor="test")


def test_an_instance_does_not_start_on_a_schema_that_changed_after_it_was_checked(bench: Bench) -> None:
    one = bench.instance("one")
    bench.administer(NEWER[0])
    with pytest.raises(SchemaMismatch, match="9999"):
        one.start()


def test_a_running_instance_is_not_ready_with_the_reason_in_words_until_the_schema_is_right_again(bench: Bench) -> None:
    one = bench.instance("one", heartbeat_seconds=0.1)
    one.start()
    try:
        eventually(lambda: readiness(one)[0] == 200)
        bench.administer(NEWER[0])
        eventually(lambda: readiness(one)[0] == 503)
        eventually(lambda: any("made by a newer version" in words for words in readiness(one)[1]["problems"]))
        bench.administer(NEWER[1])
        eventually(lambda: readiness(one)[0] == 200)
    finally:
        one.stop(0)


def readiness(engine: Engine) -> tuple[int, dict[str, Any]]:
    """What /readyz answers: status and body."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/readyz", "query_string": b"", "headers": []}
    asyncio.run(make_app(engine.health)(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])
