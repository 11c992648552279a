"""Outcomes that could not be written survive the end of their instance, and are written once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HostClock
from tests.store.scene import SECOND
from tests.store.stepped import Bench, eventually
from timeball.engine.engine import Engine
from timeball.engine.spill import Spill, SpillFile, spill_folder
from timeball.errors import Unavailable
from timeball.store.identity import place_of
from timeball.store.runs import StoredRun

WEDNESDAY = "2030-06-05T12:00:30Z"


@pytest.fixture
def bench(with_schema: None, database_url: str, host_clock: HostClock) -> Iterator[Bench]:
    made = Bench(database_url, host_clock)
    made.set_clock(WEDNESDAY)
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spill"


def instance(bench: Bench, folder: Path, name: str, **settings: Any) -> Engine:
    return bench.instance(name, spill_dir=str(folder), **settings)


def begin(bench: Bench, owner: Engine, job: str = "job", **policies: Any) -> int:
    bench.jobs.create(job, bench.define("none", "long", **policies))
    run_id = bench.jobs.trigger(job)
    owner.lease.step()
    owner.claimer.step()
    owner.starter.step()
    owner.runner.step()
    assert bench.begun.acquire(timeout=10)
    return run_id


def end_without_database(bench: Bench, owner: Engine) -> None:
    """Its work ends while the database is away, and then the instance is told to end."""
    with bench.refusing():
        bench.release.set()
        eventually(lambda: owner.runner.load() == 0)
        with pytest.raises(Unavailable):
            owner.settler.step()
        owner.stop(0)


@pytest.fixture(autouse=True)
def _no_long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timeball.engine.engine.SETTLE_AT_END_SECONDS", 0.01)


def run_of(bench: Bench, run_id: int) -> StoredRun:
    return bench.store.runs.get("default", run_id)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*")) if folder.is_dir() else []


def test_the_next_instance_of_the_host_writes_what_one_left_that_ended_without_a_database(
    bench: Bench, folder: Path
) -> None:
    owner = instance(bench, folder, "owner")
    run_id = begin(bench, owner)
    end_without_database(bench, owner)
    (file,) = files(folder)
    assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    assert json.loads(file.read_text())["result"] == '"whole"'
    assert run_of(bench, run_id).state == "running"
    instance(bench, folder, "next").adopter.step()
    run = run_of(bench, run_id)
    assert (run.state, run.result, run.instance) == ("succeeded", '"whole"', "owner")
    assert not files(folder)


def test_without_a_folder_nothing_is_kept_as_before(bench: Bench, folder: Path) -> None:
    owner = bench.instance("owner", spill_dir="")
    run_id = begin(bench, owner)
    end_without_database(bench, owner)
    assert len(owner.settler) == owner.settler.waiting == 1
    bench.instance("next", spill_dir="").adopter.step()
    assert run_of(bench, run_id).state == "running"


def test_what_was_run_again_meanwhile_does_not_take_the_old_outcome(bench: Bench, folder: Path) -> None:
    owner, other = instance(bench, folder, "owner"), bench.instance("other", spill_dir="")
    run_id = begin(bench, owner, on_lost="rerun")
    end_without_database(bench, owner)
    bench.release.clear()
    for _ in range(6):
        bench.move_clock(5 * SECOND)
        bench.round(other)
    assert (run_of(bench, run_id).state, run_of(bench, run_id).attempt) == ("running", 2)
    instance(bench, folder, "next").adopter.step()
    assert (run_of(bench, run_id).state, run_of(bench, run_id).attempt) == ("running", 2)
    assert not files(folder)


def test_beyond_the_bound_outcomes_go_to_disk_and_the_instance_writes_them_itself(bench: Bench, folder: Path) -> None:
    owner = instance(bench, folder, "owner", spill_queue_max=1)
    ids = [begin(bench, owner, name) for name in ("a", "b", "c")]
    with bench.refusing():
        bench.release.set()
        eventually(lambda: owner.runner.load() == 0)
        with pytest.raises(Unavailable):
            owner.settler.step()
        assert (owner.settler.waiting, owner.settler.spilled, len(owner.settler)) == (0, 3, 3)
        assert {run_id for run_id, _ in owner.settler.unsettled()} == set(ids)
        assert any("on disk" in problem for problem in owner.health().problems)
        with pytest.raises(Unavailable):
            owner.settler.step()
        instance_of_another_place = Spill(folder, "elsewhere")
        with instance_of_another_place.left() as left:
            assert not left
    other = instance(bench, folder, "other")
    other.adopter.step()  # its writer lives and holds it
    assert {run_of(bench, run_id).state for run_id in ids} == {"running"}
    owner.settler.step()
    assert {run_of(bench, run_id).state for run_id in ids} == {"succeeded"}
    assert len(owner.settler) == 0
    assert not owner.settler.unsettled()
    assert not owner.health().problems
    assert not files(folder)


def test_a_line_that_cannot_be_read_is_set_aside_and_holds_up_no_other(bench: Bench, folder: Path) -> None:
    owner = instance(bench, folder, "owner")
    run_id = begin(bench, owner)
    end_without_database(bench, owner)
    (file,) = files(folder)
    good = file.read_text()
    wrong = good.replace(f'"run_id": {run_id}', '"run_id": "1; DROP TABLE"')
    file.write_text(f'{{"run_id": 7\n[]\n{wrong}{good}{good[:40]}')
    instance(bench, folder, "next").adopter.step()
    assert run_of(bench, run_id).state == "succeeded"
    (aside,) = files(folder)
    assert aside.suffix == ".corrupt"
    assert len(aside.read_text().splitlines()) == 4
    assert aside.stat().st_mode & 0o777 == 0o600


def test_a_file_of_an_instance_that_this_database_does_not_know_stays(bench: Bench, folder: Path) -> None:
    owner = instance(bench, folder, "owner")
    run_id = begin(bench, owner)
    end_without_database(bench, owner)
    (file,) = files(folder)
    strange = file.rename(file.with_name(file.name.replace(owner.spill._place, owner.spill._place)[:-10] + ".jsonl"))
    instance(bench, folder, "next").adopter.step()
    assert files(folder) == [strange]
    assert run_of(bench, run_id).state == "running"


def test_while_the_database_is_away_the_files_stay(bench: Bench, folder: Path) -> None:
    owner, after = instance(bench, folder, "owner"), instance(bench, folder, "next")
    begin(bench, owner)
    end_without_database(bench, owner)
    with bench.refusing(), pytest.raises(Unavailable):
        after.adopter.step()
    assert len(files(folder)) == 1
    after.adopter.step()
    assert not files(folder)


def test_a_folder_that_others_can_write_to_is_refused_and_outcomes_stay_in_memory(bench: Bench, folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    owner = instance(bench, folder, "owner")
    begin(bench, owner)
    end_without_database(bench, owner)
    assert not files(folder)
    assert owner.settler.waiting == 1


def test_only_one_of_two_takes_a_file_and_one_that_is_gone_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "place-id.jsonl"
    SpillFile.create(path).close()
    first = SpillFile.take(path)
    assert first is not None
    assert SpillFile.take(path) is None
    first.remove()
    assert SpillFile.take(path) is None


def test_the_place_is_the_same_for_another_user_and_another_for_another_namespace(bench: Bench) -> None:
    database = bench.store.database
    assert place_of(database, "a") != place_of(database, "b")
    place, url = place_of(database, "a"), database.url
    if url.startswith("postgresql"):
        database.url = url.replace("//postgres@", "//anna:secret@")
    else:
        database.url = f"sqlite:///{Path(bench._name or '').name}"  # the current folder is that of the file
    assert place_of(database, "a") == place


def test_the_folder_is_that_of_the_service_or_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert spill_folder("") is None
    assert spill_folder("/x") == Path("/x")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert spill_folder("auto") == tmp_path / ".local/state/timeball-spill"
    monkeypatch.setenv("HOME", "/nonexistent")
    assert "timeball-spill-" in str(spill_folder("auto"))
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    monkeypatch.setenv("STATE_DIRECTORY", "/service:/other")
    assert spill_folder("auto") == Path("/service/timeball-spill")


def test_nothing_new_begins_while_as_many_outcomes_wait_as_may(bench: Bench, folder: Path) -> None:
    owner = instance(bench, folder, "owner", settle_queue_max=1)
    begin(bench, owner, "first")
    bench.release.set()
    eventually(lambda: owner.runner.load() == 0)
    bench.jobs.create("second", bench.define("none"))
    run_id = bench.jobs.trigger("second")
    owner.claimer.step()
    assert run_of(bench, run_id).state == "planned"
    owner.settler.step()
    owner.claimer.step()
    assert run_of(bench, run_id).state == "claimed"
