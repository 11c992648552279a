"""The founding promise, with real processes: kills, restarts and twenty starts at once cost no tick and double none."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.cluster.instances import Instances, Story, eventually
from timeball.app.wiring import connect
from timeball.settings import Settings

JOBS = 20


def add_jobs(cluster: Instances, folder: Path) -> None:
    jobs = [
        f'[jobs.job-{n:02}]\nschedule = "* * * * * *"\nexecutor = "command"\ntarget = {{ argv = ["/bin/true"] }}\n'
        for n in range(JOBS)
    ]
    (folder / "jobs.toml").write_text("\n".join(jobs))
    cluster.ask("apply", "jobs.toml")


def stop_jobs(cluster: Instances) -> None:
    parts = connect(Settings(database_url=cluster.url))  # not twenty commands, whose starts cost most of the time
    for number in range(JOBS):
        parts.jobs("test").stop(f"job-{number:02}")
    parts.store.close()


def assert_whole(report: dict[str, object], ticks_min: int) -> None:
    assert report["violations"] == []
    assert (report["duplicates"], report["missed"], report["without_fate"]) == (0, 0, 0)
    assert int(str(report["ticks"])) >= ticks_min


def play(database_url: str, folder: Path, *, length: float) -> None:
    """Leader killed at 2/9 of the length and back at 4/9, the other ended in order at 6/9 and back a moment later."""
    with Instances(database_url, folder) as cluster:
        cluster.ask("db", "upgrade")
        add_jobs(cluster, folder)
        story = Story()
        cluster.start("a")
        cluster.start("b")
        story.at(length * 2 / 9)
        leader = cluster.leader()
        assert leader in {"a", "b"}
        other = "b" if leader == "a" else "a"
        cluster.kill(leader)
        story.at(length * 4 / 9)
        cluster.start(leader)
        story.at(length * 6 / 9)
        cluster.end(other)
        story.at(length * 6 / 9 + 5)
        cluster.start(other)
        story.at(length)
        stop_jobs(cluster)
        cluster.end_all()
        assert_whole(cluster.ask("audit"), int(JOBS * length * 0.8))
        for name in ("a", "b"):
            assert "Traceback" not in cluster.log(name)


@pytest.mark.cluster
def test_a_killed_leader_and_a_restart_cost_no_tick(database_url: str, tmp_path: Path) -> None:
    play(database_url, tmp_path, length=36)


@pytest.mark.cluster
@pytest.mark.full
@pytest.mark.timeout(300)
def test_ninety_seconds_of_kills_and_restarts_cost_no_tick(database_url: str, tmp_path: Path) -> None:
    play(database_url, tmp_path, length=90)


@pytest.mark.cluster
def test_twenty_instances_at_once_on_a_fresh_database_have_one_leader(postgres_url: str, tmp_path: Path) -> None:
    names = [f"i{number:02}" for number in range(20)]
    with Instances(postgres_url, tmp_path, TIMEBALL_COMMAND_ALLOW="*") as cluster:
        for name in names:
            cluster.start(name)
        eventually(lambda: all("is up" in cluster.log(name) for name in names), 60)
        cluster.ask("jobs", "add", "tick", "--schedule", "* * * * * *", "--command", "--", "/bin/true")
        story = Story()
        story.at(8)
        status = cluster.ask("cluster", "status")
        assert len(status["instances"]) == 20
        assert [change["kind"] for change in status["changes"]] == ["lease.taken"]
        cluster.ask("jobs", "stop", "tick")
        cluster.end_all()
        assert_whole(cluster.ask("audit"), 6)
        for name in names:
            assert "ERROR" not in cluster.log(name), cluster.log(name)
            assert "Traceback" not in cluster.log(name), cluster.log(name)


@pytest.mark.cluster
def test_a_second_instance_takes_nothing_from_the_first(database_url: str, tmp_path: Path) -> None:
    with Instances(database_url, tmp_path) as cluster:
        cluster.start("first")
        eventually(lambda: "is up" in cluster.log("first"))
        cluster.ask("jobs", "add", "tick", "--schedule", "@every 1s", "--command", "--", "/bin/true")
        before = cluster.ask("jobs", "show", "tick")
        cluster.start("second")
        eventually(lambda: "is up" in cluster.log("second"))
        assert cluster.leader() == "first"
        assert cluster.ask("jobs", "show", "tick")["version"] == before["version"]
        stopped = cluster.ask("jobs", "stop", "tick")
        assert stopped["changed"]
        assert not cluster.ask("jobs", "stop", "tick")["changed"]
        cluster.end("second")
        cluster.start("second")
        assert cluster.ask("jobs", "show", "tick")["state"] == "stopped"
        cluster.end_all()
        report = cluster.ask("audit")
        assert (report["duplicates"], report["missed"], report["violations"]) == (0, 0, [])


def test_an_instance_waits_for_its_database_and_can_be_told_to_stop_waiting(postgres_url: str, tmp_path: Path) -> None:
    url = f"{postgres_url}_later"
    with (
        Instances(url, tmp_path) as instances,
        psycopg.connect(postgres_url, autocommit=True) as admin,
    ):
        name = SQL("{}").format(Identifier(url.rpartition("/")[2]))
        admin.execute(SQL("CREATE DATABASE {} ALLOW_CONNECTIONS false").format(name))
        (tmp_path / "impatient.toml").write_text("start_wait_seconds = 0.3\n")
        instances.start("impatient", "--config", "impatient.toml")
        instances.start("patient")
        instances.start("ended")
        for waiting in ("patient", "ended"):
            eventually(lambda waiting=waiting: "s more for the database server" in instances.log(waiting))
        instances.end("ended")
        assert instances.processes["impatient"].wait(30) == 1
        assert "not currently accepting connections" in instances.log("impatient")
        admin.execute(SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
        eventually(lambda: "is up" in instances.log("patient"))
        instances.end("patient")
        admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(name))
