"""What a function takes, by its signature: the one schema for saving, triggering, running and forms.

Values are read as JSON, strictly: a text is no number. What the annotations say becomes the value (a date, an enum, a
dataclass, a pydantic model). pydantic is imported when the first function is looked at, not before.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from timeball.errors import TargetError
from timeball.executors.registry import suggestion

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

TROUBLES_MAX = 3
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_log = logging.getLogger("timeball.executors")


class Arguments:
    """The arguments of one function. `skip_first`: its first parameter is the run's context, not one of them."""

    def __init__(self, name: str, function: Callable[..., Any], *, skip_first: bool) -> None:
        self._name = name
        self._function = function
        self._parameters = _parameters(function, skip_first=skip_first)

    def read(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The values to call it with. Raises TargetError naming the arguments that do not fit."""
        if self._parameters is None or (not args and not self._required):
            return dict(args)
        from pydantic import ValidationError  # noqa: PLC0415 - 100 ms that `timeball --help` need not wait for

        try:
            found = self._model.model_validate_json(json.dumps(dict(args)), strict=True)
        except ValidationError as error:
            raise self._trouble(error, args) from error
        given = {
            p.name: getattr(found, f"a{i}") for i, p in enumerate(self._named) if f"a{i}" in found.model_fields_set
        }
        return {**given, **(found.model_extra or {})}

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the object of arguments; an open one where the function does not say what it takes."""
        if self._parameters is None:
            return {"type": "object"}
        return _schema(self._model) | {"title": self._name}

    @functools.cached_property
    def _named(self) -> list[inspect.Parameter]:
        return [p for p in self._parameters or () if p.kind in _BY_NAME]

    @functools.cached_property
    def _required(self) -> bool:
        self._refuse_positional()
        return any(p.default is p.empty for p in self._named)

    @functools.cached_property
    def _model(self) -> type[BaseModel]:
        from pydantic import ConfigDict, Field, create_model  # noqa: PLC0415 - see above

        self._refuse_positional()
        takes_any = any(p.kind is p.VAR_KEYWORD for p in self._parameters or ())
        config = ConfigDict(
            extra="allow" if takes_any else "forbid",
            arbitrary_types_allowed=True,
            protected_namespaces=(),
            # Names of the model's own would clash with names of arguments.
            serialize_by_alias=True,
        )
        fields: dict[str, Any] = {}
        for number, parameter in enumerate(self._named):
            annotation = _annotation(self._function, parameter)
            fields[f"a{number}"] = (
                annotation,
                Field(alias=parameter.name, title=parameter.name, **_default(parameter)),
            )
        return create_model("Arguments", __config__=config, **fields)

    def _refuse_positional(self) -> None:
        for parameter in self._parameters or ():
            if parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
                raise TargetError(
                    f"function {self._name!r} takes {parameter.name!r} by position only; arguments come by name",
                    hint="leave out the / in its signature",
                    field=f"args.{parameter.name}",
                )

    def _trouble(self, error: ValidationError, args: Mapping[str, Any]) -> TargetError:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        words: list[str] = []
        hint = None
        for item in found[:TROUBLES_MAX]:
            place = ".".join(str(part) for part in item["loc"])
            if item["type"] == "extra_forbidden" and len(item["loc"]) == 1:
                known = [p.name for p in self._named]
                words.append(f"unknown argument {place!r}")
                hint = hint or suggestion(place, [name for name in known if name not in args] or known)
            elif item["type"] == "missing":
                words.append(f"argument {place!r} is missing")
            else:
                words.append(f"argument {place!r}: {item['msg']}")
        more = f"; and {len(found) - TROUBLES_MAX} more" if len(found) > TROUBLES_MAX else ""
        return TargetError(
            f"args do not fit function {self._name!r}: {'; '.join(words)}{more}",
            hint=hint or f"it takes {inspect.signature(self._function)}",
            field=f"args.{'.'.join(str(part) for part in found[0]['loc'])}",
        )


def _parameters(function: Callable[..., Any], *, skip_first: bool) -> list[inspect.Parameter] | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C do not say
        return None
    return list(signature.parameters.values())[skip_first:]


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """What a parameter is declared as, each for itself: what one cannot be read as says nothing of the others."""
    if parameter.annotation is parameter.empty:
        return Any
    holder: Any = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return typing.get_type_hints(holder, globalns=_globals(function), include_extras=True)[parameter.name]
    except Exception as error:  # noqa: BLE001 - an annotation is code of the user's
        _log.warning(
            "function %s: what argument %r is declared as cannot be read (%s), so anything is taken",
            getattr(function, "__qualname__", function),
            parameter.name,
            error,
        )
        return Any


def _globals(function: Any) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    found: Any = function if hasattr(function, "__globals__") else getattr(type(function), "__call__", None)  # noqa: B004
    return getattr(getattr(found, "__func__", found), "__globals__", {})


def _default(parameter: inspect.Parameter) -> dict[str, Any]:
    """The function's own default counts; the schema shows it where JSON can."""
    if parameter.default is parameter.empty:
        return {}
    try:
        shown = {"default": json.loads(json.dumps(parameter.default))}
    except (TypeError, ValueError):
        shown = {}
    return {"default_factory": lambda: None, "json_schema_extra": shown}


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    from pydantic.json_schema import GenerateJsonSchema  # noqa: PLC0415 - see above

    class Lenient(GenerateJsonSchema):
        """What JSON cannot say is left open."""

        def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
            del schema, error_info
            return {}

    return model.model_json_schema(by_alias=True, schema_generator=Lenient)
