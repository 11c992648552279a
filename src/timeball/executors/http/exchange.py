"""One attempt: requests, redirects, the response, and what is to be said of it. Needs the extra `http`.

Owns its connections: they are opened for it and closed with it. None is kept for the next attempt, since one that the
far side has closed meanwhile would make a request fail of which nobody knows whether it has arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

import httpcore2
import httpx2

from timeball.clock import monotonic_us
from timeball.executors.capture import BoundedCapture
from timeball.executors.http.addresses import AddressRules, refused_words
from timeball.executors.http.network import AddressRefused, CheckedBackend
from timeball.executors.http.requests import REDIRECTS, Hop, RedirectRefused, Requests
from timeball.executors.http.retry_after import retry_after_us
from timeball.executors.http.target import HttpTarget, shown_url
from timeball.executors.redaction import Redactor
from timeball.model.run import Output, Work
from timeball.model.states import State

EXCERPT_CHARS_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What all exchanges share. `proxy`: where all requests go, or None; `bytes_max`: of a body, kept and read."""

    rules: AddressRules
    backend: CheckedBackend
    verified: ssl.SSLContext
    unverified: ssl.SSLContext
    proxy: httpcore2.Proxy | None
    kept_bytes_max: int
    response_bytes_max: int


class Verdict(NamedTuple):
    """How an exchange ended."""

    state: State
    reason: str | None = None
    error: str | None = None
    retry_after_us: int | None = None


