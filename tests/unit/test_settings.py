"""Where settings come from, how their texts are read, and where exactly a demand of one on another ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from timeball.clock import ClusterClock, Sample
from timeball.errors import SettingsError
from timeball.settings import Settings, load_settings


@pytest.mark.parametrize(
    "given",
    [
        {"lease_seconds": 9, "lease_renew_seconds": 3},
        {"membership_seconds": 9, "heartbeat_seconds": 3},
        {"horizon_seconds": 20},
        {"poll_seconds": 2},
        {"lease_margin_seconds": 7.4},
        {"port": 0},
    ],
)
def test_the_bound_of_a_guarantee_is_allowed(given: dict[str, Any]) -> None:
    Settings(**given)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"lease_seconds": float("nan")}, "lease_seconds"),
        ({"lease_seconds": float("inf")}, "lease_seconds"),
        ({"runs_max": 0}, "runs_max"),
        ({"retention_days": -1}, "retention_days"),
        ({"retention_runs_per_job": 0}, "retention_runs_per_job"),
        ({"port": 65_536}, "port"),
        ({"log_level": "loud"}, "log_level"),
        ({"labels": {str(n): "x" for n in range(9)}}, "labels"),
        ({"horizon_seconds": 20, "prefetch_seconds": 20}, "prefetch_seconds"),
        ({"lease_seconds": 60}, "horizon_seconds"),
    ],
)
def test_values_outside_their_span_are_refused_by_name(given: dict[str, Any], field: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(**given)
    assert caught.value.field == field


def test_each_source_overrides_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("port = 1\n")
    environ = {"TIMEBALL_CONFIG": str(file)}
    assert load_settings({}, environ).port == 1
    assert load_settings({}, {**environ, "TIMEBALL_PORT": "2"}).port == 2
    assert load_settings({"port": "3"}, {**environ, "TIMEBALL_PORT": "2"}).port == 3
    assert load_settings({"port": None}, {}).port == Settings().port


def test_a_file_in_the_current_folder_is_read_and_a_named_one_goes_before_it(tmp_path: Path) -> None:
    (tmp_path / "timeball.toml").write_text("port = 1\n")
    (tmp_path / "other.toml").write_text("port = 2\n")
    assert load_settings({}, {}).port == 1
    assert load_settings({}, {"TIMEBALL_CONFIG": "other.toml"}).port == 2


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="not there"):
        load_settings({}, {}, tmp_path / "none.toml")


@pytest.mark.parametrize("text", ["port =", "prot = 1\n", 'port = "many"\n', "port = true\n", "lease_seconds = true\n"])
def test_a_wrong_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=r"wrong\.toml"):
        load_settings({}, {}, file)


def test_texts_of_the_environment_become_their_types() -> None:
    settings = load_settings(
        {},
        {
            "TIMEBALL_LABELS": "gpu=1, zone=a",
            "TIMEBALL_COMMAND_ALLOW": "/bin/true, /bin/false,",
            "TIMEBALL_MIGRATE": "off",
            "TIMEBALL_RUNS_MAX": "7",
            "TIMEBALL_LEASE_SECONDS": "12.5",
        },
    )
    assert settings.labels == {"gpu": "1", "zone": "a"}
    assert settings.command_allow == ("/bin/true", "/bin/false")
    assert (settings.migrate, settings.runs_max, settings.lease_seconds) == (False, 7, 12.5)


@pytest.mark.parametrize("text", ["gpu", "=1"])
def test_a_label_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="key=value"):
        load_settings({}, {"TIMEBALL_LABELS": text})


def test_variables_that_are_no_settings_are_left_alone() -> None:
    environ = {
        "TIMEBALL_RUN_ID": "1",
        "TIMEBALL_TEST_NO_SKIP": "1",
        "TIMEBALL_PORT": "tcp://10.0.0.1:8390",
        "TIMEBALL_SERVICE_HOST": "10.0.0.1",
        "TIMEBALL_SECRET_TOKEN": "xyzzy",
        "TIMEBALL_PORT_8390_TCP_ADDR": "10.0.0.1",
        "HOME": "/",
    }
    assert load_settings({}, environ) == Settings()


def test_the_clock_goes_on_with_the_host_between_samples() -> None:
    now = [100]
    clock = ClusterClock(lambda: now[0])
    clock.adopt(Sample(database_us=10_000, sent_us=80, received_us=120))
    assert (clock.error_us, clock.monotonic()) == (20, 100)
    now[0] = 150
    assert (clock.now(), clock.until(10_060), clock.until(10_000)) == (10_050, 10, -50)
    assert clock.at(130) == 10_030


@pytest.mark.parametrize(("moved", "told"), [(40, 0), (-40, 0), (41, 41), (-41, -41)])
def test_a_step_within_both_errors_is_not_told_and_is_adopted_all_the_same(moved: int, told: int) -> None:
    clock = ClusterClock(lambda: 100)
    clock.adopt(Sample(database_us=10_000, sent_us=80, received_us=120))
    assert clock.adopt(Sample(database_us=10_000 + moved, sent_us=80, received_us=120)) == told
    assert clock.now() == 10_000 + moved


def test_a_clock_without_a_sample_gives_no_time() -> None:
    with pytest.raises(AssertionError, match="before its first sample"):
        ClusterClock().now()
