"""Rows of `tests/cases/behaviour.jsonl` about what a target may name and what an output may do to who reads it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.executors.bench_of_work import FunctionTable, Outcomes, Registry, make_work, output_of
from timeball.errors import TargetError
from timeball.executors.command.executor import CommandExecutor
from timeball.executors.function.executor import FunctionExecutor
from timeball.model.states import State

SOURCE = Path(__file__).resolve().parents[2] / "src/timeball"
BY_NAME = {
    *("app/load.py", "cli/main.py", "__init__.py", "service/importers/days.py", "store/database.py"),
    *("executors/celery/executor.py", "executors/places.py"),
}
"""Where modules are imported by name: the operator's `--app`, our own ones, extras and drivers by fixed names, and
in a worker process those of the functions that the program has registered."""


@pytest.mark.parametrize(
    "name", ["os.system", "subprocess.run", "builtins:eval", "timeball.cli:main", "known.__call__"]
)
def test_sec_007_only_what_the_program_registered_can_be_called(name: str, tmp_path: Path) -> None:
    table = FunctionTable()
    table.register("known", lambda command: command)
    registry = Registry([FunctionExecutor(table, output_bytes_max=1000, threads_max=1)])
    target, args = {"name": name}, {"command": f"touch {tmp_path}/began"}
    with pytest.raises(TargetError, match="no function named"):
        registry.check("function", target, args)
    outcomes, work = Outcomes(), make_work("function", target, args=args)
    registry.submit([work], outcomes)
    (outcome,) = outcomes.wait(work)
    assert (outcome.state, outcome.reason) == (State.FAILED, "target")
    assert not (tmp_path / "began").exists()
    registry.close(1)


def test_sec_007_nothing_imports_by_a_text_from_the_database_and_payload_is_never_pickled() -> None:
    importing: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {"pickle", "marshal", "shelve", "dill", "cloudpickle"} & set(modules), name
            if isinstance(node, ast.Attribute) and node.attr in ("import_module", "__import__"):
                importing.add(name)
            if isinstance(node, ast.Name):
                assert node.id not in ("eval", "exec", "__import__"), name
    assert importing <= BY_NAME


def test_sec_004_output_is_kept_as_text_and_its_control_characters_do_nothing() -> None:
    registry = Registry([CommandExecutor(["*"], output_bytes_max=1000, grace_seconds=1)])
    script = r"printf '<img src=x onerror=alert(1)>\033]0;title\007\033[2J\rover\b\n'"
    outcomes, work = Outcomes(), make_work("command", {"argv": ["/bin/sh", "-c", script]})
    registry.submit([work], outcomes)
    (outcome,) = outcomes.wait(work)
    text = output_of(outcome, "stdout")
    assert text == "<img src=x onerror=alert(1)>\\x1b]0;title\\x07\\x1b[2J\\x0dover\\x08\n"
    registry.close(1)
