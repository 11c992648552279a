"""Database URLs that cannot be used: refused at once, in words with a hint, and never with the password."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from timeball.errors import SettingsError, Unavailable, Unusable
from timeball.store import open_store
from timeball.store.database import sql

SECRET = "hid:den"  # in a URL: hid%3Aden


def refusal(url: str) -> Unavailable:
    store = open_store(url)
    try:
        with pytest.raises(Unavailable) as raised:
            store.database.read(lambda tx: tx.one(sql("SELECT 1")))
        return raised.value
    finally:
        store.close()


@pytest.fixture
def guarded_role(postgres_url: str) -> Iterator[str]:
    """A role of the test's server that must give a password."""
    role = f"guarded_{make_url(postgres_url).database}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'right'")  # pyright: ignore
        (found,) = admin.execute("SHOW hba_file").fetchone() or ("",)
        file = Path(found)
        before = file.read_text()
        file.write_text(f"host all {role} 127.0.0.1/32 scram-sha-256\n{before}")
        admin.execute("SELECT pg_reload_conf()")
        yield role
        file.write_text(before)
        admin.execute("SELECT pg_reload_conf()")
        admin.execute(f"DROP ROLE {role}")  # pyright: ignore


def test_what_a_server_or_this_host_refuses_says_what_would_be_right(postgres_url: str) -> None:
    good = make_url(postgres_url)
    cases = {
        good.set(database="nothing"): ('"nothing" does not exist', "createdb"),
        good.set(username="nobody", password=SECRET): ('role "nobody" does not exist', "role"),
        good.set(query={"sslmode": "bogus"}): ("invalid sslmode", "verify-full"),
        good.set(query={"sslmode": "require"}): ("SSL was required", "sslmode=prefer"),
        good.set(query={"bogus": "1"}): ('invalid connection option "bogus"', "behind the ?"),
        good.set(host="no-such-host.invalid", password=SECRET): ("no-such-host.invalid", "host's name"),
    }
    for url, (words, hint) in cases.items():
        error = refusal(url.render_as_string(hide_password=False))
        assert isinstance(error, Unusable), error
        assert words in error.message
        assert hint in str(error.hint)
        assert "\n" not in error.message
        assert SECRET not in str(error)


def test_a_wrong_or_a_missing_password_is_told_without_it(guarded_role: str, postgres_url: str) -> None:
    for password in (SECRET, None):
        url = make_url(postgres_url).set(username=guarded_role, password=password)
        error = refusal(url.render_as_string(hide_password=False))
        assert isinstance(error, Unusable), error
        assert "password" in error.message
        assert "percent-encoded" in str(error.hint)
        assert SECRET not in str(error)
    right = make_url(postgres_url).set(username=guarded_role, password="right")
    store = open_store(right.render_as_string(hide_password=False))
    store.database.read(lambda tx: tx.one(sql("SELECT 1")))
    store.close()


def test_a_server_that_is_not_there_is_away_and_may_be_waited_for() -> None:
    error = refusal("postgresql://u:hidden@127.0.0.1:1/x")
    assert not isinstance(error, Unusable)
    assert "Connection refused" in error.message
    assert "is the server up?" in str(error.hint)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "cannot be read"),
        ("postgresql://u:hidden@127.0.0.1:port/x", "cannot be read"),
        ("oracle://u:hidden@127.0.0.1/x", "'oracle' are not supported"),
        ("postgres://u:hidden@127.0.0.1/x", "'postgres' are not supported"),
        ("postgresql+bogus://u:hidden@127.0.0.1/x", "unknown driver 'bogus'"),
        ("postgresql://u:hidden@127.0.0.1", "names no database"),
    ],
)
def test_a_url_that_no_database_has_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch, url: str, words: str) -> None:
    monkeypatch.delenv("PGDATABASE", raising=False)
    with pytest.raises(SettingsError) as raised:
        open_store(url)
    assert words in raised.value.message
    assert raised.value.hint
    assert raised.value.field == "database_url"
    assert "hidden" not in str(raised.value)


def test_the_url_of_a_program_may_name_the_programs_own_driver(postgres_url: str, tmp_path: Path) -> None:
    programs = make_url(postgres_url).set(drivername="postgresql+asyncpg").render_as_string(hide_password=False)
    for url in (programs, f"sqlite+aiosqlite:///{tmp_path}/x.db"):
        store = open_store(url)
        store.database.read(lambda tx: tx.one(sql("SELECT 1")))
        store.close()


@pytest.mark.parametrize(
    ("change", "status"),
    [({"database": "nothing"}, 1), ({"drivername": "oracle"}, 2), ({"query": {"sslmode": "bogus"}}, 1)],
)
def test_serve_ends_at_once_with_words_and_status_and_waits_for_no_such_thing(
    postgres_url: str, tmp_path: Path, change: dict[str, object], status: int
) -> None:
    url = make_url(postgres_url).set(password="hidden", **change).render_as_string(hide_password=False)  # type: ignore[arg-type]
    done = subprocess.run(
        [sys.executable, "-m", "timeball", "serve", "--no-http", "--db", url],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TIMEBALL_START_WAIT_SECONDS": "1000"},
        timeout=100,
    )
    assert done.returncode == status, done.stderr
    assert "error: " in done.stderr
    assert "hint:" in done.stderr
    for never in ("Traceback", "waiting", "hidden"):
        assert never not in done.stderr
