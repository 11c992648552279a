"""The guards of the product as data: where each stands, how it is taken out, what it holds, which test must notice.

`holds` names the invariants of docs/proofs.md. A guard that another one backs up is taken out together with it, and
its name says both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

HUNT = "simulation/test_hunt.py::test_no_world_breaks_a_promise_while_faults_go_on"
SQLITE, POSTGRESQL, ANY = "sqlite", "postgresql", ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One exact text of a file under src/timeball, and what stands there without the guard."""

    file: str
    text: str
    replacement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """`database`: on which the tests are run; ANY where they choose for themselves.

    `hunted`: missed by the simulation, in as many worlds as fit into a minute, each time that guards are taken out.
    """

    name: str
    holds: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    database: str = SQLITE
    hunted: bool = False


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


def hunted(name: str, holds: str, *edits: tuple[str, str, str]) -> Guard:
    """A guard that the simulation must miss."""
    return replace(guard(name, holds, *edits, tests=HUNT, database=ANY), hunted=True)
