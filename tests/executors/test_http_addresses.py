"""Where requests may go: the rule itself, and the check at each connection, with names that lie and change."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.executors.http_bench import HttpBench, http_bench
from tests.executors.http_server import Server, running_server
from timeball.errors import SettingsError, TargetError
from timeball.executors.http.addresses import AddressRules
from timeball.executors.http.executor import HttpExecutor, HttpLimits
from timeball.model.states import State

Resolve = Callable[..., list[str]]

REFUSED = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "private",
    "10.0.0.1": "private",
    "100.64.0.1": "not an address of the public internet",
    "100.100.100.200": "metadata",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "168.63.129.16": "metadata",
    "169.254.169.254": "metadata",
    "169.254.1.1": "link-local",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.192": "special purpose",
    "192.0.2.1": "private",
    "192.88.99.1": "special purpose",
    "192.168.1.1": "private",
    "198.18.0.1": "private",
    "203.0.113.9": "private",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::": "unspecified",
    "::1": "loopback",
    "::127.0.0.1": "loopback",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:10.0.0.1": "private",
    "::ffff:169.254.169.254": "metadata",
    "::ffff:0:127.0.0.1": "loopback",
    "64:ff9b::10.0.0.1": "private",
    "64:ff9b::169.254.169.254": "metadata",
    "64:ff9b:1::1": "reserved",
    "100::1": "reserved",
    "2001::1": "private",
    "2001:db8::1": "private",
    "2002:7f00:1::": "loopback",
    "2002:a9fe:a9fe::1": "metadata",
    "3fff::1": "special purpose",
    "5f00::1": "reserved",
    "fc00::1": "private",
    "fd00:ec2::254": "metadata",
    "fd12:3456::1": "private",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "fec0::1": "not a global address",
    "ff02::1": "multicast",
}
ALLOWED = ("1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "64:ff9b::1.1.1.1", "2002:101:101::1")


@pytest.mark.parametrize("address", REFUSED)
def test_what_is_no_address_of_the_public_internet_is_refused(address: str) -> None:
    why = AddressRules().refusal(address)
    assert why is not None
    assert REFUSED[address] in why


@pytest.mark.parametrize("address", ALLOWED)
def test_the_public_internet_is_allowed(address: str) -> None:
    assert AddressRules().refusal(address) is None


def test_the_operator_allows_networks_addresses_and_hosts() -> None:
    rules = AddressRules(["10.2.0.0/16", "127.0.0.1", "fd00::/8", "api.internal"])
    for address in ("10.2.3.4", "127.0.0.1", "::ffff:10.2.3.4", "64:ff9b::10.2.3.4", "fd00::1"):
        assert rules.refusal(address) is None, address
    for address in ("10.3.0.1", "127.0.0.2", "::1", "fc00::1", "::ffff:127.0.0.2"):
        assert rules.refusal(address) is not None, address
    assert rules.allows_host("API.internal.")
    assert not rules.allows_host("x.api.internal")
    assert AddressRules(["0.0.0.0/0", "::/0"]).refusal("169.254.169.254") is None


@pytest.mark.parametrize(
    "entry", ["10.0.0.1/8", "10.0.0.0/40", "300.1.1.1", "::zz", "a b", "", "http://a", "-a", "1.2.3"]
)
def test_an_entry_that_is_neither_network_nor_host_is_refused(entry: str) -> None:
    with pytest.raises(SettingsError, match="http_allow_networks"):
        HttpExecutor(HttpLimits(allow=[entry]))


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server(host="0.0.0.0") as made:
        made.answer("/a")
        yield made


@pytest.fixture
def bench(server: Server) -> Iterator[HttpBench]:
    with http_bench(server, ["127.0.0.1"]) as made:
        yield made


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """Names under our control: for each the answers in turn, the last one for ever. Others are looked up as always."""
    answers: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        found = answers.get(host)
        if found is None:
            return real(host, port, *rest, **more)
        addresses = found.pop(0) if len(found) > 1 else found[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return answers


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.2",
        "localhost",
        "LocalHost.",
        "a.localhost",
        "[::1]",
        "[::ffff:127.0.0.2]",
        "0.0.0.0",
        "169.254.169.254",
    ],
)
def test_an_address_in_the_url_is_refused_when_the_job_is_saved(server: Server, host: str) -> None:
    with http_bench(server, []) as bench:
        with pytest.raises(TargetError, match="http_allow_networks") as caught:
            bench.registry.check("http", {"url": f"http://{host}:{server.port}/a"}, {})
        assert caught.value.field == "target.url"


@pytest.mark.parametrize("host", ["127.2", "0x7f000002", "2130706434", "0177.0.0.2", "0", "127.0.0.2.", "①②⑦.0.0.2"])
def test_no_spelling_of_an_address_gets_round_the_check(bench: HttpBench, server: Server, host: str) -> None:
    outcome = bench.run(f"http://{host}:{server.port}/a", connect_timeout_seconds=5)
    assert outcome.state is State.FAILED
    assert outcome.reason in ("address", "connect", "redirect", "target")
    assert server.received == []


def test_a_name_that_leads_to_a_refused_address_is_refused_with_both(
    bench: HttpBench, server: Server, names: dict[str, list[list[str]]]
) -> None:
    names["inside.test"] = [["127.0.0.2", "10.0.0.1"]]
    outcome = bench.run(f"http://inside.test:{server.port}/a")
    assert (outcome.state, outcome.reason) == (State.FAILED, "address")
    expected = "requests to inside.test are refused: 127.0.0.2 (a loopback address), 10.0.0.1 (a private address)"
    assert expected in (outcome.error or "")
    assert server.received == []


def test_of_a_name_with_both_only_the_allowed_address_is_used(
    bench: HttpBench, server: Server, names: dict[str, list[list[str]]]
) -> None:
    names["both.test"] = [["127.0.0.2", "127.0.0.1"]]
    outcome = bench.run(f"http://both.test:{server.port}/a")
    assert outcome.state is State.SUCCEEDED
    assert "from 127.0.0.1" in outcome.outputs[0].text
    assert server.received[0].headers["host"] == f"both.test:{server.port}"


def test_a_name_that_changes_after_the_check_leads_nowhere_else(
    bench: HttpBench, server: Server, names: dict[str, list[list[str]]]
) -> None:
    names["rebind.test"] = [["127.0.0.1"], ["127.0.0.2"]]
    first = bench.run(f"http://rebind.test:{server.port}/a")
    assert "from 127.0.0.1" in first.outputs[0].text
    assert names["rebind.test"] == [["127.0.0.2"]], "one lookup for one connection"
    assert bench.run(f"http://rebind.test:{server.port}/a").reason == "address"
    assert len(server.received) == 1


def test_a_host_that_is_allowed_by_name_may_lead_anywhere(server: Server, names: dict[str, list[list[str]]]) -> None:
    names["api.internal"] = names["other.internal"] = [["127.0.0.2"]]
    with http_bench(server, ["api.internal"]) as bench:
        assert bench.run(f"http://api.internal:{server.port}/a").state is State.SUCCEEDED
        assert bench.run(f"http://other.internal:{server.port}/a").reason == "address"


def test_every_redirect_is_checked_as_well(bench: HttpBench, server: Server, names: dict[str, list[list[str]]]) -> None:
    names["inside.test"] = [["127.0.0.2"]]
    for number, target in enumerate((f"//inside.test:{server.port}/a", f"http://127.0.0.2:{server.port}/a")):
        url = server.answer(f"/go{number}", status=302, headers={"Location": target})
        outcome = bench.run(url, redirects_max=5)
        assert (outcome.state, outcome.reason) == (State.FAILED, "address")
    assert {request.path for request in server.received} == {"/go0", "/go1"}


def test_the_next_address_is_tried_when_the_first_does_not_answer(
    server: Server, names: dict[str, list[list[str]]]
) -> None:
    with running_server(host="127.0.0.1") as only, http_bench(server, ["127.0.0.0/8"]) as bench:
        only.answer("/a")
        names["two.test"] = [["127.0.0.3", "127.0.0.1"]]
        outcome = bench.run(f"http://two.test:{only.port}/a")
        assert outcome.state is State.SUCCEEDED
        assert len(only.received) == 1


def test_a_name_server_that_does_not_answer_holds_up_one_name_only(
    bench: HttpBench, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, real = threading.Event(), socket.getaddrinfo

    def look_up(host: Any, *rest: Any, **more: Any) -> Any:
        if host == "slow.test":
            release.wait(30)
            raise socket.gaierror(-3, "no answer")
        return real("127.0.0.1" if host == "quick.test" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    slow = [bench.start({"url": "http://slow.test/", "connect_timeout_seconds": 0.5}) for _ in range(50)]
    assert bench.run(f"http://quick.test:{server.port}/a").state is State.SUCCEEDED
    lookups = [thread for thread in threading.enumerate() if thread.name == "timeball-lookup"]
    assert len(lookups) == 1
    for work, outcomes in slow:
        (outcome,) = outcomes.wait(work)
        assert (outcome.state, outcome.reason) == (State.FAILED, "connect")
        assert "slow.test was not looked up within 0.5 s" in (outcome.error or "")
    release.set()
    lookups[0].join(10)
