"""Files for `apply`: TOML or JSON, one table a calendar or a job. Reads text; changes nothing.

```toml
[calendars.works]
exclude = ["sat,sun", "12-24..01-01"]
timezone = "Europe/Paris"

[jobs.nightly]
schedule = "0 2 * * *"
timezone = "Europe/Paris"
calendar = "works"
command = ["/srv/bin/nightly.sh"]

[jobs.refresh]
schedule = "@every 90s"
function = "refresh"
args = { region = "eu" }
active = false
```
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from timeball.errors import InvalidInput, TimeballError
from timeball.model.calendar import Content, check_rules
from timeball.model.job import Definition

SIZE_MAX = 4 * 1024 * 1024
_CONTENT = frozenset({"exclude", "timezone", "description"})
_SHORT = {"function": "name", "command": "argv"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a file says: calendars by name, and jobs by name, each with whether it is to be active."""

    calendars: Mapping[str, Content]
    jobs: Mapping[str, tuple[Definition, bool]]


def read_wanted(text: str, *, json_format: bool = False) -> Wanted:
    """Read a file. Raises InvalidInput naming the calendar or job, and the field."""
    if len(text) > SIZE_MAX:
        raise InvalidInput(f"the file is larger than {SIZE_MAX} bytes")
    try:
        document: Any = json.loads(text) if json_format else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the file cannot be read: {error}") from error
    tables = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    unknown = sorted(set(tables) - {"jobs", "calendars"})
    if unknown:
        raise InvalidInput(f"unknown table {unknown[0]!r}", hint="only [jobs.NAME] and [calendars.NAME] tables")
    if not any(isinstance(value, dict) for value in tables.values()):
        raise InvalidInput("the file has no table of jobs", hint="[jobs.NAME] with schedule, and command or function")
    return Wanted(
        calendars={name: _calendar(name, table) for name, table in _tables(tables, "calendars")},
        jobs={name: _job(name, table) for name, table in _tables(tables, "jobs")},
    )


def _tables(document: Mapping[str, Any], kind: str) -> list[tuple[str, Mapping[str, Any]]]:
    found = document.get(kind, {})
    if not isinstance(found, Mapping):
        raise InvalidInput(f"{kind} must be tables", hint=f"[{kind}.NAME]")
    for name, table in cast("Mapping[str, Any]", found).items():
        if not isinstance(table, Mapping):
            raise InvalidInput(f"{kind.removesuffix('s')} {name!r} must be a table")
    return list(cast("Mapping[str, Mapping[str, Any]]", found).items())


def _calendar(name: str, table: Mapping[str, Any]) -> Content:
    unknown = sorted(set(table) - _CONTENT)
    if unknown:
        hint = f"there are {', '.join(sorted(_CONTENT))}"
        raise InvalidInput(f"calendar {name!a} has no {unknown[0]!r}", hint=hint, field=unknown[0])
    values = dict(table)
    exclude = values.pop("exclude", [])
    try:
        check_rules(exclude)
        return Content(exclude=tuple(exclude), **values)
    except TimeballError as error:
        error.about(f"calendar {name!a}")
        raise


def _job(name: str, table: Mapping[str, Any]) -> tuple[Definition, bool]:
    values = dict(table)
    active = values.pop("active", True)
    if not isinstance(active, bool):
        raise InvalidInput(f"job {name!r}: active must be true or false", field="active")
    try:
        return Definition.from_dict(_with_target(values)), active
    except TimeballError as error:
        error.about(f"job {name!a}")
        raise


def _with_target(values: dict[str, Any]) -> dict[str, Any]:
    """`function = NAME` and `command = [ARGV]` are short for executor and target."""
    given = [kind for kind in _SHORT if kind in values]
    if len(given) + ("executor" in values) != 1:
        raise InvalidInput("say what to run", hint="one of function = NAME, command = [ARGV], or executor and target")
    if given:
        kind = given[0]
        value = values.pop(kind)
        values["executor"] = kind
        values["target"] = value if isinstance(value, Mapping) else {_SHORT[kind]: value}
    return values
