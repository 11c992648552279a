"""A real instance that is told to end while its database is away: the next one on the host writes what it knew."""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.cluster.instances import Instances, eventually


@pytest.mark.cluster
def test_the_outcome_of_an_instance_that_ended_without_its_database_arrives_later(
    postgres_url: str, tmp_path: Path
) -> None:
    address = make_url(postgres_url)
    admin_url = address.set(database="postgres").render_as_string(hide_password=False)
    folder, name = tmp_path / "spill", str(address.database)
    script = f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/end ]; do sleep 0.05; done; echo whole"
    with (
        Instances(postgres_url, tmp_path, TIMEBALL_SPILL_DIR=str(folder)) as cluster,
        psycopg.connect(admin_url, autocommit=True) as admin,
    ):
        cluster.ask("db", "upgrade")
        cluster.start("first")
        cluster.ask("jobs", "add", "job", "--schedule", "none", "--command", "--", "/bin/sh", "-c", script)
        cluster.ask("jobs", "trigger", "job")
        eventually((tmp_path / "begun").exists)
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")  # pyright: ignore
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        (tmp_path / "end").touch()
        cluster.processes["first"].send_signal(signal.SIGTERM)
        assert cluster.processes["first"].wait(60) == 0, cluster.log("first")
        assert len(list(folder.glob("*.jsonl"))) == 1, cluster.log("first")
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")  # pyright: ignore
        cluster.start("second")
        eventually(lambda: cluster.ask("runs", "list")[0]["state"] != "running")
        run = cluster.ask("runs", "list")[0]
        assert (run["state"], run["instance"]) == ("succeeded", "first")
        eventually(lambda: not list(folder.iterdir()))
