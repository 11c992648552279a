"""An HTTP target: what may stand in it. Pure; checked when a job is saved and, with its secrets, when it runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast
from urllib.parse import urlencode, urlsplit

from timeball.errors import TargetError
from timeball.executors.secrets import Revealed, has_reference, without_references

URL_CHARS_MAX = 8000
REDIRECTS_MAX = 20
TIMEOUT_SECONDS_MAX = 86_400.0
SUCCESS = frozenset(range(200, 300))
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_CLASS = re.compile(r"[1-5]xx")
_OURS = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "te", "traceparent", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
_BODIES = ("body", "json", "form")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """What to send and what to expect.

    `content`: the body in bytes; `content_type`: what it says by default. `expected`: the codes that are a success.
    `redirects_max`: how many redirects are followed. `basic_auth`: `USER:PASSWORD`; `sign_with`: the key that signs.
    `private_content`: whether a secret stands in the body.
    """

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content: bytes | None = None
    content_type: str | None = None
    private_content: bool = False
    expected: frozenset[int] = SUCCESS
    redirects_max: int = 0
    connect_timeout_seconds: float = 10.0
    read_timeout_seconds: float = 300.0
    tls_verify: bool = True
    basic_auth: str | None = None
    sign_with: str | None = None


_KEYS = (
    *("url", "method", "headers", *_BODIES, "expected_statuses", "redirects_max"),
    *("connect_timeout_seconds", "read_timeout_seconds", "tls_verify", "basic_auth", "sign_with"),
)


def read_target(target: Mapping[str, Any]) -> HttpTarget:
    """Read and check a target. Raises TargetError that names the field; no value of a secret is in its words."""
    for key in target:
        if key not in _KEYS:
            raise TargetError(f"an HTTP target has no {key!r}", hint=f"known: {', '.join(_KEYS)}", field="target")
    content, content_type, private = _content(target)
    headers = _headers(target.get("headers", {}))
    basic_auth = _basic_auth(target.get("basic_auth"))
    if basic_auth is not None and "authorization" in {name.lower() for name in headers}:
        _refuse("basic_auth", "and a header Authorization exclude each other")
    return HttpTarget(
        url=_url(target.get("url")),
        method=_method(target.get("method", "GET" if content is None else "POST")),
        headers=headers,
        content=content,
        content_type=content_type,
        private_content=private,
        expected=_statuses(target["expected_statuses"]) if "expected_statuses" in target else SUCCESS,
        redirects_max=_whole("redirects_max", target.get("redirects_max", 0), REDIRECTS_MAX),
        connect_timeout_seconds=_seconds("connect_timeout_seconds", target.get("connect_timeout_seconds", 10.0)),
        read_timeout_seconds=_seconds("read_timeout_seconds", target.get("read_timeout_seconds", 300.0)),
        tls_verify=_flag("tls_verify", target.get("tls_verify", True)),
        basic_auth=basic_auth,
        sign_with=_reference("sign_with", target.get("sign_with"), "${secret:NAME}"),
    )


def shown_url(url: str) -> str:
    """A URL for people: without user, password and the values of its query, which are often secrets."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "(not a URL)"
    return f"{parts.scheme}://{host}{port}{parts.path}{'?***' if parts.query else ''}"


def _refuse(name: str, words: str, hint: str | None = None) -> NoReturn:
    raise TargetError(f"{name} {words}", hint=hint, field=f"target.{name}")


def _text(name: str, value: object, hint: str | None = None) -> str:
    if not isinstance(value, str):
        _refuse(name, f"must be text, not {type(value).__name__}", hint)
    return value


