"""Settings: `timeball.toml`, then `TIMEBALL_*`, then flags, each overriding the one before.

Every duration names its unit. A setting that would break a guarantee is refused with the reason.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from timeball.errors import SettingsError

ENVIRONMENT_PREFIX = "TIMEBALL_"
CONFIG_FILE = "timeball.toml"
LABELS_MAX = 8
_ZERO_IS_AUTOMATIC = frozenset({"isolation_grace_seconds", "process_memory_bytes_max"})
# Given to the work of a run, read by the tests, or naming the settings file: not settings.
_RESERVED = frozenset({"CONFIG", "RUN_ID", "JOB", "DUE_AT", "ATTEMPT", "FENCE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings with their defaults. Raises SettingsError when they do not fit together."""

    database_url: str = "sqlite:///timeball.db"
    namespace: str = "default"
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    execute: str = "any"
    migrate: bool = True

    host: str = "127.0.0.1"
    port: int = 8390

    lease_seconds: float = 10.0
    lease_renew_seconds: float = 2.5
    lease_margin_seconds: float = 1.0
    membership_seconds: float = 10.0
    heartbeat_seconds: float = 2.5
    coordination_timeout_seconds: float = 2.0
    isolation_grace_seconds: float = 0.0

    horizon_seconds: float = 30.0
    plan_interval_seconds: float = 1.0
    plan_batch_max: int = 200
    planned_per_job_max: int = 1000

    prefetch_seconds: float = 2.0
    claim_slack_seconds: float = 1.5
    claim_batch_max: int = 1000
    poll_seconds: float = 1.0
    start_lead_max_seconds: float = 0.1
    runs_max: int = 100
    threads_max: int = 32
    processes_max: int = 4
    process_runs_max: int = 100
    process_memory_bytes_max: int = 0

    settle_batch_max: int = 1000
    settle_queue_max: int = 100_000
    spill_queue_max: int = 1000
    spill_dir: str = "auto"
    output_bytes_max: int = 65_536
    command_allow: tuple[str, ...] = ()
    command_shell_allow: bool = False
    command_grace_seconds: float = 5.0
    http_allow_networks: tuple[str, ...] = ()
    http_proxy: str = ""
    http_ca_file: str = ""
    http_connections_max: int = 1000
    http_response_bytes_max: int = 67_108_864
    secrets_dir: str = ""
    celery_broker_url: str = ""
    celery_result_backend: str = ""
    celery_grace_seconds: float = 10.0
    celery_send_seconds: float = 60.0
    celery_result_seconds: float = 86_400.0
    drain_seconds: float = 30.0
    start_wait_seconds: float = 60.0

    reap_interval_seconds: float = 1.0
    janitor_interval_seconds: float = 30.0
    retention_days: float = 30.0
    retention_runs_per_job: int = 10_000
    retention_event_days: float = 90.0

    log_level: str = "info"

    def __post_init__(self) -> None:
        """Check spans first, then what one setting demands of another."""
        for item in fields(self):
            if item.name.endswith(("_seconds", "_days", "_max")) or item.name == "retention_runs_per_job":
                _positive(item.name, getattr(self, item.name), zero=item.name in _ZERO_IS_AUTOMATIC)
        _check_choices(self)
        _check_guarantees(self)
        _check_isolation(self)

    @property
    def membership_margin_seconds(self) -> float:
        """How long before its end a membership is no longer trusted, and isolated work must have been killed."""
        return min(self.lease_margin_seconds, self.membership_seconds / 4)

    @property
    def isolation_seconds(self) -> float:
        """How long between asking isolated work to end and killing it: as set, else what fits, at most a fifth."""
        return self.isolation_grace_seconds or min(self.membership_seconds / 5, _isolation_room(self))


def _positive(name: str, value: float, *, zero: bool) -> None:
    if not (0 < value < 10**12 or (zero and value == 0)):
        what = "must be above zero" if value <= 0 else "is no span that ever ends"
        raise SettingsError(f"{name} = {value} {what}", field=name)


def _check_choices(s: Settings) -> None:
    for name, allowed in (
        ("execute", ("any", "leader", "none")),
        ("log_level", ("debug", "info", "warning", "error")),
    ):
        if getattr(s, name) not in allowed:
            raise SettingsError(f"{name} = {getattr(s, name)!r}", hint=f"one of {', '.join(allowed)}", field=name)
    for name in ("namespace", "database_url"):
        text = getattr(s, name)
        if not text.strip() or not text.isprintable():
            raise SettingsError(f"{name} = {text!r}", hint="text without line breaks or NUL", field=name)
    if not 0 <= s.port <= 65_535:
        raise SettingsError(f"port = {s.port}", hint="0 (any free port) to 65535", field="port")
    if len(s.labels) > LABELS_MAX:
        raise SettingsError(f"{len(s.labels)} labels; at most {LABELS_MAX}", field="labels")


def _isolation_room(s: Settings) -> float:
    """Of a membership: what two heartbeats leave before the margin, so that one lost answer ends no work."""
    return s.membership_seconds - s.membership_margin_seconds - 2 * s.heartbeat_seconds


