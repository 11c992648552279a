"""All guards, and whether each still stands where the catalogue says."""

from __future__ import annotations

from pathlib import Path

from tests.guards.catalogue import Guard
from tests.guards.of_commands import COMMANDS
from tests.guards.of_fences import FENCES
from tests.guards.of_history import HISTORY
from tests.guards.of_leaders import LEADERS
from tests.guards.of_people import PEOPLE
from tests.guards.of_runs import RUNS
from tests.guards.of_the_hunt import HUNTED
from tests.guards.of_work import WORK

ROOT = Path(__file__).resolve().parents[2]
GUARDS: tuple[Guard, ...] = (*HUNTED, *LEADERS, *RUNS, *PEOPLE, *HISTORY, *FENCES, *WORK, *COMMANDS)


def trouble_of(guard: Guard) -> str | None:
    """Why a guard cannot be taken out, or None."""
    for edit in guard.edits:
        found = (ROOT / edit.file).read_text(encoding="utf-8").count(edit.text)
        if found != 1:
            return (
                f"guard {guard.name!r}: its text stands {found} times in {edit.file}, not once; "
                f"mend the guard in tests/guards, or put it back into the product:\n    {edit.text}"
            )
    for test in guard.tests:
        file, _, name = test.partition("::")
        if f"def {name.partition('[')[0]}(" not in (ROOT / file).read_text(encoding="utf-8"):
            return f"guard {guard.name!r}: there is no test {test}"
    return None
