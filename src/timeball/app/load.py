"""Finding the scheduler that a user names as MODULE:ATTRIBUTE."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from timeball.app.scheduler import Scheduler
from timeball.errors import InvalidInput

FORM = "write it as MODULE:ATTRIBUTE, for example myproject.jobs:scheduler"


def load_scheduler(place: str) -> Scheduler:
    """Import a module (the current folder comes first) and take its scheduler. Raises InvalidInput in plain words."""
    module_name, colon, attribute = place.partition(":")
    if not module_name or not colon or not attribute:
        raise InvalidInput(f"--app {place!r} does not name a scheduler", hint=FORM, field="app")
    module = _import(module_name)
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InvalidInput(
                f"module {module_name!r} has no attribute {attribute!r}", hint=_hint(module), field="app"
            )
        found = getattr(found, part)
    if not isinstance(found, Scheduler):
        kind = type(found).__name__
        raise InvalidInput(f"{place} is a {kind}, not a timeball.Scheduler", hint=_hint(module), field="app")
    return found


def _import(name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidInput(
                f"there is no module {error.name!r} (looked in {here} and the installed packages)",
                hint=FORM,
                field="app",
            ) from error
        raise InvalidInput(f"importing {name!r} failed: {error}", field="app") from error
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"importing {name!r} failed: {type(error).__name__}: {error}", field="app") from error


def _hint(module: object) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Scheduler)]
    return f"its schedulers: {', '.join(sorted(names))}" if names else "it has no timeball.Scheduler at all"
