"""Database URLs, taken apart and put together: a schema of its own, a way through a proxy. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from timeball.errors import InvalidInput

LOOPBACK = "127.0.0.1"
PORT_DEFAULT = 5432
SOCKET_FOLDERS = ("/var/run/postgresql", "/tmp")  # noqa: S108 - where servers put their sockets


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Where the database server listens: a host and port, or the path of its socket."""

    host: str
    port: int
    socket: str = ""


def with_search_path(url: str, schema: str) -> str:
    """The URL whose sessions work in one schema."""
    query = dict(parse_qsl(urlsplit(url).query))
    # A tab parts options: a blank would be written as +, which libpq does not read as one.
    query["options"] = "\t".join(filter(None, (query.get("options"), f"-csearch_path={schema}")))
    return _with_query(url, query)


def upstream_of(url: str, environ: Mapping[str, str]) -> Upstream:
    """Where a PostgreSQL URL leads, as libpq would find it. Raises InvalidInput for several hosts."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    netloc = parts.netloc.rpartition("@")[2]
    if "," in netloc or "," in query.get("host", ""):
        raise InvalidInput("the URL names several hosts", hint="the self-test's proxies need one", field="db")
    host = query.get("hostaddr") or query.get("host") or unquote(parts.hostname or "") or environ.get("PGHOST", "")
    port = int(parts.port or query.get("port") or environ.get("PGPORT") or PORT_DEFAULT)
    if not host:
        host = next((f for f in SOCKET_FOLDERS if Path(f, f".s.PGSQL.{port}").exists()), LOOPBACK)
    if host.startswith("/"):
        return Upstream(host="", port=port, socket=f"{host}/.s.PGSQL.{port}")
    return Upstream(host=host, port=port)


def through_proxy(url: str, port: int) -> str:
    """The URL by way of a proxy on this host; a host's name stays, for certificates that are checked."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    query = {key: value for key, value in parse_qsl(parts.query) if key not in {"host", "port", "hostaddr"}}
    name = parts.hostname or ""
    if not name or unquote(name).startswith("/"):
        name = LOOPBACK
    netloc = f"{user}{at}{f'[{name}]' if ':' in name else name}:{port}"
    return _with_query(f"{parts.scheme}://{netloc}{parts.path}", {**query, "hostaddr": LOOPBACK})


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite URL; None for one in memory."""
    path = urlsplit(url).path.removeprefix("/")
    return Path(path).absolute() if path and path != ":memory:" else None


def _with_query(url: str, query: Mapping[str, str]) -> str:
    return f"{url.partition('?')[0]}?{urlencode(query, quote_via=quote)}"
