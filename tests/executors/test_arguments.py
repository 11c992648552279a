"""Typed arguments: the signature is the schema. What does not fit is refused by name, what fits becomes a value."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from tests.executors.bench_of_work import FunctionTable, Outcomes, make_work
from timeball.errors import TargetError
from timeball.executors.function.executor import FunctionExecutor
from timeball.executors.registry import ENTRY_POINTS

if TYPE_CHECKING:
    from timeball import RunContext


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Customer(BaseModel):
    name: str
    points: list[Point] = []


def report(
    run: RunContext,
    day: dt.date,
    count: Annotated[int, Field(ge=1)] = 1,
    *,
    colour: Colour = Colour.RED,
    customer: Customer | None = None,
    mode: Literal["fast", "slow"] = "fast",
    model_config: str = "",
    anything: Any = None,
    opaque: threading.Lock | None = None,  # noqa: F821 - such annotations are met  # pyright: ignore
) -> str:
    return f"{type(day).__name__} {count} {colour.name} {customer} {mode} {model_config}"


@pytest.fixture
def executor() -> Iterator[FunctionExecutor]:
    table = FunctionTable()
    table.register("report", report)
    table.register("untyped", lambda a, b=2: [a, b])
    table.register("open", lambda **options: options)
    table.register("partial", functools.partial(report, count=3))
    made = FunctionExecutor(table, output_bytes_max=10_000, threads_max=4)
    yield made
    made.close(0.1)


def check(executor: FunctionExecutor, function: str, **args: Any) -> None:
    executor.check({"name": function}, args)


def run(executor: FunctionExecutor, function: str, **args: Any) -> Any:
    outcomes = Outcomes()
    work = make_work("function", {"name": function}, args=args)
    executor.submit([work], outcomes)
    return outcomes.wait(work)[0]


@pytest.mark.parametrize(
    ("args", "field", "words"),
    [
        ({}, "args.day", "argument 'day' is missing"),
        ({"day": "2026-13-01"}, "args.day", "'day'"),
        ({"day": "2026-12-01", "count": "3"}, "args.count", "'count': Input should be a valid integer"),
        ({"day": "2026-12-01", "count": 0}, "args.count", "greater than or equal to 1"),
        ({"day": "2026-12-01", "count": True}, "args.count", "'count'"),
        ({"day": "2026-12-01", "colour": "blue"}, "args.colour", "'red'"),
        ({"day": "2026-12-01", "mode": "quick"}, "args.mode", "'fast' or 'slow'"),
        ({"day": "2026-12-01", "customer": {"name": "a", "points": [{"x": "1"}]}}, "args.customer.points.0.x", "x'"),
        ({"day": "2026-12-01", "cuont": 3}, "args.cuont", "unknown argument 'cuont'"),
        ({"day": 1, "count": "", "mode": 1, "colour": 1}, "args.day", "and 1 more"),
    ],
)
def test_the_wrong_argument_is_refused_by_name(
    executor: FunctionExecutor, args: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(TargetError) as caught:
        check(executor, "report", **args)
    assert caught.value.field == field
    assert words in str(caught.value)


def test_a_misspelt_argument_gets_a_suggestion(executor: FunctionExecutor) -> None:
    with pytest.raises(TargetError, match="did you mean 'count'"):
        check(executor, "report", day="2026-12-01", cuont=3)


def test_what_fits_becomes_what_the_signature_says(executor: FunctionExecutor) -> None:
    customer = {"name": "a", "points": [{"x": 1}]}
    outcome = run(executor, "report", day="2026-12-01", count=2, colour="red", customer=customer, model_config="c")
    assert outcome.result == "\"date 2 RED name='a' points=[Point(x=1, y=0)] fast c\"", outcome
    assert run(executor, "partial", day="2026-12-01").result == '"date 3 RED None fast "'


def test_the_defaults_are_those_of_the_function(executor: FunctionExecutor) -> None:
    assert run(executor, "report", day="2026-12-01").result == '"date 1 RED None fast "'
    assert run(executor, "untyped", a=[1]).result == "[[1], 2]"


def test_a_function_that_takes_anything_by_name_gets_it(executor: FunctionExecutor) -> None:
    check(executor, "open", a=1, b={"c": []})
    assert run(executor, "open", a=1).result == '{"a": 1}'


def test_a_function_that_takes_an_argument_by_position_only_is_told(executor: FunctionExecutor) -> None:
    def by_position(a: int, /) -> None:
        """Cannot be called by name."""

    executor._table.register("by position", by_position)
    with pytest.raises(TargetError, match="by position only"):
        check(executor, "by position")


def test_an_annotation_that_cannot_be_read_is_told_and_takes_anything(
    executor: FunctionExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    check(executor, "report", day="2026-12-01", opaque="x")
    assert "argument 'opaque'" in caplog.text


def test_the_schema_is_what_a_form_is_made_of(executor: FunctionExecutor) -> None:
    schema = executor.schema({"name": "report"})
    properties = schema["properties"]
    assert schema["required"] == ["day"]
    assert schema["additionalProperties"] is False
    assert "run" not in properties
    assert properties["day"] == {"format": "date", "title": "day", "type": "string"}
    assert (properties["count"]["default"], properties["count"]["minimum"]) == (1, 1)
    assert properties["mode"]["enum"] == ["fast", "slow"]
    assert executor.schema({"name": "open"})["additionalProperties"] is True


def test_no_function_no_pydantic() -> None:
    """`timeball --help` and a command on a database do not wait for its import."""
    script = "import sys, timeball.app.wiring, timeball.cli.main; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A distribution with a module `offered` and these entry points."""

    def make(entries: str) -> None:
        Path(tmp_path, "offered.py").write_text("def greet(name: str) -> str:\n    return f'hello {name}'\n")
        about = Path(tmp_path, "offered-1.dist-info")
        about.mkdir()
        Path(about, "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1\n")
        Path(about, "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{entries}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    return make


def test_functions_of_entry_points_are_offered(installed: Callable[[str], None]) -> None:
    installed("greet = offered:greet")
    executor = FunctionExecutor(FunctionTable(installed=True), output_bytes_max=100, threads_max=1)
    assert executor.handlers() == ("function:greet",)
    assert run(executor, "greet", name="you").result == '"hello you"'
    assert FunctionTable().names() == []
    executor.close(1)


def test_an_entry_point_that_fails_is_told_and_stops_nothing(
    installed: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    installed("greet = offered:greet\nbad = offered:nothing\nworse = no_such_module:f")
    table = FunctionTable(installed=True)
    assert table.names() == ["greet"]
    with pytest.raises(TargetError, match="its entry point offered:nothing failed: AttributeError"):
        table.get("bad")
    assert "'worse' is not offered" in caplog.text
