"""Rows of `tests/cases/behaviour.jsonl` that need real processes: kills, and many writers of one SQLite file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.instances import Instances, Story, eventually

SHORT_LEASES = {
    "TIMEBALL_LEASE_SECONDS": "2",
    "TIMEBALL_LEASE_RENEW_SECONDS": "0.5",
    "TIMEBALL_LEASE_MARGIN_SECONDS": "0.4",
    "TIMEBALL_MEMBERSHIP_SECONDS": "2",
    "TIMEBALL_HEARTBEAT_SECONDS": "0.5",
    "TIMEBALL_COORDINATION_TIMEOUT_SECONDS": "1",
}
LONG_APP = """
import os
from timeball import Scheduler

scheduler = Scheduler()

@scheduler.function("long")
def long(run):
    with open("notes", "a") as notes:
        notes.write(f"{run.job} {run.attempt} {os.getpid()}\\n")
    if run.attempt == 1:
        run.wait_cancelled(60)
"""
BUSY_APP = """
from timeball import Scheduler

scheduler = Scheduler()

def note(run):
    with open("notes", "a") as notes:
        notes.write(f"{run.job} {run.due_at_us}\\n")

for number in range(100):
    scheduler.job(f"tick-{number}", "* * * * * *", overlap="allow")(note)
"""


@pytest.mark.cluster
def test_orph_001_and_orph_011_runs_of_a_killed_owner_are_lost_and_rerun_elsewhere_where_the_policy_says_so(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "long_app.py").write_text(LONG_APP)
    with Instances(database_url, tmp_path, "--app", "long_app:scheduler", **SHORT_LEASES) as cluster:
        cluster.start("owner")
        eventually(lambda: "is up" in cluster.log("owner"))
        for name, on_lost in (("fails", "fail"), ("reruns", "rerun")):
            cluster.ask("jobs", "add", name, "--schedule", "none", "--function", "long", "--set", f"on_lost={on_lost}")
            cluster.ask("jobs", "trigger", name)
        notes = tmp_path / "notes"
        eventually(lambda: notes.exists() and len(notes.read_text().splitlines()) == 2)
        cluster.start("other")
        eventually(lambda: "is up" in cluster.log("other"))
        cluster.kill("owner")
        eventually(lambda: len(notes.read_text().splitlines()) == 3)
        eventually(lambda: {run["state"] for run in cluster.ask("runs", "list")} == {"lost", "succeeded"})
        cluster.end("other")
        runs = {run["job"]: cluster.ask("runs", "show", str(run["id"])) for run in cluster.ask("runs", "list")}
        assert [(runs[job]["state"], runs[job]["attempt"], runs[job]["instance"]) for job in ("fails", "reruns")] == [
            ("lost", 1, "owner"),
            ("succeeded", 2, "other"),
        ]
        assert [(a["state"], a["instance"]) for a in runs["reruns"]["attempts"]] == [("lost", "owner")]
        pids = {name: str(process.pid) for name, process in cluster.processes.items()}
        assert Counter(notes.read_text().splitlines()) == Counter(
            [f"fails 1 {pids['owner']}", f"reruns 1 {pids['owner']}", f"reruns 2 {pids['other']}"]
        )


@pytest.mark.cluster
def test_db_001_eight_processes_on_one_file_lose_no_heartbeat(tmp_path: Path) -> None:
    (tmp_path / "busy_app.py").write_text(BUSY_APP)
    with Instances(f"sqlite:///{tmp_path}/x.db", tmp_path, "--app", "busy_app:scheduler") as cluster:
        cluster.ask("db", "upgrade")
        for number in range(8):
            cluster.start(f"i{number}")
        eventually(lambda: all("is up" in cluster.log(f"i{number}") for number in range(8)), 40)
        Story().at(4)
        status = cluster.ask("cluster", "status")
        cluster.end_all()
        assert {member["name"] for member in status["instances"]} == {f"i{number}" for number in range(8)}
        assert [change["kind"] for change in status["changes"]] == ["lease.taken"]
        for number in range(8):
            log = cluster.log(f"i{number}")
            assert "heartbeat" not in log
            assert "membership" not in log
            assert "Traceback" not in log
        lines = (tmp_path / "notes").read_text().splitlines()
        assert len(lines) > 200
        assert Counter(lines).most_common(1)[0][1] == 1
        assert cluster.ask("audit")["duplicates"] == 0
