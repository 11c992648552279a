"""Faults of other schedulers with real processes: forks, kills, outages (rows of `tests/cases/behaviour.jsonl`)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import event

from tests.cluster.instances import Instances, Story, eventually
from tests.conftest import HostClock
from tests.store.stepped import Bench
from timeball.clock import parse_instant

SECOND = 1_000_000
FORKING_SERVER = """
import asyncio, os, signal, sys
from timeball import Scheduler

scheduler = Scheduler(sys.argv[1], log_level="warning")

@scheduler.job("tick", "* * * * * *", overlap="allow")
def tick(run):
    with open("runs", "a") as runs:
        runs.write(f"{run.due_at_us} {os.getpid()}\\n")

async def serve():
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with scheduler.lifespan():
        await ended.wait()

assert scheduler.jobs.list() == []  # imported and connected, as with gunicorn --preload
workers = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        asyncio.run(serve())
        os._exit(0)
    workers.append(pid)
signal.signal(signal.SIGTERM, lambda *_: [os.kill(pid, signal.SIGTERM) for pid in workers])
assert [os.waitpid(pid, 0)[1] for pid in workers] == [0, 0, 0, 0]
assert [job.name for job in scheduler.jobs.list()] == ["tick"]  # the children left the parent's connection alone
"""
OUTAGE_APP = """
import os, time
from timeball import Scheduler

scheduler = Scheduler()

def note(run, what):
    with open("notes", "a") as notes:
        notes.write(f"{run.job} {run.due_at_us} {what}\\n")

@scheduler.job("tick", "* * * * * *", overlap="allow")
def tick(run):
    note(run, "begins")

@scheduler.function("long")
def long(run):
    note(run, "begins")
    run.wait_cancelled(6)
    note(run, "cancelled" if run.cancelled else "ends")
"""
SHORT_LEASES = {
    "TIMEBALL_LEASE_SECONDS": "2",
    "TIMEBALL_LEASE_RENEW_SECONDS": "0.5",
    "TIMEBALL_LEASE_MARGIN_SECONDS": "0.4",
    "TIMEBALL_MEMBERSHIP_SECONDS": "2",
    "TIMEBALL_HEARTBEAT_SECONDS": "0.5",
    "TIMEBALL_COORDINATION_TIMEOUT_SECONDS": "1",
}


@pytest.fixture
def bench(with_schema: None, database_url: str, host_clock: HostClock) -> Iterator[Bench]:
    made = Bench(database_url, host_clock)
    yield made
    made.close()


@pytest.mark.cluster
def test_dup_010_four_workers_of_a_forking_server_are_four_members_with_one_leader(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "server.py").write_text(FORKING_SERVER)
    with Instances(database_url, tmp_path) as cluster:
        cluster.ask("db", "upgrade")
        with (tmp_path / "server.log").open("wb") as log:
            server = subprocess.Popen(
                [sys.executable, "server.py", database_url],
                stdout=log,
                stderr=log,
                cwd=tmp_path,
                start_new_session=True,
            )
        try:
            eventually(lambda: len(cluster.ask("cluster", "status")["instances"]) == 4)
            eventually((tmp_path / "runs").exists)
            Story().at(1.5)
            status = cluster.ask("cluster", "status")
            cluster.ask("jobs", "stop", "tick")
            server.terminate()
            assert server.wait(30) == 0, cluster.log("server")
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()
        members = status["instances"]
        assert len({member["pid"] for member in members}) == len({member["id"] for member in members}) == 4
        assert server.pid not in {member["pid"] for member in members}
        assert [change["kind"] for change in status["changes"]] == ["lease.taken"]
        lines = [line.split() for line in (tmp_path / "runs").read_text().splitlines()]
        assert max(Counter(due for due, _ in lines).values()) == 1
        assert {int(pid) for _, pid in lines} <= {member["pid"] for member in members}
        report = cluster.ask("audit")
        assert (report["duplicates"], report["missed"], report["violations"]) == (0, 0, [])
        states = [run["state"] for run in cluster.ask("runs", "list", "--job", "tick")]
        assert states.count("succeeded") == len(lines) >= 2


def plan_and_die(bench: Bench, moment: str) -> None:
    """In a process of its own: become the leader, plan, and be killed at a moment of the plan's transaction."""

    def die(*given: object) -> None:
        if moment == "commit" or "INTO timeball_run" in str(given[2]):
            os.kill(os.getpid(), signal.SIGKILL)

    for store in bench.stores:
        store.database.reset_after_fork()
    leader = bench.instance("leader")
    leader.lease.step()
    assert leader.lease.term() is not None
    event.listen(leader._store.database._work, moment, die)
    leader.planner.step()


