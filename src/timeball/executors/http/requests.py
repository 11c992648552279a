"""What is sent: the first request of an attempt, and those that follow its redirects. Needs the extra `http`."""

from __future__ import annotations

import base64
import secrets
import uuid
from dataclasses import dataclass
from urllib.parse import quote

import httpx2

from timeball.clock import format_instant, wall_us
from timeball.executors.http.signing import signature
from timeball.executors.http.target import HttpTarget, shown_url
from timeball.model.run import Work
from timeball.version import VERSION

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SECOND_US = 1_000_000


class RedirectRefused(Exception):
    """A redirect that cannot or must not be followed, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One request to come. `trusted`: it goes where the job says, so what is private goes along."""

    method: str
    url: httpx2.URL
    content: bytes | None
    trusted: bool = True

    @property
    def shown(self) -> str:
        """Method and URL for people."""
        return f"{self.method} {shown_url(str(self.url))}"


class Requests:
    """Builds the requests of one attempt."""

    def __init__(self, work: Work, target: HttpTarget) -> None:
        self._target = target
        self._work = work
        self.traceparent = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
        self.secrets = work.secrets
        self._basic: str | None = None
        if target.basic_auth is not None:
            self._basic = base64.b64encode(target.basic_auth.encode()).decode()
            self.secrets += (self._basic,)

    def first(self) -> Hop:
        """What the job says. Raises RedirectRefused when its URL is none."""
        return Hop(method=self._target.method, url=_url(self._target.url), content=self._target.content)

    def after(self, hop: Hop, status: int, location: str) -> Hop:
        """Where a redirect leads. Raises RedirectRefused.

        303, and 301 and 302 for POST, lead to a GET without a body, as browsers do it; the others repeat the request.
        """
        url = _url(location, base=hop.url)
        trusted = hop.trusted and _origin(url) == _origin(hop.url)
        becomes_get = (status == 303 and hop.method != "HEAD") or (status in (301, 302) and hop.method == "POST")
        content = None if becomes_get else hop.content
        if content and self._target.private_content and not trusted:
            raise RedirectRefused(f"{status} to {shown_url(str(url))} would carry the body's secret to another host")
        return Hop(method="GET" if becomes_get else hop.method, url=url, content=content, trusted=trusted)

    def build(self, hop: Hop) -> httpx2.Request:
        """The request of a hop, with its headers. To another host than the job's go only those of the run itself."""
        target = self._target
        headers = httpx2.Headers({"Accept": "*/*", "Accept-Encoding": "gzip, deflate", **self._run_headers()})
        headers["User-Agent"] = f"Timeball/{VERSION}"
        if hop.content is not None and target.content_type is not None:
            headers["Content-Type"] = target.content_type
        if hop.trusted:
            headers.update(dict(target.headers))
            if hop.content is None and target.content is not None:  # a redirect took the body away
                headers.pop("Content-Type", None)
            if self._basic is not None:
                headers["Authorization"] = f"Basic {self._basic}"
        request = httpx2.Request(hop.method, hop.url, headers=headers, content=hop.content)
        if hop.trusted and target.sign_with is not None:
            request.headers["Timeball-Signature"] = signature(
                target.sign_with,
                at_seconds=wall_us() // _SECOND_US,
                method=hop.method,
                path=request.url.raw_path.decode("ascii"),
                content=hop.content or b"",
            )
        return request

    def _run_headers(self) -> dict[str, str]:
        work = self._work
        return {
            "Timeball-Run-Id": str(work.run_id),
            "Timeball-Job": quote(work.job, safe=" !#$&'()*+,/:;=?@[]"),
            "Timeball-Due-At": format_instant(work.due_at) or "",
            "Timeball-Attempt": str(work.attempt),
            "Timeball-Fence": str(work.fence),
            "Idempotency-Key": idempotency_key(work),
            "traceparent": self.traceparent,
        }


def idempotency_key(work: Work) -> str:
    """The same for every attempt at a run, and for no other run."""
    name = f"{work.namespace}\n{work.job_id}\n{work.job}\n{work.run_id}\n{work.due_at}"
    return str(uuid.uuid5(uuid.NAMESPACE_OID, name))


def _url(text: str, base: httpx2.URL | None = None) -> httpx2.URL:
    try:
        url = httpx2.URL(text) if base is None else base.join(text)
    except (httpx2.InvalidURL, ValueError) as error:
        raise RedirectRefused(f"{shown_url(text)} is not a URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise RedirectRefused(f"{shown_url(str(url))} is neither http:// nor https://")
    return url


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
