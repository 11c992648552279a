"""Commands of real instances end whole: by a cancel, a stop, or the death of the instance. The record says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.instances import Instances, eventually
from tests.executors.processes import alive, below, written
from timeball.executors.command.link import CAN_ADOPT

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(not CAN_ADOPT, reason="only Linux lets a process adopt orphans")]
TREE = """
setsid env -i /bin/sh -c 'trap "" TERM; echo $$ >> {pids}; while :; do /bin/sleep 0.1; done' &
while [ ! -s {pids} ]; do sleep 0.05; done
echo $$ >> {pids}
while :; do :; done
"""


def run_of(cluster: Instances, job: str) -> dict[str, Any]:
    return cluster.ask("runs", "list", "--job", job)[0]


def add_tree(cluster: Instances, folder: Path, *options: str) -> Path:
    script, pids = folder / "tree.sh", folder / "pids"
    script.write_text(TREE.format(pids=pids))
    cluster.ask("jobs", "add", "tree", "--schedule", "none", *options, "--command", "--", "/bin/sh", str(script))
    cluster.ask("jobs", "trigger", "tree")
    return pids


def test_stop_002_and_stop_004_a_cancel_from_elsewhere_ends_a_busy_command_and_all_that_it_started(
    database_url: str, tmp_path: Path
) -> None:
    with Instances(database_url, tmp_path, TIMEBALL_COMMAND_GRACE_SECONDS="0.5") as cluster:
        cluster.start("a")
        eventually(lambda: "is up" in cluster.log("a"))
        pids = add_tree(cluster, tmp_path)
        eventually(lambda: len(written(pids)) == 2)
        cluster.ask("runs", "cancel", str(run_of(cluster, "tree")["id"]))
        eventually(lambda: run_of(cluster, "tree")["state"] == "cancelled")
        assert not [pid for pid in written(pids) if alive(pid)]
        assert "ignored TERM, killed" in run_of(cluster, "tree")["error"]
        cluster.end("a")


def test_a_command_of_a_killed_instance_is_dead_with_all_it_started_before_it_runs_elsewhere(
    database_url: str, tmp_path: Path
) -> None:
    with Instances(database_url, tmp_path, TIMEBALL_COMMAND_GRACE_SECONDS="0.5") as cluster:
        cluster.start("a")
        eventually(lambda: "is up" in cluster.log("a"))
        pids = add_tree(cluster, tmp_path, "--on-lost", "rerun")
        eventually(lambda: len(written(pids)) == 2)
        all_of_it = below(cluster.processes["a"].pid)
        cluster.start("b")
        eventually(lambda: "is up" in cluster.log("b"))
        cluster.kill("a")
        eventually(lambda: not [pid for pid in all_of_it if alive(pid)], 5)
        eventually(lambda: len(written(pids)) >= 4)
        assert run_of(cluster, "tree")["attempt"] == 2
        cluster.ask("jobs", "stop", "tree", "--cancel-running")
        eventually(lambda: run_of(cluster, "tree")["state"] == "cancelled")
        assert not [pid for pid in written(pids) if alive(pid)]
        cluster.end("b")


def test_a_command_that_cannot_begin_says_why(database_url: str, tmp_path: Path) -> None:
    with Instances(database_url, tmp_path) as cluster:
        cluster.start("a")
        eventually(lambda: "is up" in cluster.log("a"))
        cluster.ask("jobs", "add", "x", "--schedule", "none", "--set", "target.cwd=/no/such", "--command", "--", "true")
        cluster.ask("jobs", "trigger", "x")
        eventually(lambda: run_of(cluster, "x")["state"] == "failed")
        assert run_of(cluster, "x")["error"] == "its working directory '/no/such' is not there"
        cluster.end("a")
