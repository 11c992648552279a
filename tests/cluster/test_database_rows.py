"""Rows of `tests/cases/behaviour.jsonl` about a database that restarts or cannot be reached, with real processes."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.cluster.instances import Instances, eventually
from tests.cluster.test_more_rows import SHORT_LEASES
from tests.postgres_server import postgres_server, restart_command
from timeball.selftest.addresses import Upstream
from timeball.selftest.proxy import FROM_DATABASE, TO_DATABASE, Proxies

APP = """
from timeball import Scheduler

scheduler = Scheduler()

def note(run):
    with open("notes", "a") as notes:
        notes.write(f"{run.job} {run.due_at_us}\\n")

@scheduler.job("tick", "* * * * * *", overlap="allow")
def tick(run):
    note(run)

@scheduler.function("long")
def long(run):
    note(run)
    while not (run.wait_cancelled(0.1) or __import__("os").path.exists("go on")):
        pass
"""


def count(folder: Path, job: str) -> int:
    notes = folder / "notes"
    return sum(line.startswith(f"{job} ") for line in notes.read_text().splitlines()) if notes.exists() else 0


def go_on(folder: Path, job: str = "tick", by: int = 3) -> None:
    before = count(folder, job)
    eventually(lambda: count(folder, job) >= before + by)


def nothing_twice(cluster: Instances) -> None:
    lines = (cluster.folder / "notes").read_text().splitlines()
    assert [line for line, times in Counter(lines).items() if times > 1] == []
    cluster.end_all()
    report = cluster.ask("audit")
    assert (report["duplicates"], report["without_fate"], report["violations"]) == (0, 0, [])


@pytest.mark.cluster
def test_db_004_and_db_007_after_a_restart_jobs_come_again_and_what_ran_meanwhile_runs_once(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with postgres_server() as base, Instances(f"{base}/postgres", tmp_path, "--app", "app:scheduler") as cluster:
        with psycopg.connect(cluster.url) as session:
            (data,) = session.execute("SHOW data_directory").fetchone() or ("",)
        cluster.ask("db", "upgrade")
        for name in ("one", "two"):
            cluster.start(name)
            eventually(lambda name=name: "is up" in cluster.log(name))
        cluster.ask("jobs", "add", "long", "--schedule", "none", "--function", "long", "--on-lost", "rerun")
        run_id = str(cluster.ask("jobs", "trigger", "long")["run"])
        eventually(lambda: count(tmp_path, "long") == 1)
        go_on(tmp_path)
        subprocess.run(restart_command(data), check=True, capture_output=True, stdin=subprocess.DEVNULL)
        go_on(tmp_path)
        run = cluster.ask("runs", "show", run_id)
        assert (run["state"], run["attempt"]) == ("running", 1)  # its owner is a row that survived, not a session
        (tmp_path / "go on").touch()
        eventually(lambda: cluster.ask("runs", "show", run_id)["state"] == "succeeded")
        assert count(tmp_path, "long") == 1
        nothing_twice(cluster)


@pytest.mark.cluster
@pytest.mark.parametrize("loss", ["reset", "black hole"])
def test_db_005_after_a_loss_of_the_connection_jobs_come_again(postgres_url: str, tmp_path: Path, loss: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    address = make_url(postgres_url)
    with Proxies() as proxies, Instances(postgres_url, tmp_path, "--app", "app:scheduler", **SHORT_LEASES) as cluster:
        link = proxies.add("one", Upstream(host=str(address.host), port=int(address.port or 5432)))
        cluster.ask("db", "upgrade")
        cluster.start("one", "--db", address.set(port=link.port).render_as_string(hide_password=False))
        go_on(tmp_path)
        proxies.do(link.refuse() if loss == "reset" else link.shut(TO_DATABASE, FROM_DATABASE))
        eventually(lambda: "claim: PostgreSQL" in cluster.log("one"))
        stood = count(tmp_path, "tick")
        proxies.do(link.heal(resets=False))
        eventually(lambda: count(tmp_path, "tick") >= stood + 3)
        nothing_twice(cluster)
