"""One part of a JSON object set from text, as the command line gives it: `limits.cpu_seconds`, `60`. Pure."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from timeball.errors import InvalidInput

TEXTS = frozenset({"env", "headers"})
"""Objects whose parts are texts, whatever they look like."""


def with_part(name: str, values: Mapping[str, Any], path: str, text: str) -> dict[str, Any]:
    """A copy of the object with one part set. `name`: what the object is called, for errors.

    The text is JSON where it can be read as such, else itself (always in `TEXTS`); an empty one takes the part out.
    Raises InvalidInput for a path that leads into what is no object.
    """
    result = copy.deepcopy(dict(values))
    *folders, last = path.split(".")
    at = result
    for depth, folder in enumerate(folders):
        inner = at.setdefault(folder, {})
        if not isinstance(inner, dict):
            where = ".".join((name, *folders[: depth + 1]))
            raise InvalidInput(f"{where} is {inner!r}, which has no parts", field=where)
        at = inner
    if not last:
        raise InvalidInput(f"{name}.{path} names no part", hint=f"such as {name}.cwd=/srv", field=name)
    if text:
        at[last] = text if folders and folders[-1] in TEXTS else _read(text)
    else:
        at.pop(last, None)
    return result


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