@pytest.mark.cluster
def test_miss_006_a_leader_that_is_killed_inside_a_plan_leaves_neither_runs_nor_cursors(bench: Bench) -> None:
    begin = parse_instant("2030-06-05T12:00:30Z")
    bench.set_clock(begin)
    for number in range(5):
        bench.jobs.create(f"job-{number}", bench.define("*/5 * * * * *"))
    cursors = [job.cursor_at for job in bench.jobs.list()]
    for moment in ("before_cursor_execute", "after_cursor_execute", "commit"):
        bench.close()
        child = multiprocessing.get_context("fork").Process(target=plan_and_die, args=(bench, moment))
        child.start()
        child.join(30)
        assert child.exitcode == -signal.SIGKILL
        assert [job.cursor_at for job in bench.jobs.list()] == cursors
        assert not [run for number in range(5) for run in bench.runs(f"job-{number}")]
        bench.move_clock(11 * SECOND)  # the lease of the killed runs out
    leader = bench.instance("survivor")
    leader.lease.step()
    leader.planner.step()
    for number in range(5):
        dues = sorted(run.due_at for run in bench.runs(f"job-{number}"))
        assert dues[:12] == [begin + n * 5 * SECOND for n in range(1, 13)]


def refuse(maintenance: psycopg.Connection, name: str) -> None:
    maintenance.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")  # pyright: ignore
    maintenance.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))


@pytest.mark.cluster
def test_dup_013_an_outage_in_mid_run_makes_no_second_live_run_of_a_tick(
    postgres_base: str, postgres_url: str, tmp_path: Path
) -> None:
    (tmp_path / "outage_app.py").write_text(OUTAGE_APP)
    name = postgres_url.rpartition("/")[2]
    with (
        Instances(postgres_url, tmp_path, "--app", "outage_app:scheduler", **SHORT_LEASES) as cluster,
        psycopg.connect(f"{postgres_base}/postgres", autocommit=True) as maintenance,
    ):
        cluster.start("a")
        cluster.start("b")
        eventually(lambda: all("is up" in cluster.log(each) for each in "ab"))
        cluster.ask("jobs", "add", "long", "--schedule", "none", "--function", "long")
        cluster.ask("jobs", "trigger", "long")
        eventually(lambda: "long" in (tmp_path / "notes").read_text())
        refuse(maintenance, name)
        Story().at(4)  # twice a lease and a membership
        maintenance.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")  # pyright: ignore
        eventually(lambda: cluster.ask("runs", "list", "--job", "long")[0]["state"] == "succeeded")
        eventually(lambda: len(cluster.ask("cluster", "status")["instances"]) == 2)
        assert len(cluster.ask("runs", "list", "--job", "long")) == 1
        cluster.ask("jobs", "stop", "tick")
        cluster.end_all()
        notes = [line.split() for line in (tmp_path / "notes").read_text().splitlines()]
        assert [what for job, _, what in notes if job == "long"] == ["begins", "ends"]
        assert max(Counter((job, due) for job, due, what in notes if what == "begins").values()) == 1
        report = cluster.ask("audit")
        assert (report["duplicates"], report["missed"], report["violations"]) == (0, 0, [])
        for each in "ab":
            assert "trying again" in cluster.log(each)
            assert "Traceback" not in cluster.log(each)
