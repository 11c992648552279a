"""Time zones by name. Owns which tz database is in use; knows nothing of schedules.

Always the `tzdata` package, never the host's own files: two instances on different hosts must agree on every tick,
and the version that `tzdata_version` names must be the one that was computed with.
"""

from __future__ import annotations

import difflib
import functools
import importlib.resources
import io
import re
from zoneinfo import ZoneInfo

import tzdata

from timeball.schedule.refusals import refusal

_NAME_LENGTH_MAX = 64
_OFFSET = re.compile(r"(?:utc|gmt)?[+-]\d{1,2}(?::?\d\d)?")


def tzdata_version() -> str:
    """Return the version of the tz database in use, for example `2025b`."""
    return tzdata.IANA_VERSION


def resolve_zone(name: str, *, position: int | None = None) -> ZoneInfo:
    """Return the zone, always the same object for a name. Raises ScheduleError (`unknown-zone`) with a suggestion."""
    if name not in zone_names():
        raise refusal(
            "unknown-zone", f"there is no time zone {name[:_NAME_LENGTH_MAX]!r}", position=position, hint=_hint(name)
        )
    return _load(name)


@functools.cache
def zone_names() -> frozenset[str]:
    """Return the names of the tz database."""
    return frozenset(importlib.resources.files("tzdata").joinpath("zones").read_text("utf-8").split())


def zone_bytes(name: str) -> bytes:
    """Return the compiled file (RFC 8536) of a zone that `zone_names` lists."""
    assert name in zone_names(), name
    return importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


@functools.cache
def _load(name: str) -> ZoneInfo:
    return ZoneInfo.from_file(io.BytesIO(zone_bytes(name)), key=name)


def _hint(name: str) -> str:
    wanted = name.strip()[:_NAME_LENGTH_MAX].replace(" ", "_").casefold()
    if _OFFSET.fullmatch(wanted):
        return "an offset is no zone, since clocks change; use a name such as Europe/Paris"
    names = sorted(zone_names())
    for match in names:
        if match.casefold() == wanted:
            return f"did you mean {match}?"
    for match in names:
        if wanted and match.casefold().rpartition("/")[2] == wanted:
            return f"did you mean {match}?"
    if name.isalpha() and name.isupper() and len(name) in (3, 4):
        return "abbreviations are not unique; use a name such as Europe/Paris, or UTC"
    folded = {match.casefold(): match for match in names}
    close = difflib.get_close_matches(wanted, folded, n=1, cutoff=0.7)
    if close:
        return f"did you mean {folded[close[0]]}?"
    return "use a name of the tz database such as Europe/Paris, or UTC"
