"""Values and settings: what is refused, and with which reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from timeball.clock import ClusterClock, Sample, format_instant, parse_instant
from timeball.errors import InvalidInput, SettingsError
from timeball.model.fields import check_name
from timeball.model.job import Definition
from timeball.model.states import FATES, LIVE, MOVES, SETTLED, State, is_legal
from timeball.settings import Settings, load_settings

BASE: dict[str, Any] = {"schedule": "none", "executor": "function", "target": {"name": "f"}}


def test_every_state_has_its_moves_and_every_fate_is_reachable() -> None:
    assert set(MOVES) == set(State)
    assert set().union(*MOVES.values()) >= FATES | LIVE
    assert not is_legal(State.SUCCEEDED, State.PLANNED)
    assert all(is_legal(State.RUNNING, state) for state in SETTLED)


def test_a_definition_survives_json() -> None:
    definition = Definition.from_dict(
        {**BASE, "args": {"a": [1, None]}, "timeout_seconds": 1.5, "requires": {"gpu": "1"}}
    )
    assert Definition.from_json(definition.to_json()) == definition


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("overlap", "sometimes"),
        ("timeout_seconds", 0),
        ("timeout_seconds", "5"),
        ("attempts_max", 1.5),
        ("attempts_max", True),
        ("args", [1]),
        ("args", {"a": object()}),
        ("priority", 10_000),
        ("retry_on", ["lost"]),
        ("retry_on", ["exception", "sometimes"]),
        ("retry_on", 7),
        ("retry_on", [7]),
        ("backoff", "random"),
        ("no_such_field", 1),
    ],
)
def test_a_wrong_field_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        Definition.from_dict({**BASE, field: value})
    assert caught.value.field == field


def test_kinds_of_ends_are_one_wish_however_they_are_written() -> None:
    wishes = ["timed_out, signal", ["signal", "timed_out"], ("timed_out", "signal", "signal")]
    made = {Definition.from_dict({**BASE, "retry_on": wish}).to_json() for wish in wishes}
    assert len(made) == 1
    definition = Definition.from_dict(BASE).with_text("retry_on", "signal,timed_out")
    assert definition.to_json() in made
    assert Definition.from_json(definition.to_json()) == definition
    assert "retry_on" not in Definition.from_dict({**BASE, "retry_on": []}).to_json()


def test_a_job_that_would_try_lost_runs_again_is_shown_where_that_is_said() -> None:
    with pytest.raises(InvalidInput, match="on_lost"):
        Definition.from_dict({**BASE, "retry_on": "lost"})


def test_a_misspelt_field_gets_a_suggestion() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'timezone'"):
        Definition.from_dict({**BASE, "timezon": "UTC"})


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 201, "a\x00b"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_name(name)


def test_file_then_environment_then_flags(tmp_path: Path) -> None:
    file = tmp_path / "timeball.toml"
    file.write_text('lease_seconds = 12\nname = "file"\nport = 1\n')
    settings = load_settings({"port": 3, "host": None}, {"TIMEBALL_PORT": "2", "TIMEBALL_NAME": "env"}, file)
    assert (settings.lease_seconds, settings.name, settings.port, settings.host) == (12, "env", 3, "127.0.0.1")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"lease_renew_seconds": 4}, "lease_renew_seconds"),
        ({"heartbeat_seconds": 4}, "heartbeat_seconds"),
        ({"horizon_seconds": 19}, "horizon_seconds"),
        ({"prefetch_seconds": 30}, "prefetch_seconds"),
        ({"poll_seconds": 3}, "poll_seconds"),
        ({"coordination_timeout_seconds": 9}, "coordination_timeout_seconds"),
        ({"lease_margin_seconds": 8}, "lease_margin_seconds"),
        ({"drain_seconds": 0}, "drain_seconds"),
        ({"execute": "some"}, "execute"),
    ],
)
def test_lease_006_a_setting_that_breaks_a_guarantee_is_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(**given)
    assert caught.value.field == field
    assert caught.value.hint or "above zero" in caught.value.message


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"TIMEBALL_LEASE_SECOND": "1"}, "did you mean 'lease_seconds'"),
        ({"TIMEBALL_PORT": "many"}, "TIMEBALL_PORT"),
        ({"TIMEBALL_MIGRATE": "perhaps"}, "true or false"),
    ],
)
def test_a_wrong_variable_is_named(environ: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings({}, environ)


def test_the_cluster_clock_follows_the_database_and_tells_its_steps() -> None:
    now = [1000]
    clock = ClusterClock(lambda: now[0])
    assert clock.adopt(Sample(database_us=5_000_000, sent_us=900, received_us=1100)) == 0
    assert clock.now() == 5_000_000
    now[0] += 250
    assert clock.now() == 5_000_250
    assert clock.adopt(Sample(database_us=5_000_300, sent_us=1200, received_us=1300)) == 0
    assert clock.adopt(Sample(database_us=3_605_000_300, sent_us=1200, received_us=1300)) == 3_600_000_000


def test_instants_go_to_text_and_back() -> None:
    assert format_instant(parse_instant("2026-12-01T10:00:00+01:00")) == "2026-12-01T09:00:00.000000Z"
    with pytest.raises(ValueError, match="no offset"):
        parse_instant("2026-12-01T10:00:00")


def test_a_slow_answer_does_not_replace_what_a_quick_one_has_found_until_that_is_too_old() -> None:
    now = [1_000_000]
    clock = ClusterClock(lambda: now[0])
    clock.adopt(Sample(database_us=5_000_000, sent_us=999_900, received_us=1_000_100))
    assert clock.adopt(Sample(database_us=5_000_100, sent_us=1_000_000, received_us=1_900_000)) == 0
    assert (clock.at(1_000_000), clock.error_us) == (5_000_000, 100)
    assert clock.adopt(Sample(database_us=9_000_000, sent_us=2_000_000, received_us=2_900_000)) == 2_550_000
    clock.adopt(Sample(database_us=9_600_000, sent_us=3_000_000, received_us=3_000_200))
    assert clock.error_us == 100
    later = 3_000_000 + 3600 * 1_000_000
    clock.adopt(Sample(database_us=9_600_000 + 3600 * 1_000_000, sent_us=later, received_us=later + 20_000))
    assert clock.error_us == 10_000
