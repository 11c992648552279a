"""The documents are true to the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

from timeball.cli.main import cli
from timeball.model.job import Definition
from timeball.model.states import MOVES
from timeball.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


def rows(page: str, pattern: str) -> dict[str, tuple[str, ...]]:
    found = re.findall(pattern, (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    return {row[0]: row[1:] for row in found}


def test_every_setting_stands_in_the_docs_with_its_default() -> None:
    documented = {name: row[0] for name, row in rows("docs/settings.md", r"^\| `(\w+)` \| `(.*?)` \|()").items()}
    defaults = Settings()
    expected: dict[str, str] = {}
    for item in fields(Settings):
        value = getattr(defaults, item.name)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        expected[item.name] = "" if value in ((), "", {}) else text
    assert documented == expected


def test_every_field_of_a_job_stands_in_the_docs() -> None:
    table = "".join(rows("docs/jobs.md", r"^\| (`.+?`) \|()"))
    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(item.name for item in fields(Definition))


def test_the_table_of_states_is_the_table_of_legal_moves() -> None:
    documented = {name: row[0] for name, row in rows("docs/states.md", r"^\| (\w+) \| (.+?) \|()$").items()}
    documented.pop("from", None)
    assert documented == {
        before: ", ".join(sorted(after)) or "nothing: this is an end" for before, after in MOVES.items()
    }


def commands(group: click.Group, prefix: str = "timeball") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}"


def test_every_command_stands_in_the_docs() -> None:
    text = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(timeball [a-z -]*[a-z])", text, re.MULTILINE))
    assert documented == set(commands(cli))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_python_of_the_readme_compiles() -> None:
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL):
        compile(block, "README.md", "exec")
