"""What runs say of how far they are: kept by the last word, named by the fence, seen from any instance."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.store.scene import Scene
from tests.store.stepped import Bench, eventually
from timeball.clock import monotonic_us
from timeball.errors import StoreError
from timeball.model.run import Progress
from timeball.store import Store
from timeball.store.claims import Started
from timeball.store.database import sql
from timeball.store.progresses import ProgressRow


@pytest.fixture
def scene(store: Store) -> Scene:
    return Scene(store)


def running(scene: Scene, count: int = 1) -> list[Started]:
    me = scene.join("a")
    scene.plan(scene.lead(me), scene.job(overlap="allow"), [scene.now() - n for n in range(count)])
    return sorted(scene.start(me, scene.claim(me)).started)


def row(started: Started, fraction: float, text: str = "", *, fence: int = 0) -> ProgressRow:
    return ProgressRow(started.run_id, fence or started.fence, fraction, text, 7)


def shown(scene: Scene, started: Started) -> tuple[float | None, str | None, int | None]:
    run = scene.store.runs.get("default", started.run_id)
    return run.progress, run.progress_text, run.progress_at


def test_the_last_word_of_each_run_is_kept(scene: Scene) -> None:
    one, two = running(scene, 2)
    assert shown(scene, one) == (None, None, None)
    assert scene.store.progresses.write([row(two, 0.25, "two"), row(one, 0.1, "ä \U0001f600")]) == 2
    assert scene.store.progresses.write([row(one, 0.5, 'half "way"')]) == 1
    assert shown(scene, one) == (0.5, 'half "way"', 7)
    assert shown(scene, two) == (0.25, "two", 7)


def test_the_word_of_another_attempt_is_not_kept(scene: Scene) -> None:
    (started,) = running(scene)
    assert scene.store.progresses.write([row(started, 0.9, fence=started.fence + 1)]) == 0
    assert scene.store.progresses.write([row(started, 0.1)]) == 1
    scene.settle(started, "failed", retry_at=scene.now())
    assert shown(scene, started) == (None, None, None)  # planned again: nothing is done of the new attempt
    assert scene.store.progresses.write([row(started, 0.9)]) == 0


def test_retention_takes_it_along(scene: Scene) -> None:
    me = scene.join("a")
    term = scene.lead(me)
    scene.plan(term, scene.job(), [scene.now()])
    (started,) = scene.start(me, scene.claim(me)).started
    scene.store.progresses.write([row(started, 0.5)])
    scene.settle(started)
    scene.execute("UPDATE timeball_run SET due_at = 5, ended_at = 5")
    scene.store.purges.runs_by_age(term, before=scene.now(), after_id=0)
    rows = scene.store.database.read(lambda tx: tx.all(sql("SELECT run_id FROM timeball_progress")))
    assert list(rows) == []


def test_progress_is_seen_while_it_runs_and_after_it(bench: Bench) -> None:
    go_on = threading.Event()

    def work(run: Any) -> None:
        run.progress(0.4, "line one\nline \x00two \ud800" + "x" * 500)
        bench.begun.release()
        assert go_on.wait(60)
        run.progress(7)

    bench.functions.register("work", work)
    one = bench.instance("one")
    one.lease.step()
    bench.jobs.create("job", bench.define("none", "work"))
    bench.jobs.trigger("job")
    one.claimer.step()
    one.starter.step()
    assert bench.begun.acquire(timeout=60)
    assert one.progress.step() == 1.0
    seen = bench.runs("job")[0]
    assert seen.progress == 0.4
    assert str(seen.progress_text).startswith("line one line \\x00two \\ud800xxx")
    assert len(str(seen.progress_text)) == 200
    assert abs((seen.progress_at or 0) - bench.now()) < 60_000_000
    go_on.set()
    eventually(lambda: one.runner.load() == 0)
    one.settler.step()
    one.progress.step()
    assert (bench.runs("job")[0].state, bench.runs("job")[0].progress) == ("succeeded", 1.0)


def test_what_cannot_be_written_waits_within_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench.instance("one")
    said: list[Progress] = []
    monkeypatch.setattr(one.progress._registry, "progress", lambda: [said.pop() for _ in range(len(said))])
    said += [Progress(number, 1, 0.5, "", monotonic_us()) for number in range(12_000)]
    with bench.refusing(), pytest.raises(StoreError):
        one.progress.step()
    assert len(one.progress._kept) == 10_000
    passes = 0
    while one.progress.step() == 0:
        passes += 1
    assert (passes, one.progress._kept) == (9, {})
