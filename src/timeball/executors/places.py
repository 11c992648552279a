"""Where a function can be imported from, so that a worker process finds it. Only for what the program registered."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from timeball.errors import InvalidInput

MAIN = "__main__"
RUN_NAME = "__mp_main__"
"""What a program's main module is called in a worker, as in Python's own ones: `if __name__ == "__main__"` is False."""


class Place(NamedTuple):
    """A module and what the function is called in it."""

    module: str
    name: str


def place_of(name: str, function: Callable[..., Any]) -> Place:
    """Where a registered function stands. Raises InvalidInput for one that a worker process cannot import."""
    module, qualified = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not qualified or "<" in qualified:
        raise InvalidInput(
            f"function {name!r} cannot run in a process of its own: it has no place from which it could be imported",
            hint="define it at the top of a module, with def",
            field="isolation",
        )
    return Place(module, qualified)


def main_of_program() -> tuple[str, str] | None:
    """How a worker finds the program's main module: ("module", name) or ("path", file); None where there is none."""
    main = sys.modules.get(MAIN)
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return "module", spec.name
    file = getattr(main, "__file__", None)
    return None if file is None or not Path(file).is_file() else ("path", os.path.abspath(file))  # noqa: PTH100


class Importer:
    """Finds functions in a worker; each module once."""

    def __init__(self, main: tuple[str, str] | None) -> None:
        self._main = main
        self._main_names: Mapping[str, Any] | None = None

    def find(self, place: Place) -> Callable[..., Any]:
        """The function. Raises whatever its module raises, ImportError, AttributeError."""
        first, *rest = place.name.split(".")
        if place.module == MAIN:
            found: Any = self._main_module()[first]
        else:
            found = getattr(importlib.import_module(place.module), first)
        for part in rest:
            found = getattr(found, part)
        return found

    def _main_module(self) -> Mapping[str, Any]:
        if self._main_names is None:
            if self._main is None:
                raise ImportError("the program has no main module that could be imported again")
            kind, where = self._main
            run = runpy.run_module if kind == "module" else runpy.run_path
            self._main_names = run(where, run_name=RUN_NAME)
        return self._main_names
