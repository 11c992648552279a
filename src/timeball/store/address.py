"""Database URLs: which can be used at all, said before anything is connected. Never shows a password."""

from __future__ import annotations

import os

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from timeball.errors import SettingsError

EXAMPLES = "sqlite:///timeball.db or postgresql://host/name"
DRIVERS = {
    "sqlite": ("pysqlite", "aiosqlite"),
    "postgresql": ("psycopg", "psycopg2", "psycopg_async", "asyncpg", "pg8000"),
}
"""Names that a program's own URL may carry; Timeball's driver is its own in any case."""


def read_url(url: str) -> URL:
    """The parts of a URL. Raises SettingsError for one that no database of ours has."""
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):  # what it says may hold the password
        raise _wrong("the database URL cannot be read", hint=EXAMPLES) from None
    kind, _, driver = address.drivername.partition("+")
    if kind not in DRIVERS:
        hint = "postgresql://…" if kind == "postgres" else f"sqlite and postgresql are: {EXAMPLES}"
        raise _wrong(f"databases of kind {kind!r} are not supported", hint=hint)
    if driver and driver not in DRIVERS[kind]:
        raise _wrong(f"the database URL names the unknown driver {driver!r}", hint=f"{kind}://… without one")
    if kind == "postgresql" and not _names_database(address):
        shown = address.render_as_string(hide_password=True)
        raise _wrong(f"{shown} names no database", hint="its name goes behind the host: postgresql://host/name")
    return address


def _names_database(address: URL) -> bool:
    given = address.database or address.query.get("dbname") or address.query.get("service")
    return bool(given or os.environ.get("PGDATABASE") or os.environ.get("PGSERVICE"))


def _wrong(message: str, *, hint: str) -> SettingsError:
    return SettingsError(message, hint=hint, field="database_url")
