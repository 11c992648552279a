"""Outcomes that a database cannot take as they are: they are written all the same, and hold up no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.store.scene import SECOND, Scene
from timeball.app.wiring import connect
from timeball.engine.settler import Settler
from timeball.model.run import Kind, Outcome, Output, Work
from timeball.model.states import State
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.runs import RunFilter


def settle_all(store: Store, url: str, change: Callable[[Outcome], Outcome]) -> list[int]:
    """Three runs end; the second one's outcome is changed. Returns their ids, in order."""
    scene = Scene(store)
    me = scene.join("a")
    job = scene.job(overlap="allow")
    now = scene.now()
    scene.plan(scene.lead(me), job, [now - n * SECOND for n in (3, 2, 1)])
    started = sorted(scene.start(me, scene.claim(me)).started)
    engine = connect(Settings(database_url=url)).engine()
    engine.member.step()
    settler: Settler = engine.settler
    for number, run in enumerate(started):
        work = Work(
            run_id=run.run_id,
            job_id=job.id,
            job=job.name,
            namespace="default",
            kind=Kind.SCHEDULED,
            due_at=run.due_at,
            attempt=run.attempt,
            fence=run.fence,
            executor="function",
            target={},
            args={},
        )
        outcome = Outcome(
            run_id=run.run_id, attempt=run.attempt, fence=run.fence, state=State.FAILED, begun_at=1, ended_at=2
        )
        settler.put(work, job.definition, change(outcome) if number == 1 else outcome)
    settler.step()
    assert len(settler) == 0
    return [run.run_id for run in started]


@pytest.mark.parametrize("text", ["half \ud800 of a pair", "a NUL \x00 here"])
def test_text_that_no_database_takes_is_made_visible(store: Store, database_url: str, text: str) -> None:
    ids = settle_all(store, database_url, lambda o: o._replace(error=text, result=f'"{text}"'.replace("\x00", "")))
    assert {store.runs.states(ids)[run_id] for run_id in ids} == {"failed"}
    stored = {run.id: run.error for run in store.runs.list("default", RunFilter(limit=10))}
    assert stored[ids[1]] == text.replace("\ud800", "\\ud800").replace("\x00", "\\x00")


def test_an_outcome_that_is_refused_is_stored_bare_and_the_others_whole(store: Store, database_url: str) -> None:
    long = Output(stream="a stream with a name that is far too long", text="x", bytes_total=1)
    ids = settle_all(store, database_url, lambda o: o._replace(outputs=(long,)))
    assert {store.runs.states(ids)[run_id] for run_id in ids} == {"failed"}
    error = store.runs.get("default", ids[1]).error
    if store.database.dialect.name == "postgresql":
        assert error is not None
        assert "could not be stored" in error
    assert [store.runs.get("default", run_id).error for run_id in (ids[0], ids[2])] == [None, None]
