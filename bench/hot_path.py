"""Lateness, herd and drain on PostgreSQL, beside the best peers (measured on one machine, December 2026).

One engine in this process, no-op coroutines, durable defaults of the server that --db names. Without --db a
throw-away server is started, which does not wait for the disk: give --db for figures to compare.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.table import Table
from tests.postgres_server import postgres_server

from timeball.app.serve import tune_interpreter
from timeball.app.wiring import Parts, connect
from timeball.clock import format_instant, monotonic_us
from timeball.executors.registry import FunctionTable
from timeball.model.job import Definition
from timeball.settings import Settings
from timeball.store.database import sql
from timeball.store.migrate import upgrade_schema

SECOND = 1_000_000
PEERS = {
    "lateness p50 / p99 / max": "APScheduler 3 1.5 / 3.7 ms; pgqueuer 49 / 104; bar 1 / 2.5",
    "herd max": "APScheduler 3 1.9 s; graphile-worker 1.9 s; bar 50 ms",
    "drain": "graphile-worker 28,987/s; pgqueuer 13,632/s; bar 35,000/s",
}


def parts_of(url: str) -> Parts:
    async def nothing() -> None:
        return None

    table = FunctionTable()
    table.register("nothing", nothing)
    settings = Settings(
        database_url=url, runs_max=20_000, claim_batch_max=1000, settle_batch_max=1000, retention_runs_per_job=10**8
    )
    return connect(settings, table)


def definition(schedule: str, **policies: object) -> Definition:
    return Definition.from_dict(
        {"schedule": schedule, "executor": "function", "target": {"name": "nothing"}, "overlap": "allow", **policies}
    )


@contextlib.contextmanager
def running(parts: Parts) -> Generator[None]:
    engine = parts.engine()
    engine.start()
    try:
        yield
    finally:
        engine.stop(5)


def wait(parts: Parts, statement: str, wanted: int, seconds: float) -> None:
    never, deadline = threading.Event(), monotonic_us() + int(seconds * SECOND)
    while count(parts, statement) < wanted:
        if monotonic_us() > deadline:
            raise SystemExit(f"only {count(parts, statement)} of {wanted} after {seconds} s")
        never.wait(0.2)


def count(parts: Parts, statement: str) -> int:
    with parts.store.database.snapshot() as tx:
        row = tx.one(sql(statement))
        return int(row[0]) if row else 0


def one_shots(parts: Parts, name: str, dues: list[int]) -> list[float]:
    """Create the jobs, run them, return how late each work began, in milliseconds, sorted."""
    service = parts.jobs("bench")
    for number, due in enumerate(dues):
        service.create(f"{name}-{number}", definition(f"@at {format_instant(due)}"))
    ended = f"SELECT count(*) FROM timeball_run r JOIN timeball_job j ON j.id = r.job_id WHERE j.name LIKE '{name}-%' "
    with running(parts):
        wait(parts, ended + "AND r.state = 'succeeded'", len(dues), 90)
    with parts.store.database.snapshot() as tx:
        rows = tx.all(
            sql(
                "SELECT r.begun_at - r.due_at FROM timeball_run r JOIN timeball_job j ON j.id = r.job_id "
                "WHERE j.name LIKE :pattern ORDER BY 1"
            ),
            pattern=f"{name}-%",
        )
    return [row[0] / 1000 for row in rows]


def lateness(parts: Parts, many: int) -> str:
    start = parts.store.members.clock() + 25 * SECOND
    late = one_shots(parts, "shot", [start + n * 20 * SECOND // many for n in range(many)])
    return f"{late[many // 2]:.2f} / {late[many * 99 // 100]:.2f} / {late[-1]:.2f} ms"


def herd(parts: Parts, many: int) -> str:
    due = parts.store.members.clock() + 30 * SECOND
    late = one_shots(parts, "herd", [due] * many)
    return f"p50 {late[many // 2]:.1f}, max {late[-1]:.1f} ms, {len(late)} of {many}"


def drain(parts: Parts, many: int, finished: int) -> str:
    job = parts.jobs("bench").create(f"drain-{finished}", definition("none"))
    insert = (
        "INSERT INTO timeball_run (job_id, job_version, kind, due_at, state, handler, ready_at, claimable_at, "
        "start_by, started_at, ended_at, salt) SELECT :job, 1, 'manual', :at + n, :state, 'function:nothing', :at, "
        ":claimable, :never, :ended, :ended, n FROM generate_series(1, :many) AS n"
    )
    now = parts.store.members.clock()
    if finished:
        step = 100_000
        for part in range(0, finished, step):
            old = now - 3600 * SECOND - part
            run(parts, insert, job=job.id, at=old, state="succeeded", claimable=None, many=step, ended=old)
        run(parts, "ANALYZE timeball_run")
    run(parts, insert, job=job.id, at=now, state="planned", claimable=now, many=many, ended=None)
    done = f"SELECT count(*) FROM timeball_run WHERE job_id = {job.id} AND due_at > {now} AND state = 'succeeded'"
    with running(parts):
        wait(parts, done, many, 120)
    first_to_last = (
        f"SELECT max(ended_at) - min(started_at) FROM timeball_run WHERE job_id = {job.id} AND due_at > {now}"
    )
    took = count(parts, first_to_last) / SECOND
    return f"{many / took:,.0f}/s ({many:,} in {took:.2f} s)"


def run(parts: Parts, statement: str, **binds: object) -> None:
    never = 1 << 61
    with parts.store.database.transaction() as tx:
        if ":never" in statement:
            binds["never"] = never
        tx.count(sql(statement), **binds)


def measure(url: str, chosen: list[str], finished: int, many: int) -> None:
    with fresh(url) as parts:
        upgrade_schema(parts.store.database, "default")
    rows: list[tuple[str, Callable[[Parts], str], str]] = []
    if "lateness" in chosen:
        name = "2,000 one-shots over 20 s: p50 / p99 / max"
        rows.append((name, lambda parts: lateness(parts, 2000), PEERS["lateness p50 / p99 / max"]))
    if "herd" in chosen:
        rows.append(("2,000 at one instant", lambda parts: herd(parts, 2000), PEERS["herd max"]))
    if "drain" in chosen:
        rows.append((f"{many:,} due no-ops", lambda parts: drain(parts, many, 0), PEERS["drain"]))
    if finished:
        name = f"the same beside {finished:,} finished runs"
        rows.append((name, lambda parts: drain(parts, many, finished), PEERS["drain"]))
    table = Table("WORK", "TIMEBALL", "PEERS AND BAR", title="PostgreSQL, one instance, durable start and settle")
    for name, work, peers in rows:
        with fresh(url) as parts:
            table.add_row(name, work(parts), peers)
    Console(width=140).print(table)


@contextlib.contextmanager
def fresh(url: str) -> Generator[Parts]:
    """Parts of their own: an engine's end closes them."""
    parts = parts_of(url)
    try:
        yield parts
    finally:
        parts.store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", help="an empty PostgreSQL database")
    parser.add_argument("--only", choices=["lateness", "herd", "drain"], action="append")
    parser.add_argument("--finished", type=int, default=0, help="drain again beside so many finished runs")
    parser.add_argument("--many", type=int, default=20_000, help="how many due runs to drain")
    given = parser.parse_args()
    tune_interpreter()
    chosen = given.only or ["lateness", "herd", "drain"]
    if given.db:
        measure(given.db, chosen, given.finished, given.many)
    else:
        with postgres_server() as base:
            measure(f"{base}/postgres", chosen, given.finished, given.many)


if __name__ == "__main__":
    main()
