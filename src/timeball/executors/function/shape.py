"""How a function is called: read once from its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from timeball.executors.function.arguments import Arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`wants_run`: its first parameter gets the run's context."""

    function: Callable[..., Any]
    is_async: bool
    wants_run: bool
    arguments: Arguments


def shape_of(name: str, function: Callable[..., Any]) -> Shape:
    """Never raises: what C functions do not say is taken as it comes."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C do not say
        signature = None
    first = next(iter(signature.parameters.values()), None) if signature else None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    wants_run = first is not None and first.name == "run" and first.kind in positional
    return Shape(
        function=function,
        is_async=inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called),
        wants_run=wants_run,
        arguments=Arguments(name, function, skip_first=wants_run),
    )
