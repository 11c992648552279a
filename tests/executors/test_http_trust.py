"""What is private stays where it belongs: redirects, signatures, TLS, proxies, secrets; through real connections."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import need
from tests.executors.bench_of_work import output_of
from tests.executors.http_bench import HttpBench, http_bench
from tests.executors.http_server import Received, Server, running_server
from timeball.errors import SettingsError, TargetError
from timeball.executors.http.executor import HttpExecutor, HttpLimits
from timeball.executors.http.target import read_target, shown_url
from timeball.model.states import State

TOKEN, KEY, PASSWORD = "tok-0123456789", "key-abcdefghij", "p:w?/ \u00e4 word"
SECRETS = {"TIMEBALL_SECRET_TOKEN": TOKEN, "TIMEBALL_SECRET_KEY": KEY, "TIMEBALL_SECRET_PW": PASSWORD}
PRIVATE = {
    "headers": {"Authorization": "Bearer ${secret:TOKEN}", "X-Plain": "also private"},
    "sign_with": "${secret:KEY}",
}
DOCS = Path(__file__).resolve().parents[2] / "docs/executors.md"


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server() as made:
        yield made


@pytest.fixture
def bench(server: Server) -> Iterator[HttpBench]:
    with http_bench(server) as made:
        made.environ.update(SECRETS)
        yield made


@pytest.fixture
def other() -> Iterator[Server]:
    """Another port is another origin."""
    with running_server() as made:
        made.answer("/end", body=b"end")
        yield made


def redirect(server: Server, path: str, to: str, status: int = 302) -> str:
    return server.answer(path, status=status, headers={"Location": to})


def test_a_redirect_is_a_failure_that_names_where_it_leads(bench: HttpBench, server: Server, other: Server) -> None:
    outcome = bench.run(redirect(server, "/go", f"{other.url}/end?token=1"))
    assert (outcome.state, outcome.reason) == (State.FAILED, "redirect")
    words = f"GET {server.url}/go answered 302 Found to {other.url}/end?*** (redirects are not followed"
    assert words in (outcome.error or "")
    assert other.received == []


def test_as_many_redirects_are_followed_as_are_allowed(bench: HttpBench, server: Server) -> None:
    server.answer("/end", body=b"end")
    for number in range(3):
        redirect(server, f"/{number}", f"/{number + 1}" if number < 2 else "end")
    outcome = bench.run(server.url + "/0", redirects_max=3)
    assert (outcome.state, output_of(outcome, "response")) == (State.SUCCEEDED, "end")
    assert [line.split(" ")[1][-4:] for line in output_of(outcome, "http").splitlines()[1:]] == [
        f"{server.port}/{path}"[-4:] for path in ("0", "1", "2", "end")
    ]
    assert "redirects_max is 2" in (bench.run(server.url + "/0", redirects_max=2).error or "")
    redirect(server, "/round", "/round")
    assert bench.run(server.url + "/round", redirects_max=20).reason == "redirect"


@pytest.mark.parametrize(
    ("status", "method", "then", "body"),
    [
        (301, "POST", "GET", b""),
        (302, "POST", "GET", b""),
        (302, "PUT", "PUT", b"data"),
        (303, "PUT", "GET", b""),
        (307, "POST", "POST", b"data"),
        (308, "PATCH", "PATCH", b"data"),
    ],
)
def test_what_a_redirect_makes_of_method_and_body(
    bench: HttpBench, server: Server, status: int, method: str, then: str, body: bytes
) -> None:
    server.answer("/end")
    url = redirect(server, "/go", "/end", status)
    assert bench.run(url, method=method, body="data", redirects_max=1).state is State.SUCCEEDED
    last = server.received[-1]
    assert (last.method, last.body) == (then, body)
    assert ("content-type" in last.headers) == bool(body)


def test_what_is_private_goes_along_on_the_same_host_only(bench: HttpBench, server: Server, other: Server) -> None:
    redirect(server, "/go", "/on")
    redirect(server, "/on", f"{other.url}/away")
    redirect(other, "/away", f"{server.url}/back")
    server.answer("/back")
    assert bench.run(server.url + "/go", redirects_max=5, **PRIVATE).state is State.SUCCEEDED
    go, on, back = (request.headers for request in server.received)
    (away,) = (request.headers for request in other.received)
    for sent in (go, on):
        assert (sent["authorization"], sent["x-plain"]) == (f"Bearer {TOKEN}", "also private")
        assert "timeball-signature" in sent
    assert go["timeball-signature"] != on["timeball-signature"]
    for sent in (away, back):
        assert not {"authorization", "x-plain", "timeball-signature"} & set(sent)
        assert sent["idempotency-key"] == go["idempotency-key"]


def test_basic_credentials_are_sent_hidden_and_stay_on_their_host(
    bench: HttpBench, server: Server, other: Server
) -> None:
    redirect(server, "/go", f"{other.url}/end")
    outcome = bench.run(server.url + "/go", redirects_max=1, basic_auth="anna:${secret:PW}")
    assert outcome.state is State.SUCCEEDED
    scheme, _, encoded = server.received[0].headers["authorization"].partition(" ")
    assert (scheme, base64.b64decode(encoded).decode()) == ("Basic", f"anna:{PASSWORD}")
    assert "authorization" not in other.received[0].headers


def test_a_body_with_a_secret_is_not_carried_to_another_host(bench: HttpBench, server: Server, other: Server) -> None:
    url = redirect(server, "/go", f"{other.url}/end", 307)
    outcome = bench.run(url, redirects_max=1, json={"token": ["${secret:TOKEN}"]})
    assert (outcome.state, outcome.reason) == (State.FAILED, "redirect")
    assert "would carry the body's secret to another host" in (outcome.error or "")
    assert other.received == []
    assert bench.run(url, redirects_max=1, json={"token": "public"}).state is State.SUCCEEDED


@pytest.mark.parametrize(
    "to", ["ftp://127.0.0.1/", "javascript:alert(1)", "http://[::1", "http://", "file:///etc/passwd"]
)
def test_a_redirect_to_something_else_is_not_followed(bench: HttpBench, server: Server, to: str) -> None:
    outcome = bench.run(redirect(server, "/go", to), redirects_max=1)
    assert (outcome.state, outcome.reason) == (State.FAILED, "redirect"), outcome.error


def test_the_documented_check_accepts_what_we_sign_and_nothing_else(bench: HttpBench, server: Server) -> None:
    (block,) = (code for code in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL) if "hmac" in code)
    scope: dict[str, Any] = {}
    exec(block, scope)
    bench.run(server.answer("/a") + "?q=%C3%A4&r", method="POST", body="b\u00f6dy", sign_with="${secret:KEY}")
    (request,) = server.received
    header = request.headers["timeball-signature"]
    at = int(header[2:].partition(",")[0])
    right = (KEY, header, request.method, request.path, request.body, at + 299.0)
    assert scope["is_from_timeball"](*right)
    wrong = ["other-key", header.replace("v1=", "v1=0"), "PUT", "/a?q=x", b"other", at + 301.0]
    for place, value in enumerate(wrong):
        changed = (*right[:place], value, *right[place + 1 :])
        assert not scope["is_from_timeball"](*changed), value
    for garbage in ("", "t=1", "v1=a", "t=x,v1=y", "t=\u00b2,v1=y"):
        assert not scope["is_from_timeball"](KEY, garbage, *right[2:])


def test_an_echo_of_what_was_sent_shows_no_secret_anywhere(
    bench: HttpBench, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async def echo(request: Received, writer: asyncio.StreamWriter) -> None:
        body = json.dumps([request.path, request.headers, request.body.decode()]).encode()
        writer.write(b"HTTP/1.1 500 X\r\n\r\n")
        for byte in body:
            writer.write(bytes([byte]))
            await writer.drain()

    with caplog.at_level(logging.DEBUG):
        outcome = bench.run(
            server.does("/echo", echo) + "?key=${secret:TOKEN}",
            headers={"X-Token": "${secret:TOKEN}"},
            form={"password": "${secret:PW}"},
            basic_auth="anna:${secret:PW}",
            sign_with="${secret:KEY}",
        )
    (request,) = server.received
    assert request.path.endswith(TOKEN)
    basic = request.headers["authorization"].removeprefix("Basic ")
    assert outcome.reason == "http-status"
    text = repr(outcome) + caplog.text
    for secret in (TOKEN, KEY, PASSWORD, basic, json.dumps(PASSWORD)[1:-1], request.body.decode().partition("=")[2]):
        assert secret not in text, secret
    assert '"x-token": "***"' in output_of(outcome, "response")
    assert '"authorization": "Basic ***"' in output_of(outcome, "response")


def test_a_secret_that_cannot_be_sent_is_refused_without_being_shown(bench: HttpBench, server: Server) -> None:
    bench.environ["TIMEBALL_SECRET_TWO"] = "two\r\nX-Injected: lines"
    outcome = bench.run(server.answer("/a"), headers={"X-Key": "${secret:TWO}"})
    assert (outcome.state, outcome.reason) == (State.FAILED, "target")
    assert "a value of 'X-Key' that a header cannot carry" in (outcome.error or "")
    assert "Injected" not in repr(outcome)
    outcome = bench.run("http://${secret:TWO}/", connect_timeout_seconds=1)
    assert outcome.reason == "target"
    assert "Injected" not in repr(outcome)
    assert server.received == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:p@example.org:8443/a/b?token=1&x#f", "https://example.org:8443/a/b?***"),
        ("http://[::1]/", "http://[::1]/"),
        ("http://[", "(not a URL)"),
    ],
)
def test_urls_for_people_hold_no_credentials(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ({}, "url"),
        ({"url": "example.org"}, "url"),
        ({"url": "https://u:p@example.org/"}, "url"),
        ({"url": "https://example.org:99999/"}, "url"),
        ({"url": "https://example.org/a b"}, "url"),
        ({"url": "https://example.org/\n"}, "url"),
        ({"method": "GET /"}, "method"),
        ({"method": "CONNECT"}, "method"),
        ({"headers": ["a"]}, "headers"),
        ({"headers": {"a b": "x"}}, "headers"),
        ({"headers": {"A": "x\ny"}}, "headers"),
        ({"headers": {"A": "1", "a": "2"}}, "headers"),
        ({"headers": {"A": 1}}, "headers"),
        ({"headers": {"Host": "x"}}, "headers"),
        ({"headers": {"Timeball-Fence": "x"}}, "headers"),
        ({"headers": {"transfer-encoding": "chunked"}}, "headers"),
        ({"body": {"a": 1}}, "body"),
        ({"body": "a", "json": 1}, "json"),
        ({"form": ["a"]}, "form"),
        ({"form": {"a": 1}}, "form"),
        ({"expected_statuses": []}, "expected_statuses"),
        ({"expected_statuses": 200}, "expected_statuses"),
        ({"expected_statuses": ["6xx"]}, "expected_statuses"),
        ({"expected_statuses": [True]}, "expected_statuses"),
        ({"redirects_max": -1}, "redirects_max"),
        ({"redirects_max": 21}, "redirects_max"),
        ({"connect_timeout_seconds": 0}, "connect_timeout_seconds"),
        ({"read_timeout_seconds": "5"}, "read_timeout_seconds"),
        ({"tls_verify": "no"}, "tls_verify"),
        ({"sign_with": "plain"}, "sign_with"),
        ({"sign_with": "$${secret:A}"}, "sign_with"),
        ({"basic_auth": "anna:plain"}, "basic_auth"),
        ({"basic_auth": "a:${secret:A}", "headers": {"authorization": "x"}}, "basic_auth"),
    ],
)
def test_a_malformed_target_is_refused_by_field(target: dict[str, Any], field: str) -> None:
    given = {"url": "https://example.org/"} | target if target else {}
    with pytest.raises(TargetError) as caught:
        read_target(given)
    assert caught.value.field == f"target.{field}"


# --- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for job.test and its key, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    command = (
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=job.test"),
        *("-addext", "subjectAltName=DNS:job.test", "-keyout", "key.pem", "-out", "cert.pem"),
    )
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        need(f"no certificate could be made: {error}")
    return folder / "cert.pem"


@pytest.fixture
def seen_names() -> list[str | None]:
    return []


@pytest.fixture
def tls_server(certificate: Path, seen_names: list[str | None]) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    context.sni_callback = lambda _, name, __: seen_names.append(name)
    with running_server(context) as made:
        made.answer("/a", body=b"sealed")
        yield made


@pytest.fixture
def _job_test(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = "timeball.executors.http.names.look_up"
    monkeypatch.setattr(look_up, lambda host: ["127.0.0.1"] if host.endswith(".test") else OSError("unknown"))


@pytest.mark.usefixtures("_job_test")
def test_a_certificate_that_nobody_vouches_for_is_refused_unless_the_target_says_so(tls_server: Server) -> None:
    url = f"https://job.test:{tls_server.port}/a"
    with http_bench(tls_server) as bench:
        outcome = bench.run(url)
        assert (outcome.state, outcome.reason) == (State.FAILED, "connect")
        assert "certificate verify failed" in (outcome.error or "").lower().replace("_", " ")
        assert tls_server.received == []
        assert output_of(bench.run(url, tls_verify=False), "response") == "sealed"


@pytest.mark.usefixtures("_job_test")
def test_a_certificate_of_the_operators_is_trusted_for_its_name_only(
    tls_server: Server, certificate: Path, seen_names: list[str | None]
) -> None:
    with http_bench(tls_server, ca_file=str(certificate)) as bench:
        assert bench.run(f"https://job.test:{tls_server.port}/a").state is State.SUCCEEDED
        assert seen_names == ["job.test"], "the name goes along, though an address was connected to"
        outcome = bench.run(f"https://wrong.test:{tls_server.port}/a")
        assert outcome.reason == "connect"
        assert "wrong.test" in (outcome.error or "")


def test_certificates_that_are_not_there_fail_the_run_in_words(server: Server) -> None:
    with http_bench(server, ca_file="/no/such.pem") as bench:
        outcome = bench.run(server.answer("/a"))
        assert (outcome.state, outcome.reason) == (State.FAILED, "http")
        assert "http_ca_file '/no/such.pem' cannot be used" in (outcome.error or "")


# --- proxies


def test_proxies_and_passwords_of_the_environment_are_ignored(
    bench: HttpBench, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    assert bench.run(server.answer("/a")).state is State.SUCCEEDED
    assert "authorization" not in server.received[0].headers


def test_the_proxy_of_the_settings_gets_every_request_and_its_password(server: Server) -> None:
    server.answers[f"http://far.example:{server.port}/a"] = _proxied
    proxy = f"http://user:p%40ss@127.0.0.1:{server.port}"
    with http_bench(server, [], proxy=proxy) as bench:
        outcome = bench.run(f"http://far.example:{server.port}/a")
        assert output_of(outcome, "response") == "by proxy"
        sent = server.received[0].headers
        assert base64.b64decode(sent["proxy-authorization"].partition(" ")[2]) == b"user:p@ss"
        for inside in ("10.0.0.1", "localhost", "169.254.169.254"):
            assert bench.run(f"http://{inside}/").reason == "target"
        server.answers[f"http://far.example:{server.port}/go"] = _to_metadata
        assert bench.run(f"http://far.example:{server.port}/go", redirects_max=1).reason == "address"


async def _proxied(_: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nby proxy")


async def _to_metadata(_: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 302 X\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("proxy", ["127.0.0.1:3128", "socks5://127.0.0.1", "http://", "http://a:x/"])
def test_a_proxy_that_is_none_is_refused(proxy: str) -> None:
    with pytest.raises(SettingsError) as caught:
        HttpExecutor(HttpLimits(proxy=proxy))
    assert caught.value.field == "http_proxy"


def test_a_tunnel_that_the_proxy_refuses_is_told(server: Server) -> None:
    async def no(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    server.answers["far.example:443"] = no
    with http_bench(server, [], proxy=server.url) as bench:
        outcome = bench.run("https://far.example/")
        assert outcome.reason == "connect"
        assert "the proxy refused: 403 Forbidden" in (outcome.error or "")
