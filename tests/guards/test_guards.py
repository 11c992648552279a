"""The catalogue of guards is true to the product, and docs/proofs.md to both."""

from __future__ import annotations

import re

import pytest

from tests.guards.catalogue import Edit, Guard
from tests.guards.places import GUARDS, ROOT, trouble_of

PROOFS = ROOT / "docs/proofs.md"
INVARIANTS = [f"I{number}" for number in range(1, 41)]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_every_guard_stands_where_the_catalogue_says(guard: Guard) -> None:
    assert trouble_of(guard) is None, trouble_of(guard)
    assert set(guard.holds.split()) <= set(INVARIANTS)


def test_no_two_guards_have_one_name() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)


def test_a_guard_that_has_moved_is_told_by_name_and_text() -> None:
    moved = Guard(name="x", holds="I1", edits=(Edit(file="dev", text="no such", replacement=""),), tests=())
    assert "stands 0 times in dev" in str(trouble_of(moved))


def test_the_proofs_name_every_invariant_in_order_and_every_guard_in_its_rows() -> None:
    rows = re.findall(r"^\| (I\d+) \| (.+) \| (.+) \| (.+) \|$", PROOFS.read_text(encoding="utf-8"), re.MULTILINE)
    assert [row[0] for row in rows] == INVARIANTS
    for number, _, _, guards in rows:
        held = [guard.name for guard in GUARDS if number in guard.holds.split()]
        assert [name for name in guards.split("; ") if name in held] == held, number


def test_the_tests_that_the_proofs_name_are_there() -> None:
    named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", PROOFS.read_text(encoding="utf-8"))
    assert named
    for file, name in named:
        assert (ROOT / file).exists(), file
        assert not name or f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"
