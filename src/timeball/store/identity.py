"""Which database this is, for what is kept outside of it: the same text on every start, and no secret in it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sqlalchemy.engine import make_url

from timeball.store.database import Database

DIGITS = 16


def place_of(database: Database, namespace: str) -> str:
    """A short digest of where the database is and of the namespace; user and password do not count, they change."""
    return place_of_url(database.url, namespace)


def place_of_url(database_url: str, namespace: str) -> str:
    """The same of a database that is not open."""
    url = make_url(database_url)
    if url.get_backend_name() == "sqlite":
        where = ["sqlite", str(Path(url.database or "").resolve())]
    else:
        host = url.host or str(url.query.get("host", ""))
        where = [url.get_backend_name(), host, str(url.port or ""), url.database or ""]
    return hashlib.sha256("\0".join([*where, namespace]).encode()).hexdigest()[:DIGITS]
