"""The parts of `timeball selftest` by themselves: the evidence, the URLs, the proxy."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from timeball.errors import InvalidInput
from timeball.selftest.addresses import Upstream, through_proxy, upstream_of, with_search_path
from timeball.selftest.evidence import BEGIN, END, Writer, read_marks
from timeball.selftest.proxy import FROM_DATABASE, TO_DATABASE, Proxies


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
        self.address = Upstream(host="127.0.0.1", port=self.listener.getsockname()[1])
        self.link = proxies.add("a", self.address)

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


def test_a_barred_link_lets_nobody_through_whatever_is_healed_and_then_leads_to_the_other_server() -> None:
    with Proxies() as proxies:
        echo, other = Echo(proxies), Echo(proxies)
        with echo.connect() as connection, echo.listener, other.listener:
            proxies.do(echo.link.bar())
            with pytest.raises(ConnectionResetError):
                connection.recv(10)
            proxies.do(echo.link.heal(resets=True))
            with pytest.raises(ConnectionRefusedError):
                echo.connect()
            echo.listener.close()
            proxies.do(echo.link.unbar(other.address))
            echo.connect().close()


def test_who_waited_at_a_shut_link_is_led_to_the_other_server_as_well() -> None:
    with Proxies() as proxies:
        echo, other = Echo(proxies), Echo(proxies)
        with echo.listener, other.listener:
            proxies.do(echo.link.shut(TO_DATABASE))
            proxies.do(echo.link.bar())
            proxies.do(echo.link.unbar(other.address))
            echo.listener.close()
            with socket.create_connection(("127.0.0.1", echo.link.port), 5) as connection:
                connection.sendall(b"one")
                proxies.do(echo.link.heal(resets=False))
                assert connection.recv(10) == b"one"


def test_a_connection_that_the_old_server_takes_after_the_change_is_reset() -> None:
    with Proxies() as proxies, socket.create_server(("127.0.0.1", 0), backlog=0) as old:
        echo = Echo(proxies)
        address = Upstream(host="127.0.0.1", port=old.getsockname()[1])
        link = proxies.add("b", address)
        with (
            echo.listener,
            socket.create_connection((address.host, address.port), 5),  # the one for which there is room
            socket.create_connection(("127.0.0.1", link.port), 5) as connection,
        ):
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(10)
            proxies.do(link.bar())
            proxies.do(link.unbar(echo.address))
            old.accept()[0].close()
            connection.settimeout(10)
            with pytest.raises(ConnectionResetError):
                connection.recv(10)