class Exchange:
    """The requests of one attempt and their last response. What it has found so far can be asked for at any time."""

    def __init__(self, work: Work, target: HttpTarget, means: Means) -> None:
        self._target = target
        self._means = means
        self._requests = Requests(work, target)
        self._redactor = Redactor(self._requests.secrets)
        self._hidden = self._redactor.stream()
        self._body = BoundedCapture(means.kept_bytes_max)
        self._read_bytes = 0
        self._lines = [f"traceparent {self._requests.traceparent}"]
        self._status: int | None = None
        self._at = f"{target.method} {shown_url(target.url)}"

    async def run(self) -> Verdict:
        """Send and receive, following redirects as far as the target says. Raises nothing but a cancel."""
        pool = httpcore2.AsyncConnectionPool(
            ssl_context=self._means.verified if self._target.tls_verify else self._means.unverified,
            proxy=self._means.proxy,
            max_connections=1,
            max_keepalive_connections=0,
            network_backend=self._means.backend,
        )
        try:
            async with pool:
                verdict = await self._follow(pool)
        except Exception as error:  # noqa: BLE001 - whatever the far side does ends this run only
            verdict = self._failed(error)
        return verdict._replace(error=None if verdict.error is None else self._redactor.text(verdict.error))

    def outputs(self) -> tuple[Output, ...]:
        """The steps that were made, and the body of the last response."""
        steps = BoundedCapture(self._means.kept_bytes_max)
        steps.add(self._redactor.text("".join(f"{line}\n" for line in self._lines)).encode())
        self._body.add(self._hidden.flush())
        found = (steps.output("http"), self._body.output("response"))
        return tuple(output for output in found if output is not None)

    def result(self) -> str:
        """Status and trace, as JSON."""
        return json.dumps({"status": self._status, "traceparent": self._requests.traceparent})

    @property
    def at(self) -> str:
        """The request that is on its way, or was the last: method and URL."""
        return self._redactor.text(self._at)

    async def _follow(self, pool: httpcore2.AsyncConnectionPool) -> Verdict:
        hop = self._requests.first()
        for left in range(self._target.redirects_max, -1, -1):
            self._at = hop.shown
            begun = monotonic_us()
            async with self._sent(pool, hop) as response:
                status, location = response.status_code, response.headers.get("location")
                self._status = status
                leads_on = status in REDIRECTS and location is not None and status not in self._target.expected
                if not leads_on or not left:
                    await self._read(response)
                self._note(hop, response, begun)
            if not leads_on or location is None:
                return self._judged(response)
            if not left:
                return self._unfollowed(status, location)
            hop = self._requests.after(hop, status, location)
        raise AssertionError("the last hop returns")

    @contextlib.asynccontextmanager
    async def _sent(self, pool: httpcore2.AsyncConnectionPool, hop: Hop) -> AsyncGenerator[httpx2.Response]:
        if self._means.proxy is not None and (why := self._means.rules.refusal_of_literal(hop.url.host)):
            raise AddressRefused(refused_words(hop.url.host, [(hop.url.host, why)]))
        request = self._requests.build(hop)
        read, connect = self._target.read_timeout_seconds, self._target.connect_timeout_seconds
        url = request.url
        core = await pool.handle_async_request(
            httpcore2.Request(
                request.method,
                httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=hop.content or b"",
                extensions={"timeout": {"connect": connect, "read": read, "write": read}},
            )
        )
        stream = core.extensions.get("network_stream")
        peer = None if stream is None else stream.get_extra_info("server_addr")
        response = httpx2.Response(
            core.status,
            headers=core.headers,
            stream=_Stream(core),
            request=request,
            extensions={"peer": None if peer is None else str(peer[0])},
        )
        try:
            yield response
        finally:
            await response.aclose()

    async def _read(self, response: httpx2.Response) -> None:
        """Take the body, decoded; its bound counts decoded bytes, so that a small one cannot become a big one."""
        async with contextlib.aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                self._read_bytes += len(chunk)
                self._body.add(self._hidden.feed(chunk))
                if self._read_bytes > self._means.response_bytes_max:
                    raise _TooLong(self._means.response_bytes_max)
                await asyncio.sleep(0)  # chunks that come out of one piece leave the others their turn

    def _note(self, hop: Hop, response: httpx2.Response, begun: int) -> None:
        status, took_ms = response.status_code, (monotonic_us() - begun) / 1000
        parts = [f"{hop.shown} -> {status}{_phrase(status)} in {took_ms:.0f} ms"]
        parts += [f"from {peer}"] if (peer := response.extensions.get("peer")) else []
        parts += [
            f"{name}: {response.headers[name]}" for name in ("content-type", "retry-after") if name in response.headers
        ]
        self._lines.append(", ".join(parts))

    def _judged(self, response: httpx2.Response) -> Verdict:
        status = response.status_code
        if status in self._target.expected:
            return Verdict(State.SUCCEEDED)
        wait = retry_after_us(response.headers.get("retry-after"), response.headers.get("date"))
        return Verdict(
            State.FAILED, "http-status", f"{self._at} answered {status}{_phrase(status)}{self._excerpt()}", wait
        )

    def _unfollowed(self, status: int, location: str) -> Verdict:
        where = shown_url(location) if "://" in location else location.partition("?")[0]
        most = self._target.redirects_max
        hint = f"redirects_max is {most}" if most else "redirects are not followed; redirects_max allows some"
        words = f"{self._at} answered {status}{_phrase(status)} to {where} ({hint})"
        return Verdict(State.FAILED, "redirect", words)

    def _excerpt(self) -> str:
        """The beginning of the body on one line."""
        self._body.add(self._hidden.flush())
        output = self._body.output("response")
        text = "" if output is None else " ".join(output.text.split())
        return f": {text[:EXCERPT_CHARS_MAX]}" if text else ""

    def _failed(self, error: Exception) -> Verdict:
        words = str(error) or type(error).__name__
        if isinstance(error, httpcore2.TimeoutException):
            return self._timed_out(error, words)
        for kinds, reason, said in _TROUBLE:
            if isinstance(error, kinds):
                return Verdict(State.FAILED, reason, f"{self._at}: {said}{words}")
        raise AssertionError(f"no words for {type(error).__name__}") from error  # the last row takes them all

    def _timed_out(self, error: Exception, words: str) -> Verdict:
        if isinstance(error, httpcore2.ConnectTimeout):
            limit = f"connect_timeout_seconds is {self._target.connect_timeout_seconds:g}"
            return Verdict(State.FAILED, "connect", f"{self._at}: no connection in time: {words} ({limit})")
        limit = f"read_timeout_seconds is {self._target.read_timeout_seconds:g}"
        return Verdict(State.TIMED_OUT, "timeout", f"{self._at}: the far side went silent ({limit})")


class _TooLong(Exception):
    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"more than {bytes_max} bytes; the setting http_response_bytes_max bounds what is read")


class _Stream(httpx2.AsyncByteStream):
    """The body of a response of httpcore2, for the decoders of httpx2."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._response.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self._response.aclose()


_TROUBLE: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...] = (
    (AddressRefused, "address", ""),
    (RedirectRefused, "redirect", ""),
    (httpcore2.ProxyError, "connect", "the proxy refused: "),
    (httpcore2.ConnectError, "connect", "no connection: "),
    ((httpcore2.ReadError, httpcore2.WriteError), "connection", "the connection broke: "),
    (httpx2.DecodingError, "response", "the body cannot be decoded: "),
    (_TooLong, "response", "the body is too long: "),
    (Exception, "response", "no proper answer: "),
)


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""