def _check_guarantees(s: Settings) -> None:
    demands = (
        (
            s.lease_renew_seconds * 3 <= s.lease_seconds,
            "lease_renew_seconds",
            f"a lease of {s.lease_seconds:g} s must allow three renewals: at most {s.lease_seconds / 3:g} s, "
            f"or two slow answers would cost the leadership",
        ),
        (
            s.lease_margin_seconds + s.lease_renew_seconds < s.lease_seconds,
            "lease_margin_seconds",
            "margin and one renewal must fit into the lease, or the leader would never trust it",
        ),
        (
            s.heartbeat_seconds * 3 <= s.membership_seconds,
            "heartbeat_seconds",
            f"a membership of {s.membership_seconds:g} s must allow three heartbeats: at most "
            f"{s.membership_seconds / 3:g} s, or a live instance could be declared lost",
        ),
        (
            s.coordination_timeout_seconds < s.lease_seconds - s.lease_margin_seconds,
            "coordination_timeout_seconds",
            "a renewal must be able to fail before the lease runs out",
        ),
        (
            s.horizon_seconds >= 2 * s.lease_seconds,
            "horizon_seconds",
            f"ticks must be planned at least two leases ahead ({2 * s.lease_seconds:g} s), or the death of a "
            f"leader could cost one",
        ),
        (
            s.prefetch_seconds < s.horizon_seconds,
            "prefetch_seconds",
            "claims reach less far than plans: below horizon_seconds",
        ),
        (
            s.poll_seconds <= s.prefetch_seconds,
            "poll_seconds",
            "a tick must be claimed before it is due: at most prefetch_seconds",
        ),
    )
    for holds, name, why in demands:
        if not holds:
            raise SettingsError(f"{name} = {getattr(s, name):g} breaks a guarantee", hint=why, field=name)


def _check_isolation(s: Settings) -> None:
    room = _isolation_room(s)
    if s.isolation_grace_seconds > room:
        raise SettingsError(
            f"isolation_grace_seconds = {s.isolation_grace_seconds:g} breaks a guarantee",
            hint=f"isolated work must have been killed {s.membership_margin_seconds:g} s before its membership of "
            f"{s.membership_seconds:g} s ends, and not be asked to end before two heartbeats were missed: at most "
            f"{room:g} s",
            field="isolation_grace_seconds",
        )


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """Settings from the file, the environment and the flags (None in a flag means: not given).

    `config`: the file; by default `TIMEBALL_CONFIG`, else `timeball.toml` in the current folder if it is there.
    Raises SettingsError with the place where the wrong value stands.
    """
    environ = os.environ if environ is None else environ
    values = _from_file(_config_path(environ, config))
    values |= _from_environment(environ)
    for name, value in (flags or {}).items():
        if value is not None:
            values[name] = _convert(name, value, "flag")
    return Settings(**values)


def _config_path(environ: Mapping[str, str], config: Path | None) -> Path | None:
    named = config or (Path(environ["TIMEBALL_CONFIG"]) if environ.get("TIMEBALL_CONFIG") else None)
    if named is None:
        return Path(CONFIG_FILE) if Path(CONFIG_FILE).is_file() else None
    if not named.is_file():
        raise SettingsError(f"the settings file {named} is not there", hint="check --config and TIMEBALL_CONFIG")
    return named


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"cannot read {path}: {error}") from error
    return {name: _convert(name, value, str(path)) for name, value in table.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    known = {f.name for f in fields(Settings)}
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name == variable or name in _RESERVED or name.startswith("TEST_"):
            continue
        if name.startswith("SECRET_"):
            continue  # `executors/secrets.py` reads them, for each attempt
        if text.startswith("tcp://") or name.startswith(("SERVICE_", "PORT_")):
            continue  # Kubernetes sets such variables for a service that is called timeball
        if name.lower() in known:
            values[name.lower()] = _convert(name.lower(), text, variable)
        else:
            raise _unknown(name.lower(), variable)
    return values


def _unknown(name: str, where: str) -> SettingsError:
    known = [f.name for f in fields(Settings)]
    close = difflib.get_close_matches(name, known, n=1)
    return SettingsError(
        f"unknown setting {name!r} ({where})",
        hint=f"did you mean {close[0]!r}?" if close else None,
        field=name,
    )


def _convert(name: str, value: Any, where: str) -> Any:
    """A value as its setting's type; text is read as the environment writes it."""
    kinds = {f.name: str(f.type) for f in fields(Settings)}
    if name not in kinds:
        raise _unknown(name, where)
    try:
        return _CONVERTERS[kinds[name]](value)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{name} = {value!r} ({where}): {error}", field=name) from error


def _to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def _to_float(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return float(value)


def _to_int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError("must be a whole number")
    return int(value)


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "false": False,
        "no": False,
        "off": False,
        "0": False,
    }
    if str(value).lower() not in words:
        raise ValueError("must be true or false")
    return words[str(value).lower()]


def _to_texts(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else list(value)
    return tuple(_to_text(part).strip() for part in parts if _to_text(part).strip())


def _to_labels(value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {_to_text(key): _to_text(value[key]) for key in value}
    labels: dict[str, str] = {}
    for part in _to_texts(value):
        key, equals, text = part.partition("=")
        if not equals or not key or "," in text:
            raise ValueError("labels are written key=value,key=value")
        labels[key] = text
    return labels


_CONVERTERS = {
    "str": _to_text,
    "float": _to_float,
    "int": _to_int,
    "bool": _to_bool,
    "tuple[str, ...]": _to_texts,
    "Mapping[str, str]": _to_labels,
}
