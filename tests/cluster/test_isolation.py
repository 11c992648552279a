"""Real processes that lose the database, or their breath: what may run again elsewhere does not go on here."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tests.cluster.instances import Instances, eventually
from tests.cluster.proxy import Wire
from tests.cluster.test_behaviour_rows import SHORT_LEASES

# Ignores TERM; leaves its process id and attempt when it begins, and then the hundredth of a second until its death.
STUBBORN = (
    "trap '' TERM; echo $$ >> {folder}/{name}.$TIMEBALL_ATTEMPT; "
    "while :; do date +%s.%N > {folder}/{name}.$TIMEBALL_ATTEMPT.last; sleep 0.01; done"
)


def add(cluster: Instances, name: str, *flags: str) -> None:
    script = STUBBORN.format(folder=cluster.folder, name=name)
    cluster.ask("jobs", "add", name, "--schedule", "none", *flags, "--command", "--", "/bin/sh", "-c", script)
    cluster.ask("jobs", "trigger", name)


def pid_of(folder: Path, name: str, attempt: int = 1) -> int:
    file = folder / f"{name}.{attempt}"
    eventually(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


def alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


@pytest.mark.cluster
def test_a_command_that_ignores_term_is_dead_before_it_begins_elsewhere_when_the_wire_is_cut(
    postgres_url: str, tmp_path: Path
) -> None:
    address = make_url(postgres_url)
    with (
        Wire(str(address.host), int(address.port or 5432)) as wire,
        Instances(postgres_url, tmp_path, **SHORT_LEASES) as cluster,
    ):
        cluster.ask("db", "upgrade")
        cluster.start("cut", "--db", address.set(port=wire.port).render_as_string(hide_password=False))
        add(cluster, "again", "--on-lost", "rerun")
        add(cluster, "kept", "--set", "on_isolation=keep")
        eventually(lambda: (tmp_path / "again.1").exists() and (tmp_path / "kept.1").exists())
        first, kept = pid_of(tmp_path, "again"), pid_of(tmp_path, "kept")
        cluster.start("whole")
        eventually(lambda: len(cluster.ask("cluster", "status")["instances"]) == 2)
        wire.cut()
        eventually((tmp_path / "again.2").exists)
        began = (tmp_path / "again.2").stat().st_mtime
        assert not alive(first)
        assert float((tmp_path / "again.1.last").read_text() or 0) < began
        assert alive(kept)
        kill(kept, pid_of(tmp_path, "again", 2))


@pytest.mark.cluster
def test_who_wakes_after_his_membership_ends_what_another_instance_runs_by_now(
    database_url: str, tmp_path: Path
) -> None:
    with Instances(database_url, tmp_path, **SHORT_LEASES) as cluster:
        cluster.ask("db", "upgrade")
        cluster.start("paused")
        add(cluster, "again", "--on-lost", "rerun")
        pid_of(tmp_path, "again")
        cluster.start("whole")
        eventually(lambda: len(cluster.ask("cluster", "status")["instances"]) == 2)
        cluster.processes["paused"].send_signal(signal.SIGSTOP)
        eventually((tmp_path / "again.2").exists)
        first, second = pid_of(tmp_path, "again"), pid_of(tmp_path, "again", 2)
        assert alive(first)  # nobody could end it
        cluster.processes["paused"].send_signal(signal.SIGCONT)
        eventually(lambda: not alive(first), 5)
        assert alive(second)
        kill(second)
