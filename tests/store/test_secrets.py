"""Secrets in whole instances: refused or noted when a job is saved, put in when it runs, nowhere in the database."""

from __future__ import annotations

from typing import Any

import pytest

from tests.store.stepped import Bench, eventually
from timeball.errors import SecretError
from timeball.model.job import Definition
from timeball.store.database import sql
from timeball.store.schema import metadata

TOKEN = "tok-9f8e7d6c5b4a"


def test_an_unknown_secret_is_refused_when_the_job_is_saved(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMEBALL_SECRET_TOKEN", TOKEN)
    definition = bench.define("none", args={"token": "${secret:TOKNE}"})
    with pytest.raises(SecretError, match="no secret 'TOKNE' here"):
        bench.jobs.create("job", definition)
    assert bench.jobs.list() == []
    made = bench.jobs.create("job", bench.define("none"))
    with pytest.raises(SecretError, match="TOKNE"):
        bench.jobs.edit("job", definition)
    with pytest.raises(SecretError, match="TOKNE"):
        bench.jobs.trigger("job", args={"token": "${secret:TOKNE}"})
    assert bench.jobs.get("job").version == made.version


def test_a_process_without_secrets_saves_the_job_and_says_so(bench: Bench) -> None:
    definition = Definition(schedule="none", executor="function", target={"name": "any"}, args={"t": "${secret:TOKEN}"})
    bench.functions.register("any", lambda t: t)
    bench.jobs.create("job", definition)
    (note,) = bench.jobs.notes
    assert "secret 'TOKEN' could not be checked" in note


def test_the_value_is_nowhere_in_the_database(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMEBALL_SECRET_TOKEN", TOKEN)
    seen: list[str] = []

    def use(run: Any, token: str) -> str:
        seen.append(token)
        run.log(f"with {token}")
        if run.attempt == 1:
            raise ValueError(f"{token} was refused")
        return f"took {token}"

    bench.functions.register("use", use)
    instance = bench.instance("a")
    definition = bench.define("none", "use", args={"token": "${secret:TOKEN}"}, attempts_max=2, backoff_seconds=0)
    bench.jobs.create("job", definition)
    bench.jobs.trigger("job")

    def succeeded() -> bool:
        bench.round(instance)
        return bench.runs("job")[0].state == "succeeded"

    eventually(succeeded)
    (run,) = bench.runs("job")
    assert seen == [TOKEN, TOKEN]
    assert run.result == '"took ***"'
    assert bench.store.runs.attempts(run.id)[0].error == "ValueError: *** was refused"
    with bench.store.database.transaction() as tx:
        stored = {table: repr(list(tx.all(sql(f"SELECT * FROM {table}")))) for table in metadata.tables}
    assert [table for table, rows in stored.items() if TOKEN in rows] == []
    assert "${secret:TOKEN}" in stored["timeball_job"]
    assert "with ***" in stored["timeball_output"]