def _url(value: object) -> str:
    text = _text("url", value, "https://example.org/hook")
    plain = without_references(text)
    if len(text) > URL_CHARS_MAX or not plain.isprintable() or plain != plain.strip() or " " in plain:
        _refuse("url", f"must be printable, without blanks, of at most {URL_CHARS_MAX} characters")
    try:
        parts = urlsplit(plain)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        _refuse("url", "is not a URL" if isinstance(text, Revealed) else f"is not a URL: {error}")
    if parts.scheme not in ("http", "https") or not host:
        _refuse("url", "must begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        _refuse("url", "must not hold a user or password", 'basic_auth: "USER:${secret:NAME}"')
    return text


def _method(value: object) -> str:
    text = _text("method", value)
    if not _TOKEN.fullmatch(text) or len(text) > 20 or text.upper() == "CONNECT":
        _refuse("method", f"cannot be {text!r}", "GET, POST, PUT, PATCH, DELETE, HEAD, …")
    return text.upper()


def _headers(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        _refuse("headers", "must be an object of texts", '{"Accept": "application/json"}')
    given = cast("Mapping[object, object]", value)
    for name, text in given.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            _refuse("headers", f"holds {name!r}, which is no name of a header")
        if name.lower() in _OURS or name.lower().startswith(("timeball-", "proxy-")):
            _refuse("headers", f"must not hold {name!r}", "it is set for each request")
        if not isinstance(text, str) or not _VALUE.fullmatch(text) or text != text.strip():
            _refuse("headers", f"holds a value of {name!r} that a header cannot carry", "printable ASCII, one line")
    names = [str(name).lower() for name in given]
    if len(set(names)) < len(names):
        _refuse("headers", "holds one name twice, in other letters")
    return cast("dict[str, str]", dict(given))


def _content(target: Mapping[str, Any]) -> tuple[bytes | None, str | None, bool]:
    given = [name for name in _BODIES if target.get(name) is not None]
    if len(given) > 1:
        _refuse(given[1], f"and {given[0]} exclude each other")
    if not given:
        return None, None, False
    name, value = given[0], target[given[0]]
    if name == "json":
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        return text.encode(), "application/json", _private(value)
    if name == "body":
        text = _text("body", value, "json takes objects and lists")
        return text.encode(), "text/plain; charset=utf-8", has_reference(text)
    return _form(value), "application/x-www-form-urlencoded", _private(value)


def _form(value: object) -> bytes:
    pairs: list[tuple[str, str]] = []
    if not isinstance(value, Mapping):
        _refuse("form", "must be an object of texts or lists of texts", '{"name": "value"}')
    for name, part in cast("Mapping[str, object]", value).items():
        values = cast("Sequence[object]", part) if isinstance(part, list | tuple) else (part,)
        pairs += [(name, _text("form", one)) for one in values]
    return urlencode(pairs).encode()


def _private(value: object) -> bool:
    if isinstance(value, str):
        return has_reference(value)
    if isinstance(value, Mapping):
        return any(map(_private, cast("Mapping[str, object]", value).values()))
    return isinstance(value, list | tuple) and any(map(_private, cast("Sequence[object]", value)))


def _statuses(value: object) -> frozenset[int]:
    if not isinstance(value, list | tuple) or not value:
        _refuse("expected_statuses", "must be a list", '[200, 204] or ["2xx", 304]')
    codes: set[int] = set()
    for part in cast("Sequence[object]", value):
        if isinstance(part, str) and _CLASS.fullmatch(part):
            codes |= set(range(int(part[0]) * 100, int(part[0]) * 100 + 100))
        elif isinstance(part, int) and not isinstance(part, bool) and 100 <= part <= 599:
            codes.add(part)
        else:
            _refuse("expected_statuses", f"holds {part!r}, which is no status", '[200, 204] or ["2xx", 304]')
    return frozenset(codes)


def _whole(name: str, value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        _refuse(name, f"must be a whole number from 0 to {most}")
    return value


def _seconds(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= TIMEOUT_SECONDS_MAX:
        _refuse(name, f"must be a number of seconds above 0, at most {TIMEOUT_SECONDS_MAX:g}")
    return float(value)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        _refuse(name, "must be true or false")
    return value


def _basic_auth(value: object) -> str | None:
    text = _reference("basic_auth", value, "USER:${secret:NAME}")
    if isinstance(text, Revealed) and ":" not in text:
        _refuse("basic_auth", "must be USER:PASSWORD", "USER:${secret:NAME}")
    return text


def _reference(name: str, value: object, hint: str) -> str | None:
    """A text that would be a secret itself if it held no reference to one."""
    if value is None:
        return None
    text = _text(name, value, hint)
    if not has_reference(text):
        _refuse(name, "must refer to a secret: what stands in a job can be read by others", hint)
    return text
