"""The house rules that no linter knows. The tables of exceptions may only get shorter."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(p for folder in ("src/timeball", "tests", "bench") for p in (ROOT / folder).rglob("*.py"))
SOURCES = [path for path in FILES if "src" in path.parts]
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
OWN_NOTHING = {"utils", "helpers", "helper", "common", "base", "manager", "misc", "core"}
UNFINISHED = ["TO" + "DO", "FIX" + "ME", "XX" + "X"]

LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {
    "engine/engine.py:__init__": "wiring: one part after the other",
    "store/jobs.py:create": "one transaction, told in order",
    "store/migrations/versions/0001_core.py:_create_tables": "one table after the other",
    "store/plans.py:__init__": "one statement after the other, each named",
    "store/reaps.py:__init__": "one statement after the other, each named",
    "store/settles.py:__init__": "one statement after the other, each named",
}


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix().removeprefix("src/timeball/")


def test_files_fit() -> None:
    long = {short(path) for path in FILES if len(path.read_text(encoding="utf-8").splitlines()) > FILE_LINES_MAX}
    assert long == set(LONG_FILES)


def test_functions_fit_a_screen() -> None:
    long: set[str] = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long.add(f"{short(path)}:{node.name}")
    assert long == set(LONG_FUNCTIONS)


@pytest.mark.parametrize("path", FILES, ids=short)
def test_nothing_is_left_unfinished_and_no_test_sleeps(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not [word for word in UNFINISHED if word in text]
    if "tests" in path.parts and path != Path(__file__):
        assert "time." + "sleep" not in text or "sleeps = " in text or "def blocks" in text


@pytest.mark.parametrize("path", SOURCES, ids=short)
def test_every_module_says_what_it_owns(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree) or not tree.body
    assert path.stem not in OWN_NOTHING
