"""The parts of `timeball selftest` by themselves: the plan of faults, the evidence, the URLs, the proxy."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from timeball.errors import InvalidInput
from timeball.selftest.addresses import Upstream, through_proxy, upstream_of, with_search_path
from timeball.selftest.evidence import BEGIN, END, Writer, read_marks
from timeball.selftest.faults import KINDS, plan_faults, read_kinds, read_restart
from timeball.selftest.proxy import FROM_DATABASE, TO_DATABASE, Proxies


def test_the_same_seed_gives_the_same_faults_and_every_kind_comes_first_of_all() -> None:
    plan = plan_faults(5, KINDS, length_seconds=300, lease_seconds=4)
    assert plan == plan_faults(5, KINDS, length_seconds=300, lease_seconds=4)
    assert plan != plan_faults(6, KINDS, length_seconds=300, lease_seconds=4)
    assert sorted(fault.kind for fault in plan[: len(KINDS)]) == sorted(KINDS)
    assert all(fault.at_seconds <= 295 for fault in plan)
    assert plan_faults(5, (), length_seconds=300, lease_seconds=4) == []


@pytest.mark.parametrize(
    ("text", "sqlite", "restart", "words"),
    [
        ("kill,earthquake", False, None, "earthquake"),
        ("kill,partition", True, None, "partition"),
        ("db-restart", False, None, "restart"),
        ("kill", False, "true", "db-restart"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(text: str, sqlite: bool, restart: str | None, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read_kinds(text, sqlite=sqlite, restart=restart)


@pytest.mark.parametrize("text", ["", "no-such-program restart", "sh 'unclosed"])
def test_a_restart_that_cannot_be_run_is_refused_before_anything_starts(text: str) -> None:
    assert read_restart("sh -c 'true it is'") == ("sh", "-c", "true it is")
    with pytest.raises(InvalidInput, match="restart-db"):
        read_restart(text)


def test_evidence_is_read_back_and_a_torn_line_is_told(tmp_path: Path) -> None:
    for name in ("a-1", "b-2"):
        writer = Writer(path=tmp_path / f"{name}.jsonl", instance=name[0])
        writer.mark(BEGIN, job="j", kind="scheduled", due_at=1, run_id=2, attempt=1, fence=3)
        writer.mark(END, job="j", kind="scheduled", due_at=1, run_id=2, attempt=1, fence=3)
    with (tmp_path / "b-2.jsonl").open("a") as file:
        file.write('{"what":"be')
    marks, broken = read_marks(tmp_path)
    assert [m.what for m in marks] == [BEGIN, END, BEGIN, END]
    assert [line.split(":")[0] for line in broken] == ["b-2.jsonl"]


def test_urls_get_a_schema_and_a_way_through_a_proxy() -> None:
    url = with_search_path("postgresql://u:p@db.example:6432/app?sslmode=require", "scratch")
    assert url == "postgresql://u:p@db.example:6432/app?sslmode=require&options=-csearch_path%3Dscratch"
    assert upstream_of(url, {}) == Upstream(host="db.example", port=6432)
    assert through_proxy(url, 7000).startswith("postgresql://u:p@db.example:7000/app?sslmode=require&options=")
    assert through_proxy(url, 7000).endswith("&hostaddr=127.0.0.1")
    assert upstream_of("postgresql:///app?host=/sockets", {}).socket == "/sockets/.s.PGSQL.5432"
    assert upstream_of("postgresql:///app", {"PGHOST": "far", "PGPORT": "99"}) == Upstream(host="far", port=99)
    with pytest.raises(InvalidInput, match="several"):
        upstream_of("postgresql://a,b/app", {})


class Echo:
    """A server that sends back what it gets, and a connection to it through a proxy."""

    def __init__(self, proxies: Proxies) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        self.link = proxies.add("a", Upstream(host="127.0.0.1", port=self.listener.getsockname()[1]))

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(100):
                    connection.sendall(data)
            except OSError:
                pass

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.link.port), 5)
        connection.sendall(b"one")
        assert connection.recv(10) == b"one"
        return connection


@pytest.mark.parametrize("directions", [(TO_DATABASE,), (FROM_DATABASE,), (TO_DATABASE, FROM_DATABASE)])
@pytest.mark.parametrize("resets", [False, True])
def test_a_shut_direction_holds_and_then_goes_on_or_is_reset(directions: tuple[str, ...], resets: bool) -> None:
    with Proxies() as proxies:
        echo = Echo(proxies)
        with echo.connect() as connection, echo.listener:
            proxies.do(echo.link.shut(*directions))
            connection.sendall(b"two")
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(10)
            connection.settimeout(5)
            proxies.do(echo.link.heal(resets=resets))
            if resets:
                with pytest.raises(ConnectionResetError):
                    connection.recv(10)
            else:
                assert connection.recv(10) == b"two"


def test_a_link_that_refuses_breaks_what_there_is_and_comes_back_on_the_same_port() -> None:
    with Proxies() as proxies:
        echo = Echo(proxies)
        with echo.connect() as connection, echo.listener:
            proxies.do(echo.link.refuse())
            with pytest.raises(ConnectionResetError):
                connection.recv(10)
            with pytest.raises(ConnectionRefusedError):
                echo.connect()
            proxies.do(echo.link.heal(resets=False))
            echo.connect().close()
