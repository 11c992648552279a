"""Which faults `timeball selftest` plans and accepts, what it needs for them, and how each is done."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cluster.instances import eventually
from tests.conftest import need
from timeball.cli.main import cli
from timeball.errors import InvalidInput
from timeball.selftest import injector
from timeball.selftest.addresses import Upstream
from timeball.selftest.cluster import Cluster
from timeball.selftest.faults import (
    DISK_FULL,
    FAILOVER,
    KILL,
    KINDS,
    PAUSE,
    RESTART,
    SKEW,
    Fault,
    plan_faults,
    read_kinds,
)
from timeball.selftest.means import Means, read_address, read_means
from timeball.selftest.outages import Outages
from timeball.selftest.proxy import Proxies
from timeball.selftest.skew import WallClocks, find_library, installed_libraries

ALL = {"restart-db": "true", "failover-db": "true", "failover-to": "there:1", "fill-db": "true", "free-db": "true"}


def test_the_same_seed_gives_the_same_faults_and_every_kind_comes_first_of_all() -> None:
    kinds = [kind for kind in KINDS if kind != FAILOVER]
    plan = plan_faults(5, kinds, length_seconds=300, lease_seconds=4)
    assert plan == plan_faults(5, kinds, length_seconds=300, lease_seconds=4)
    assert plan != plan_faults(6, kinds, length_seconds=300, lease_seconds=4)
    assert sorted(fault.kind for fault in plan[: len(kinds)]) == sorted(kinds)
    assert all(fault.at_seconds <= 295 for fault in plan)
    assert plan_faults(5, (), length_seconds=300, lease_seconds=4) == []


@pytest.mark.parametrize("length", [40, 600])
@pytest.mark.parametrize("seed", range(40))
def test_a_failover_comes_once_and_no_fault_of_the_first_server_follows_it(seed: int, length: int) -> None:
    plan = plan_faults(seed, KINDS, length_seconds=length, lease_seconds=4)
    assert Counter(fault.kind for fault in plan)[FAILOVER] == 1
    assert plan == sorted(plan, key=lambda fault: fault.at_seconds)
    at = next(fault.at_seconds for fault in plan if fault.kind == FAILOVER)
    assert length / 4 <= at <= length * 3 / 4
    for kind in (RESTART, DISK_FULL):
        first = next(fault for fault in plan if fault.kind == kind)
        assert first.at_seconds + first.length_seconds < at
        assert all(fault.at_seconds < at for fault in plan if fault.kind == kind)


def test_wall_clocks_step_by_up_to_a_day_and_the_first_one_does_step() -> None:
    plan = plan_faults(5, (SKEW,), length_seconds=3000, lease_seconds=4)
    sizes = [abs(fault.step_seconds) for fault in plan]
    assert (min(sizes) >= 60, max(sizes), plan[0].drift) == (True, 86_400, 0)
    assert {fault.step_seconds > 0 for fault in plan} == {True, False}
    assert any(fault.drift for fault in plan)


@pytest.mark.parametrize(
    ("text", "sqlite", "words"),
    [("kill,earthquake", False, "earthquake"), ("kill,partition", True, "partition"), ("skew", True, "skew")],
)
def test_a_fault_that_cannot_be_is_refused(text: str, sqlite: bool, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read_kinds(text, sqlite=sqlite)


@pytest.mark.parametrize("missing", sorted(ALL))
def test_a_fault_without_its_command_is_refused_and_so_is_a_command_without_its_fault(missing: str) -> None:
    kinds = (RESTART, FAILOVER, DISK_FULL)
    with pytest.raises(InvalidInput, match=f"--{missing} "):
        read_means(kinds, {**ALL, missing: None})
    with pytest.raises(InvalidInput, match=f"--{missing} is given"):
        read_means((KILL,), {missing: ALL[missing]})
    assert read_means(kinds, ALL).failover_to == Upstream(host="there", port=1)


@pytest.mark.parametrize("text", ["", "no-such-program restart", "sh 'unclosed"])
def test_a_command_that_cannot_be_run_is_refused_before_anything_starts(text: str) -> None:
    assert read_means((RESTART,), {"restart-db": "sh -c 'true it is'"}).restart == ("sh", "-c", "true it is")
    with pytest.raises(InvalidInput, match="restart-db"):
        read_means((RESTART,), {"restart-db": text})


def test_addresses_are_read() -> None:
    assert read_address("far:99") == Upstream(host="far", port=99)
    assert read_address("far") == Upstream(host="far", port=5432)
    assert read_address("[::1]:99") == Upstream(host="::1", port=99)
    assert read_address("[::1]") == Upstream(host="::1", port=5432)
    for wrong in ("", ":99", "far:x"):
        with pytest.raises(InvalidInput, match="failover-to"):
            read_address(wrong)


def libraries() -> list[Path]:
    return list(installed_libraries())


def test_a_library_that_fakes_clocks_is_found_and_works() -> None:
    if not libraries():
        need("libfaketime is neither installed nor in the environment")
    assert find_library() in libraries()


def test_a_library_that_is_not_there_or_fakes_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no library"):
        find_library(str(tmp_path / "none.so"))
    useless = tmp_path / "useless.so"
    useless.write_text("not a library")
    with pytest.raises(InvalidInput, match="does not work here") as refused:
        find_library(str(useless))
    assert "pip" in (refused.value.hint or "")


def test_libraries_are_searched_where_distributions_put_them(tmp_path: Path) -> None:
    places = ["usr/lib/x86_64-linux-gnu/faketime", "usr/lib64/faketime", "usr/lib/faketime"]
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "libfaketimeMT.so.1").touch()
    found = [path for path in installed_libraries(tmp_path) if path.is_relative_to(tmp_path)]
    assert [str(path.parent.relative_to(tmp_path)) for path in found] == places


def test_a_clock_is_a_file_of_its_own_that_is_stepped_in_one_piece(tmp_path: Path) -> None:
    clocks = WallClocks(tmp_path, Path("/lib.so"), ("a", "b"))
    assert clocks.environment("c") == {}
    file = Path(clocks.environment("a")["FAKETIME_TIMESTAMP_FILE"])
    assert file.read_text() == "+0.000\n"
    clocks.set("a", -3600)
    assert clocks.environment("a")["FAKETIME_TIMESTAMP_FILE"] == str(file)
    assert file.read_text() == "-3600.000\n"
    assert clocks.environment("b")["FAKETIME_TIMESTAMP_FILE"] != str(file)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.clock", "b.clock"]


class Server:
    """Outages whose commands append a word to a file."""

    def __init__(self, folder: Path, **commands: str) -> None:
        self.log = folder / "log"
        self.applied = Counter[str]()
        self.troubles: list[tuple[str, str]] = []
        self.over = threading.Event()
        self._commands = commands

    def outages(self, proxies: Proxies) -> Outages:
        script = "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + ' '); sys.exit(sys.argv[2].startswith('bad'))"
        words = {
            name: (sys.executable, "-c", script, str(self.log), self._commands.get(name, name))
            for name in ("restart", "failover", "fill", "free")
        }
        means = Means(**words, failover_to=Upstream(host="127.0.0.1", port=1))
        return Outages(
            means,
            proxies,
            applied=self.applied,
            trouble=lambda kind, text: self.troubles.append((kind, text)),
            say=lambda _: None,
            over=self.over,
        )


def fault(kind: str) -> Fault:
    return plan_faults(1, (kind,), length_seconds=10, lease_seconds=0.01)[0]


def test_after_a_failover_the_commands_about_the_first_server_are_not_run(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with Proxies() as proxies:
        outages = server.outages(proxies)
        outages.restart(fault(RESTART))
        for _ in range(2):
            outages.fail_over(fault(RESTART))
        outages.restart(fault(RESTART))
        outages.fill_disk(fault(DISK_FULL))
    assert server.log.read_text().split() == ["restart", "failover"]
    assert (server.applied, server.troubles) == ({RESTART: 1, FAILOVER: 1}, [])


def test_a_full_disk_is_freed_even_when_it_could_not_be_filled(tmp_path: Path) -> None:
    server = Server(tmp_path, fill="bad-fill")
    with Proxies() as proxies:
        server.outages(proxies).fill_disk(fault(DISK_FULL))
    assert server.log.read_text().split() == ["bad-fill", "free"]
    assert (dict(server.applied), [kind for kind, _ in server.troubles]) == ({}, ["fill-failed"])


def test_a_failover_that_failed_is_told_and_everybody_stays_with_the_first_server(tmp_path: Path) -> None:
    server = Server(tmp_path, failover="bad-failover")
    with Proxies() as proxies:
        outages = server.outages(proxies)
        outages.fail_over(fault(RESTART))
        outages.restart(fault(RESTART))
    assert [kind for kind, _ in server.troubles] == ["failover-failed"]
    assert dict(server.applied) == {RESTART: 1, FAILOVER: 0}


def test_what_waits_for_its_turn_at_the_end_does_nothing_any_more(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.over.set()
    with Proxies() as proxies:
        outages = server.outages(proxies)
        outages.restart(fault(RESTART))
        outages.fill_disk(fault(DISK_FULL))
    assert not server.log.exists()


def test_the_first_fault_of_a_kind_waits_until_an_instance_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injector, "VICTIM_SECONDS", 0)
    cluster = Cluster(tmp_path, lambda _: "", lambda _: None)
    with Proxies() as proxies, subprocess.Popen(["sleep", "60"]) as one, subprocess.Popen(["sleep", "60"]) as two:
        cluster._processes = {"one": one, "two": two}
        faults = injector.Injector(
            cluster, proxies, ["one", "two"], leader=lambda: None, means=Means(), say=lambda _: None
        )
        faults._busy.add("one")
        faults.begin(fault(PAUSE))
        threading.Event().wait(0.3)
        assert faults.applied[PAUSE] == 0
        faults._busy.clear()
        eventually(lambda: faults.applied[PAUSE] == 1, 20)
        faults.heal()
        for process in (one, two):
            process.kill()
    assert cluster.troubles == []


def test_a_run_that_is_too_short_for_its_faults_is_refused() -> None:
    flags = ["--db", "postgresql://127.0.0.1:1/nothing", "--faults", "kill,pause,partition,slow-db,rolling"]
    refused = CliRunner().invoke(cli, ["selftest", "--minutes", "0.4", *flags])
    assert isinstance(refused.exception, InvalidInput)
    assert str(refused.exception) == (
        "5 kinds of faults do not fit into 0.4 minutes (--minutes 0.5, or fewer --faults)"
    )
