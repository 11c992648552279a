"""Hot statements never walk through all runs, though the statistics say that no run is planned or running."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from tests.store.scene import ANY, SECOND, Scene
from timeball.store import Store, open_store
from timeball.store.database import sql
from timeball.store.reaps import LostRun, MisfireVerdict

FINISHED = 30_000
PARTIAL = {"timeball_run_live", "timeball_run_owner", "timeball_run_claimable"}
_SCAN = re.compile(
    r"(Seq Scan|Index Scan|Index Only Scan|Bitmap Heap Scan)(?: Backward)?(?: using (\w+))? on timeball_run\b"
)
_BOUND = re.compile(r"(?:Index|Recheck) Cond: \(+(?:id|job_id) = ")


def walks(plan: str) -> list[str]:
    """Scans that may read every finished run: without an index, or through a whole one.

    Our sessions switch sequential scans off, so a statement without a fitting index walks a whole index instead.
    Partial indexes hold only runs that live; of the others, the leading column must be bound.
    """
    lines = plan.splitlines()
    found: list[str] = []
    for number, line in enumerate(lines):
        scan = _SCAN.search(line)
        if scan is None or scan[2] in PARTIAL:
            continue
        below = " ".join(lines[number + 1 : number + 4])
        if scan[1] == "Seq Scan" or not (_BOUND.search(below) or any(name in below for name in PARTIAL)):
            found.append(line.strip())
    return found


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
def fresh(with_schema: None, postgres_url: str) -> Iterator[Scene]:
    store = open_store(postgres_url)
    made = Scene(store)
    for name in ("allow", "skip"):
        made.job(name, overlap=name)
    # Fresh statistics in the middle of a test would hide what it looks for.
    made.execute("ALTER TABLE timeball_run SET (autovacuum_enabled = off)")
    made.execute("ANALYZE")
    yield made
    store.close()


@pytest.fixture
def scene(fresh: Scene) -> Scene:
    for name in ("allow", "skip"):
        fresh.execute(
            "INSERT INTO timeball_run (job_id, job_version, kind, due_at, state, handler, ready_at, start_by, "
            "started_at, ended_at, attempt, fence) SELECT (SELECT id FROM timeball_job WHERE name = :name), 1, "
            "'scheduled', 1000 + n, 'succeeded', 'function:f', 1000 + n, 2000 + n, 1000 + n, 1001 + n, 1, n "
            "FROM generate_series(1, :many) AS n",
            name=name,
            many=FINISHED,
        )
    fresh.execute("ANALYZE")
    return fresh


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
    skip = store.jobs.get("default", "skip")
    scene.plan(term, skip, [now + SECOND], start_by=now + 60 * SECOND)
    assert scene.start(a, scene.claim(a, limit=100)).skipped
    scene.expire(a)
    store.reaps.expire_members(term)
    orphans = store.reaps.orphans(term)
    assert orphans
    store.reaps.lose(term, [LostRun(orphan=orphan, rerun=True, reason="gone") for orphan in orphans])
    scene.execute("UPDATE timeball_run SET start_by = 1 WHERE state IN ('planned', 'claimed')")
    scene.execute("UPDATE timeball_job SET next_due_at = NULL")
    store.reaps.resolve_misfires(term, lambda _: MisfireVerdict(missed=(), kept=(), reason=""))


HOT = {
    "claim": "SET state = 'claimed'",
    "take": "claimed_at = CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT), started_at",
    "start": "SET state = 'running', started_at",
    "running": "LEFT JOIN timeball_instance",
    "skip": "SET state = 'skipped'",
    "mine": "SELECT id, job_id, job_version, kind, attempt, fence",
    "settle": "SET late = CASE",
    "wishes": "SELECT id, cancel_reason",
    "give back": "SET state = 'planned', instance_id = NULL, claimed_at = NULL, claimable_at = ready_at WHERE id",
    "orphans": "r.lost_count, i.id",
    "lose": "SET state = 'lost'",
    "rerun": "SET state = 'planned', attempt = attempt + 1",
    "misfired jobs": "SELECT DISTINCT r.job_id",
    "overdue": "SELECT r.job_id, v.definition",
}


def test_no_hot_statement_walks_through_all_runs(scene: Scene) -> None:
    plans = Plans(scene.store)
    everything(scene)
    never = [verb for verb, words in HOT.items() if not any(words in statement for statement, _ in plans.seen)]
    assert not never, f"not explained: {never}"
    bad = [f"{statement}\n{plan}" for statement, plan in plans.seen if walks(plan)]
    assert not bad, "\n\n".join(bad)


def test_a_claim_walks_its_index_in_order_and_reads_no_more_than_it_takes(fresh: Scene) -> None:
    scene = fresh
    a = scene.join("a")
    job = scene.store.jobs.get("default", "allow")
    now = scene.now()
    scene.execute(
        "INSERT INTO timeball_run (job_id, job_version, kind, due_at, state, handler, ready_at, claimable_at, "
        "start_by) SELECT :job, 1, 'scheduled', :now - n, 'planned', 'function:f', :now - n, :now - n, :now + 60000000 "
        "FROM generate_series(1, 20000) AS n",
        job=job.id,
        now=now,
    )
    plans = Plans(scene.store)
    assert scene.claim(a, limit=50)
    assert scene.store.claims.take(a, ANY, limit=10)
    claims = [plan for statement, plan in plans.seen for verb in ("claim", "take") if HOT[verb] in statement]
    assert len(claims) == 2
    assert [plan for plan in claims if "Sort" in plan or "Bitmap" in plan] == []


def test_the_check_itself_can_fail(scene: Scene) -> None:
    plans = Plans(scene.store)
    for condition in ("fence + 0 = -1", "due_at = -1", "instance_id = 'gone'", "id > 0 AND fence = -1"):
        scene.execute(f"UPDATE timeball_run SET late = late WHERE {condition}")
    with scene.store.database.transaction() as tx:
        tx.all(sql("SELECT id FROM timeball_run WHERE fence = -1 ORDER BY id LIMIT 1"))
    assert any("Index Scan" in plan for _, plan in plans.seen)
    assert [statement for statement, plan in plans.seen if not walks(plan)] == []
