"""Job files for `apply`: TOML or JSON, one table a job, to definitions. Reads text; changes nothing.

```toml
[jobs.nightly]
schedule = "0 2 * * *"
timezone = "Europe/Paris"
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
from typing import Any, cast

from timeball.errors import InvalidInput, TimeballError
from timeball.model.job import Definition

SIZE_MAX = 4 * 1024 * 1024
_SHORT = {"function": "name", "command": "argv"}


def read_jobs(text: str, *, json_format: bool = False) -> dict[str, tuple[Definition, bool]]:
    """Definitions by name, each with whether it is to be active. Raises InvalidInput naming the job and the field."""
    if len(text) > SIZE_MAX:
        raise InvalidInput(f"the file is larger than {SIZE_MAX} bytes")
    try:
        document: Any = json.loads(text) if json_format else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the file cannot be read: {error}") from error
    tables: Any = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(tables, dict):
        raise InvalidInput("the file has no table of jobs", hint="[jobs.NAME] with schedule, and command or function")
    unknown = sorted(set(cast("dict[str, Any]", document)) - {"jobs"})
    if unknown:
        raise InvalidInput(f"unknown table {unknown[0]!r}", hint="only [jobs.NAME] tables")
    return {name: _job(name, table) for name, table in cast("dict[str, Any]", tables).items()}


def _job(name: str, table: Any) -> tuple[Definition, bool]:
    if not isinstance(table, Mapping):
        raise InvalidInput(f"job {name!r} must be a table")
    values = dict(cast("Mapping[str, Any]", table))
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
