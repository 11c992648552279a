"""Each check of the doctor, on a database that is well and on one that really has the trouble."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from sqlalchemy.engine import make_url

from tests.store.scene import Scene
from timeball.app.schema import ensure_schema
from timeball.app.wiring import connect
from timeball.cli.doctor import command
from timeball.errors import LeaseRowMissing, StoreError, Unavailable
from timeball.service import doctor
from timeball.service.doctor import Finding, Verdict, examine
from timeball.settings import Settings
from timeball.store import Store, open_store
from timeball.store.database import sql
from timeball.store.inspection import Inspection, Probe, refuse_unfit
from timeball.store.migrate import upgrade_schema


def verdicts(store: Store, url: str) -> dict[str, Verdict]:
    return {finding.check: finding.verdict for finding in examine(store, Settings(database_url=url))}


def execute(store: Store, statement: str) -> None:
    with store.database.transaction() as tx:
        tx.count(sql(statement))


def test_a_database_that_is_well_passes_every_check(store: Store, database_url: str) -> None:
    found = verdicts(store, database_url)
    assert set(found.values()) == {Verdict.OK}
    names = {"answers", "schema", "writes", "clock"}
    lite = {"journal", "file system", "permissions", "disk"}
    assert set(found) == names | (lite if database_url.startswith("sqlite") else {"session", "pooler"})


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM timeball_lease", "lease row"),
        ("UPDATE timeball_schema SET version_num = '9999'", "newer"),
        ("DROP TABLE timeball_schema", "no record of the version"),
    ],
)
def test_a_schema_that_is_not_ours_or_a_lease_row_that_is_missing_fails(
    store: Store, database_url: str, statement: str, words: str
) -> None:
    execute(store, statement)
    failed = [f for f in examine(store, Settings(database_url=database_url)) if f.verdict is Verdict.FAIL]
    assert [finding.check for finding in failed] == ["schema"]
    assert words in failed[0].found


def test_a_server_that_only_reads_fails(store: Store, postgres_url: str) -> None:
    other = open_store(postgres_url)
    try:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            name = str(make_url(postgres_url).database)
            admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")  # pyright: ignore
        assert verdicts(other, postgres_url)["writes"] is Verdict.FAIL
    finally:
        other.close()


def limited(url: str, *grants: str) -> Finding:
    """What the check of writes finds as a role of its own, which has only these rights."""
    role = f"reader_{make_url(url).database}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN")  # pyright: ignore
        for grant in grants:
            admin.execute(f"GRANT {grant} TO {role}")  # pyright: ignore
        other = open_store(make_url(url).set(username=role).render_as_string(hide_password=False))
        try:
            return next(f for f in examine(other, Settings(database_url=url)) if f.check == "writes")
        finally:
            other.close()
            admin.execute(f"DROP OWNED BY {role}")  # pyright: ignore
            admin.execute(f"DROP ROLE {role}")  # pyright: ignore


ROWS = "SELECT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public"


@pytest.mark.usefixtures("with_schema")
def test_a_role_that_may_not_insert_fails_with_the_table_named(postgres_url: str) -> None:
    finding = limited(postgres_url, ROWS, "USAGE ON ALL SEQUENCES IN SCHEMA public")
    assert finding.verdict is Verdict.FAIL
    assert "INSERT on timeball_run" in finding.found
    assert "permission denied" in finding.found
    finding = limited(postgres_url, f"INSERT, {ROWS}", "INSERT, SELECT ON timeball_run")
    assert finding.found == "no right to USAGE on timeball_fence"
    everything = (f"INSERT, {ROWS}", "USAGE ON ALL SEQUENCES IN SCHEMA public")
    assert limited(postgres_url, *everything).verdict is Verdict.OK


def test_a_write_is_really_tried_and_leaves_nothing(store: Store, database_url: str) -> None:
    counters = sql("SELECT name FROM timeball_counter ORDER BY name")
    before = store.database.read(lambda tx: tx.all(counters))
    assert verdicts(store, database_url)["writes"] is Verdict.OK
    assert store.database.read(lambda tx: tx.all(counters)) == before
    if database_url.startswith("sqlite"):
        execute(store, "CREATE TRIGGER full BEFORE INSERT ON timeball_counter BEGIN SELECT RAISE(ABORT, 'full'); END")
        assert verdicts(store, database_url)["writes"] is Verdict.FAIL


def test_a_file_that_may_not_be_written_fails_and_one_that_all_may_write_is_told(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    file.touch(mode=0o600)
    assert doctor.permissions(file).verdict is Verdict.OK
    file.chmod(0o666)
    assert doctor.permissions(file).verdict is Verdict.WARN
    real = os.access
    with pytest.MonkeyPatch.context() as patch:  # root may write everything
        patch.setattr(os, "access", lambda path, mode: path != file and real(path, mode))
        assert doctor.permissions(file).verdict is Verdict.FAIL


def test_sessions_without_our_limits_or_isolation_fail_and_no_instance_starts(postgres_url: str) -> None:
    store = open_store(postgres_url)
    good = Inspection(store.database).session()
    assert doctor.session(good).verdict is Verdict.OK
    for name, value in (("lock_timeout", "0"), ("statement_timeout", "0"), ("transaction_isolation", "serializable")):
        finding = doctor.session({**good, name: value})
        assert finding.verdict is Verdict.FAIL
        assert f"{name} = {value}" in finding.found
    refuse_unfit(store.database)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(StoreError, match="READ COMMITTED"):
        patch.setattr(Inspection, "session", lambda _: {**good, "transaction_isolation": "repeatable read"})
        refuse_unfit(store.database)
    store.close()


def test_no_instance_starts_on_a_standby(store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inspection, "standby", lambda _: True)
    assert verdicts(store, database_url)["writes"] is Verdict.FAIL
    if database_url.startswith("postgresql"):
        engine = connect(Settings(database_url=database_url)).engine()
        with pytest.raises(Unavailable, match="standby"):
            engine.start()
        assert not store.members.all("default")


def test_a_pooler_that_changes_sessions_between_transactions_is_seen(postgres_url: str) -> None:
    ask = "SELECT pg_backend_pid(), current_setting('timeball.mark', true)"
    with psycopg.connect(postgres_url) as one, psycopg.connect(postgres_url) as two:
        one.execute("SET timeball.mark = 'ours'")
        probes = [Probe(*session.execute(ask).fetchone()) for session in (one, two, one)]  # type: ignore[misc]
        one.execute("RESET ALL")
        reset = Probe(*one.execute(ask).fetchone())  # type: ignore[misc]
    assert doctor.pooler(probes[:1] * 3).verdict is Verdict.OK
    assert "2 server processes" in doctor.pooler(probes).found
    assert doctor.pooler([reset]).verdict is Verdict.FAIL
    store = open_store(postgres_url)
    assert len(set(Inspection(store.database).probes())) == 1
    store.close()


@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        (lambda: doctor.clock(1_900_000), Verdict.OK),
        (lambda: doctor.clock(-2_100_000), Verdict.WARN),
        (lambda: doctor.journal("delete"), Verdict.FAIL),
        (lambda: doctor.disk(2 << 30), Verdict.OK),
        (lambda: doctor.disk(200 << 20), Verdict.WARN),
        (lambda: doctor.disk(1 << 20), Verdict.FAIL),
    ],
)
def test_figures_are_judged(check: Callable[[], Finding], verdict: Verdict) -> None:
    finding = check()
    assert finding.verdict is verdict
    assert bool(finding.right) is (verdict is not Verdict.OK)


def test_a_file_on_a_network_file_system_fails(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda1 / ext4 rw 0 0\nserver:/x /srv/all\\040data nfs4 rw 0 0\n")
    assert doctor.file_system(Path("/srv/all data/t.db"), mounts).verdict is Verdict.FAIL
    assert doctor.file_system(Path("/srv/t.db"), mounts).verdict is Verdict.OK
    assert doctor.file_system(Path("/srv/t.db"), tmp_path / "none").verdict is Verdict.WARN


def test_a_server_that_does_not_answer_is_the_only_finding() -> None:
    url = "postgresql://postgres:hidden@127.0.0.1:1/x"
    store = open_store(url)
    (finding,) = examine(store, Settings(database_url=url))
    assert (finding.check, finding.verdict) == ("answers", Verdict.FAIL)
    assert "hidden" not in str(finding)
    store.close()


def test_the_command_says_it_in_a_table_or_in_json_and_by_its_status(store: Store, database_url: str) -> None:
    good = CliRunner().invoke(command, ["--db", database_url])
    assert good.exit_code == 0
    assert good.output.startswith("CHECK")
    execute(store, "DELETE FROM timeball_lease")
    bad = CliRunner().invoke(command, ["--db", database_url, "--json"])
    assert bad.exit_code == 1
    document = json.loads(bad.output)
    assert document["ok"] is False
    assert {c["check"]: c["verdict"] for c in document["checks"]}["schema"] == "fail"


def test_a_start_does_not_put_back_a_lease_row_that_was_there_and_an_upgrade_by_hand_does(store: Store) -> None:
    scene = Scene(store)
    scene.join("one")
    scene.execute("DELETE FROM timeball_lease")
    settings = Settings()
    with pytest.raises(LeaseRowMissing):
        ensure_schema(store, settings, upgrade=True)
    upgrade_schema(store.database, "default", reseed=True)
    ensure_schema(store, settings, upgrade=True)
