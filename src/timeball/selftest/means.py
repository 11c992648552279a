"""What faults need from the user: commands and libraries, checked before anything starts."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from timeball.errors import InvalidInput
from timeball.selftest.addresses import PORT_DEFAULT, Upstream
from timeball.selftest.faults import DISK_FULL, FAILOVER, RESTART, SKEW
from timeball.selftest.skew import find_library

RESTART_DB, FAKETIME = "restart-db", "faketime"
FAILOVER_DB, FAILOVER_TO = "failover-db", "failover-to"
FILL_DB, FREE_DB = "fill-db", "free-db"
OPTIONS: Mapping[str, str] = {
    RESTART_DB: RESTART,
    FAILOVER_DB: FAILOVER,
    FAILOVER_TO: FAILOVER,
    FILL_DB: DISK_FULL,
    FREE_DB: DISK_FULL,
    FAKETIME: SKEW,
}
"""Which option belongs to which fault."""
EXAMPLES: Mapping[str, str] = {
    RESTART_DB: "'systemctl restart postgresql'",
    FAILOVER_DB: "'ssh replica pg_ctl promote -D /var/lib/postgresql/data'",
    FAILOVER_TO: "replica:5432",
    FILL_DB: "'ssh server fallocate -l 20G /var/lib/postgresql/ballast'",
    FREE_DB: "'ssh server rm -f /var/lib/postgresql/ballast'",
}
FOUND_BY_ITSELF = frozenset({FAKETIME})


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Commands are words, no shell is used; empty where their fault is not wanted."""

    restart: tuple[str, ...] = ()
    failover: tuple[str, ...] = ()
    failover_to: Upstream | None = None
    fill: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    faketime: Path | None = None


def read_means(kinds: Sequence[str], given: Mapping[str, str | None]) -> Means:
    """The means of the wanted faults, from options by name. Raises InvalidInput for what is missing, or is too much."""
    for option, kind in OPTIONS.items():
        if given.get(option) is not None and kind not in kinds:
            raise InvalidInput(f"--{option} is given, and {kind!r} is not among --faults", field=option)
        if given.get(option) is None and kind in kinds and option not in FOUND_BY_ITSELF:
            hint = f"--{option} {EXAMPLES[option]}, for example"
            raise InvalidInput(f"fault {kind!r} needs --{option}", hint=hint, field="faults")
    to = given.get(FAILOVER_TO)
    return Means(
        restart=_words(RESTART_DB, given),
        failover=_words(FAILOVER_DB, given),
        failover_to=None if to is None else read_address(to),
        fill=_words(FILL_DB, given),
        free=_words(FREE_DB, given),
        faketime=find_library(given.get(FAKETIME)) if SKEW in kinds else None,
    )


def read_address(text: str) -> Upstream:
    """`HOST:PORT`, `HOST` or `[HOST]:PORT`. Raises InvalidInput."""
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(PORT_DEFAULT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal():
        raise InvalidInput(f"--{FAILOVER_TO} {text!r} is no address", hint="HOST:PORT", field=FAILOVER_TO)
    return Upstream(host=host, port=int(port))


def _words(option: str, given: Mapping[str, str | None]) -> tuple[str, ...]:
    """The command of an option, as words. Raises InvalidInput for what cannot be run."""
    text = given.get(option)
    if text is None:
        return ()
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidInput(f"--{option} {text!r} cannot be read: {error}", field=option) from error
    if not words or shutil.which(words[0]) is None:
        hint = "a program and its arguments; no shell is used"
        raise InvalidInput(f"--{option} {text!r} names no program that is here", hint=hint, field=option)
    return words
