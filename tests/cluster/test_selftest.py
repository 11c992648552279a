"""`timeball selftest` with real processes: it passes, it leaves nothing behind, it says what it cannot do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cluster.instances import eventually
from tests.postgres_pair import Pair, postgres_pair, url_of
from tests.postgres_server import NoServer
from timeball.selftest.faults import FAILOVER, KINDS, SKEW
from timeball.selftest.skew import installed_libraries


def command(url: str, *flags: str) -> list[str]:
    return [sys.executable, "-m", "timeball", "selftest", "--db", url, "--json", *flags]


def run_it(url: str, folder: Path, *flags: str) -> dict[str, Any]:
    done = subprocess.run(command(url, *flags), capture_output=True, text=True, cwd=folder)
    assert done.stdout, done.stderr[-3000:]
    document = json.loads(done.stdout)
    assert (done.returncode, document.get("verdict")) == (0, "passed"), json.dumps(document, indent=1) + done.stderr
    return document


def schemas(url: str) -> list[str]:
    with psycopg.connect(url) as session:
        found = session.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'timeball%'").fetchall()
    return [name for (name,) in found]


@pytest.mark.cluster
@pytest.mark.parametrize("database_url", ["postgresql", pytest.param("sqlite", marks=pytest.mark.full)], indirect=True)
def test_a_short_run_passes_and_leaves_nothing_behind(database_url: str, tmp_path: Path) -> None:
    server = database_url.startswith("postgresql")
    kinds = "kill,pause,partition,rolling" if server else "kill,pause,rolling"
    document = run_it(database_url, tmp_path, "--instances", "3", "--minutes", "0.6", "--faults", kinds, "--seed", "3")
    assert set(document["faults"]) == set(kinds.split(","))
    assert document["begins"] > 200
    assert document["lease_hands"] >= 2
    assert list(tmp_path.iterdir()) == []
    if server:
        assert schemas(database_url) == []


@pytest.mark.cluster
def test_an_interrupted_run_leaves_no_process_and_no_schema(database_url: str, tmp_path: Path) -> None:
    started = subprocess.Popen(
        command(database_url, "--instances", "2", "--minutes", "5", "--faults", "pause"),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr is not None
    lines = iter(started.stderr)
    assert any("leader mast" in line for line in lines)
    instances = children_of(started.pid)
    assert len(instances) == 2
    started.send_signal(signal.SIGINT)
    assert "Traceback" not in "".join(lines)
    assert started.wait(30) == 130
    assert list(tmp_path.iterdir()) == []
    assert not [pid for pid in instances if Path(f"/proc/{pid}").exists()]
    if database_url.startswith("postgresql"):
        assert schemas(database_url) == []


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True).stdout
    return [int(word) for word in listed.split()]


@pytest.mark.cluster
def test_a_killed_run_takes_its_instances_along(tmp_path: Path) -> None:
    started = subprocess.Popen(
        command(f"sqlite:///{tmp_path}/x.db", "--instances", "2", "--minutes", "5", "--faults", "rolling"),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr is not None
    assert any("leader mast" in line for line in started.stderr)
    instances = children_of(started.pid)
    assert len(instances) == 2
    started.kill()
    started.wait()
    started.stderr.close()
    eventually(lambda: not [pid for pid in instances if is_alive(pid)], 10)


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    try:
        return "State:\tZ" not in status.read_text()
    except OSError:
        return False


def test_without_the_right_to_make_a_schema_it_says_what_is_missing(postgres_url: str, tmp_path: Path) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("CREATE ROLE nobody_special LOGIN")
    try:
        url = postgres_url.replace("postgres@", "nobody_special@")
        done = subprocess.run(command(url, "--minutes", "1"), capture_output=True, text=True, cwd=tmp_path)
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, "permission denied" in error["message"]) == (1, True)
        assert "GRANT CREATE" in error["hint"]
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("DROP ROLE nobody_special")


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A primary with a synchronous replica; a disk of its own where the test asks for one."""
    try:
        with postgres_pair(disk=request.param) as made:
            yield made
    except NoServer as error:
        pytest.skip(str(error))


@pytest.mark.cluster
@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("pair", "kinds"),
    [(False, ("skew",)), (False, ("db-failover",)), (True, ("disk-full",)), (True, KINDS)],
    indirect=["pair"],
    ids=["skew", "db-failover", "disk-full", "everything"],
)
def test_minutes_of_outages_and_of_wrong_clocks_pass(pair: Pair, kinds: Sequence[str], tmp_path: Path) -> None:
    if SKEW in kinds and not list(installed_libraries()):
        pytest.skip("libfaketime is neither installed nor in the environment")
    minutes = "1" if len(kinds) == 1 else "3"
    flags = ("--instances", "5", "--minutes", minutes, "--faults", ",".join(kinds), *pair.flags(kinds))
    document = run_it(f"{pair.url}/postgres", tmp_path, *flags)
    assert set(document["faults"]) == set(kinds)
    assert document["begins"] > 450 * float(minutes)
    assert list(tmp_path.iterdir()) == []
    url = url_of(pair.replica if FAILOVER in kinds else pair.primary)
    assert schemas(f"{url}/postgres") == []
