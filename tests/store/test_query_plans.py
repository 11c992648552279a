"""Hot statements never walk through all runs, though the statistics say that no run is planned or running."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event

from tests.store.scene import ANY, SECOND, Scene
from timeball.store import Store, open_store
from timeball.store.migrate import upgrade_schema
from timeball.store.reaps import LostRun, MisfireVerdict

FINISHED = 30_000


class Plans:
    """Explains every statement that touches runs, on the connection that is about to execute it."""

    def __init__(self, store: Store) -> None:
        self.seen: list[tuple[str, str]] = []
        database = store.database
        for engine in (database._work, database._coordination):
            event.listen(engine, "before_cursor_execute", self._explain)

    def _explain(self, _c: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "timeball_run" not in statement or statement.startswith("EXPLAIN"):
            return
        cursor.execute("EXPLAIN " + statement, parameters)
        self.seen.append((statement, "\n".join(row[0] for row in cursor.fetchall())))


@pytest.fixture
def scene(postgres_url: str) -> Iterator[Scene]:
    store = open_store(postgres_url)
    upgrade_schema(store.database, "default")
    made = Scene(store)
    for name in ("allow", "skip"):
        made.job(name, overlap=name)
        made.execute(
            "INSERT INTO timeball_run (job_id, job_version, kind, due_at, state, handler, ready_at, start_by, "
            "started_at, ended_at, attempt, fence) SELECT (SELECT id FROM timeball_job WHERE name = :name), 1, "
            "'scheduled', 1000 + n, 'succeeded', 'function:f', 1000 + n, 2000 + n, 1000 + n, 1001 + n, 1, n "
            "FROM generate_series(1, :many) AS n",
            name=name,
            many=FINISHED,
        )
    made.execute("ANALYZE")
    yield made
    store.close()


def everything(scene: Scene) -> None:
    a, b = scene.join("a"), scene.join("b")
    term = scene.lead(b)
    store = scene.store
    now = scene.now()
    for name in ("allow", "skip"):
        job = store.jobs.get("default", name)
        scene.plan(term, job, [now - n * SECOND for n in range(1, 40)], start_by=now + 60 * SECOND)
    started = [*scene.start(a, scene.claim(a, limit=50)).started, *store.claims.take(a, ANY, limit=10)]
    assert started
    store.starts.mine(a)
    for item in started[:5]:
        assert scene.settle(item)
    store.runs.wishes_to_cancel([item.run_id for item in started])
    store.claims.give_back(a, [claim.run_id for claim in scene.claim(a, limit=5)])
    scene.expire(a)
    store.reaps.expire_members(term)
    orphans = store.reaps.orphans(term)
    assert orphans
    store.reaps.lose(term, [LostRun(orphan=orphan, rerun=True, reason="gone") for orphan in orphans])
    store.reaps.resolve_misfires(term, lambda _: MisfireVerdict(missed=(), kept=(), reason=""))


def test_no_hot_statement_walks_through_all_runs(scene: Scene) -> None:
    plans = Plans(scene.store)
    everything(scene)
    bad = [(statement, plan) for statement, plan in plans.seen if "Seq Scan on timeball_run" in plan]
    assert len({statement for statement, _ in plans.seen}) >= 10
    assert not bad, "\n\n".join(f"{statement}\n{plan}" for statement, plan in bad)


def test_the_check_itself_can_fail(scene: Scene) -> None:
    plans = Plans(scene.store)
    walk: Callable[[], int] = lambda: scene.execute("UPDATE timeball_run SET late = late WHERE fence + 0 = -1")  # noqa: E731
    walk()
    assert "Seq Scan on timeball_run" in plans.seen[-1][1]
