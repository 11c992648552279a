"""Takes every guard out of the product, one at a time, in a copy of the tree, and wants a test to notice.

Run as `./dev guards [--full] [--seed N] [WORDS]`: every guard with --full, those whose names hold a word, or else those
that the simulation must miss and a slice of the others that a seed draws, by default another one each day. Fails when a
test does not notice, when it notices for the wrong reason (broken SQL, broken Python), when a guard is not found where
it should stand, or when the tests fail with all guards in place.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.guards.catalogue import Guard
from tests.guards.places import GUARDS, ROOT, trouble_of
from timeball.clock import monotonic_us, wall_us

AT_ONCE = 2
SLICE = 10
HUNT_SECONDS = 55
DAY_US = 86_400_000_000
SECONDS_MAX = 120
WRONG_REASON = re.compile(
    r"OperationalError|ProgrammingError|SyntaxError|NameError|ImportError|AttributeError|TypeError|SchemaMismatch"
    r"|StoreError: |Unavailable: "
)
FAILED = re.compile(r"^(FAILED|ERROR) (\S+?::(\S+))(?: - (.*))?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`trouble` None: a test noticed, and it was this one."""

    name: str
    test: str
    seconds: float
    trouble: str | None


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="./dev guards", description=__doc__)
    parser.add_argument("words", nargs="*", help="only guards whose name holds one of these")
    parser.add_argument("--list", action="store_true", help="only say which guards there are")
    parser.add_argument("--full", action="store_true", help="every guard; takes some minutes")
    parser.add_argument("--seed", type=int, default=wall_us() // DAY_US, help="which slice (default: by the day)")
    options = parser.parse_args(arguments)
    chosen = [g for g in GUARDS if not options.words or any(word in g.name for word in options.words)]
    if not chosen:
        parser.error("no guard has such a name; --list shows them")
    if options.list:
        print("\n".join(f"{guard.holds:12} {guard.name}" for guard in chosen))
        return 0
    lost = [trouble for guard in GUARDS if (trouble := trouble_of(guard)) is not None]
    if lost:
        print("\n".join(lost), file=sys.stderr)
        return 1
    if not options.full and not options.words:
        hunted, others = ([guard for guard in GUARDS if guard.hunted is which] for which in (True, False))
        print(f"{len(hunted)} that the simulation must miss; {SLICE} of {len(others)}, drawn by --seed {options.seed}")
        chosen = hunted + random.Random(options.seed).sample(others, SLICE)
    return _judge(chosen)


def _judge(chosen: Sequence[Guard]) -> int:
    begun = monotonic_us()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        whole = [verdict for verdict in pool.map(lambda part: _with_all(*part), _parts(chosen)) if verdict.trouble]
        verdicts = whole or _told(pool.map(_without, chosen), max(len(guard.name) for guard in chosen))
    troubles = [verdict for verdict in verdicts if verdict.trouble]
    for verdict in troubles:
        print(f"\n{verdict.name}: {verdict.trouble}", file=sys.stderr)
    seconds = (monotonic_us() - begun) / 1e6
    print(f"\n{len(verdicts) - len(troubles)} of {len(chosen)} guards missed by a test; {seconds:.0f} s")
    return 1 if troubles else 0


def _told(verdicts: object, width: int) -> list[Verdict]:
    """Print each as it comes."""
    kept: list[Verdict] = []
    for verdict in verdicts:  # type: ignore[attr-defined]
        mark = "NOT NOTICED" if verdict.trouble else verdict.test
        print(f"{verdict.name:{width}}  {verdict.seconds:5.1f} s  {mark}", flush=True)
        kept.append(verdict)
    return kept


def _parts(chosen: Sequence[Guard]) -> list[tuple[str, list[str]]]:
    """All selected tests, by database."""
    tests: dict[str, set[str]] = defaultdict(set)
    for guard in chosen:
        tests[guard.database].update(guard.tests)
    return [(database, sorted(nodes)) for database, nodes in tests.items()]


def _with_all(database: str, tests: Sequence[str]) -> Verdict:
    """With every guard in place the tests must pass, else their failures would mean nothing."""
    name = f"with all guards in place, {database or 'other tests'}"
    with _copy() as tree:
        code, output, seconds = _pytest(tree, database, tests)
    return Verdict(name=name, test="", seconds=seconds, trouble=None if code == 0 else f"exit code {code}\n{output}")


def _without(guard: Guard) -> Verdict:
    with _copy() as tree:
        for edit in guard.edits:
            path = Path(tree, edit.file)
            path.write_text(path.read_text(encoding="utf-8").replace(edit.text, edit.replacement), encoding="utf-8")
        code, output, seconds = _pytest(tree, guard.database, guard.tests, hunt=guard.hunted)
    found = FAILED.search(output)
    test, reason = (found[3], found[4] or "") if found else ("", "")
    trouble = None
    if code == 0:
        trouble = f"no test notices that it is gone ({', '.join(guard.tests)})"
    elif code != 1 or found is None or found[1] == "ERROR":
        trouble = f"the tests could not be run without it, exit code {code}\n{output}"
    elif WRONG_REASON.search(reason):
        trouble = f"its test fails for another reason: {reason}"
    return Verdict(name=guard.name, test=test, seconds=seconds, trouble=trouble)


def _copy() -> tempfile.TemporaryDirectory[str]:
    """A tree of its own: product, tests, and the tests' settings, with what Python has compiled already."""
    folder = tempfile.TemporaryDirectory(prefix="timeball-guard-")
    for part in ("src", "tests"):
        shutil.copytree(ROOT / part, Path(folder.name, part), ignore=shutil.ignore_patterns(".pytest_cache"))
    shutil.copy2(ROOT / "pyproject.toml", folder.name)
    return folder


def _pytest(tree: str, database: str, tests: Sequence[str], *, hunt: bool = False) -> tuple[int, str, float]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:randomly", "-p", "no:cacheprovider"]
    chosen = ["-k", database] if database else []
    environ = {**os.environ, "PYTHONPATH": str(Path(tree, "src")), "COLUMNS": "300", "TIMEBALL_TEST_GUARDS": tree}
    if hunt:
        environ["TIMEBALL_TEST_HUNT_SECONDS"] = str(HUNT_SECONDS)
    begun = monotonic_us()
    try:
        done = subprocess.run(
            [*command, *chosen, *tests],
            cwd=tree,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
        )
    except subprocess.TimeoutExpired as error:
        return -1, f"not ended after {error.timeout:g} s", SECONDS_MAX
    return done.returncode, done.stdout[-4000:], (monotonic_us() - begun) / 1e6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
