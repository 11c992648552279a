"""G10: a bad job hurts only itself. Heartbeats go on, other jobs keep their time, the run says what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.instances import Instances, Story, eventually
from timeball.model.states import FATES

APP = """
import os, time
from timeball import Scheduler

scheduler = Scheduler()

@scheduler.job("tick", "* * * * * *", overlap="allow")
def tick(run):
    return run.attempt

@scheduler.function()
def spin():
    while True:
        pass

@scheduler.function()
async def blocks():
    time.sleep(4)

@scheduler.function()
def leaves():
    raise SystemExit(3)

@scheduler.function()
def dies():
    os._exit(9)
"""


def runs_of(cluster: Instances, job: str) -> list[dict[str, Any]]:
    return cluster.ask("runs", "list", "--job", job)


def trigger(cluster: Instances, name: str, *target: str) -> None:
    cluster.ask("jobs", "add", name, "--schedule", "none", *target)
    cluster.ask("jobs", "trigger", name)


@pytest.mark.cluster
def test_misbehaving_work_leaves_the_others_their_time(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "bad_app.py").write_text(APP)
    with Instances(database_url, tmp_path, TIMEBALL_DRAIN_SECONDS="5") as cluster:
        cluster.start("a", "--app", "bad_app:scheduler")
        eventually(lambda: "is up" in cluster.log("a"))
        trigger(cluster, "spin", "--function", "spin", "--timeout", "3")
        trigger(cluster, "blocks", "--function", "blocks")
        trigger(cluster, "leaves", "--function", "leaves")
        trigger(cluster, "floods", "--command", "--", "/bin/sh", "-c", "head -c 200000000 /dev/zero")
        trigger(cluster, "signals", "--command", "--", "/bin/sh", "-c", "kill -KILL $$")
        story = Story()
        names = ("spin", "blocks", "leaves", "floods", "signals")
        eventually(lambda: all(run["state"] in FATES for name in names for run in runs_of(cluster, name)))
        story.at(8)
        ended = {name: runs_of(cluster, name)[0] for name in names}
        assert {name: run["state"] for name, run in ended.items()} == {
            "spin": "timed_out",
            "blocks": "succeeded",
            "leaves": "failed",
            "floods": "succeeded",
            "signals": "failed",
        }
        assert ended["leaves"]["error"] == "SystemExit: 3"
        assert "SIGKILL" in ended["signals"]["error"]
        assert len(cluster.ask("cluster", "status")["instances"]) == 1
        cluster.ask("jobs", "stop", "tick")
        cluster.end("a")
        assert "membership" not in cluster.log("a")
        report = cluster.ask("audit")
        assert (report["duplicates"], report["missed"], report["violations"]) == (0, 0, [])


@pytest.mark.cluster
def test_an_instance_that_a_function_kills_leaves_a_lost_run_and_nothing_else(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "bad_app.py").write_text(APP)
    with Instances(database_url, tmp_path) as cluster:
        cluster.start("a", "--app", "bad_app:scheduler")
        eventually(lambda: "is up" in cluster.log("a"))
        trigger(cluster, "dies", "--function", "dies")
        assert cluster.processes["a"].wait(20) == 9
        cluster.start("b", "--app", "bad_app:scheduler")
        eventually(lambda: [run["state"] for run in runs_of(cluster, "dies")] == ["lost"], 40)
        cluster.ask("jobs", "stop", "tick")
        cluster.end("b")
        report = cluster.ask("audit")
        assert (report["duplicates"], report["violations"]) == (0, [])


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("app", "words"),
    [("no_such_module:scheduler", "no_such_module"), ("bad_app:nothing", "nothing"), ("bad_app", "MODULE:ATTRIBUTE")],
)
def test_an_unknown_app_is_a_clear_error_at_start(tmp_path: Path, app: str, words: str) -> None:
    (tmp_path / "bad_app.py").write_text(APP)
    with Instances(f"sqlite:///{tmp_path}/x.db", tmp_path) as cluster:
        cluster.start("a", "--app", app)
        assert cluster.processes["a"].wait(20) == 2
        assert words in cluster.log("a")
        assert "Traceback" not in cluster.log("a")
