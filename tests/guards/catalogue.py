"""The guards of the product as data: where each stands, how it is taken out, what it holds, which test must notice.

`holds` names the invariants of docs/proofs.md. A guard that another one backs up is taken out together with it, and
its name says both.
"""

from __future__ import annotations

from dataclasses import dataclass

SQLITE, POSTGRESQL, ANY = "sqlite", "postgresql", ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One exact text of a file under src/timeball, and what stands there without the guard."""

    file: str
    text: str
    replacement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """`database`: on which the tests are run; ANY where they choose for themselves."""

    name: str
    holds: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    database: str = SQLITE


def guard(
    name: str, holds: str, *edits: tuple[str, str, str], tests: str | tuple[str, ...], database: str = SQLITE
) -> Guard:
    """Files and tests by their short names: `store/leases.py`, `races/test_ends.py::test_…`."""
    return Guard(
        name=name,
        holds=holds,
        edits=tuple(Edit(file=f"src/timeball/{file}", text=text, replacement=new) for file, text, new in edits),
        tests=tuple(f"tests/{test}" for test in ((tests,) if isinstance(tests, str) else tests)),
        database=database,
    )
