"""`timeball selftest` with all of its faults at once, on a throw-away primary with a synchronous replica.

Where no disk may be mounted (not root) it goes without disk-full, where libfaketime is not, without skew; it says so.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.postgres_pair import postgres_pair
from tests.postgres_server import NoServer

from timeball.errors import InvalidInput
from timeball.selftest.faults import DISK_FULL, KINDS, SKEW
from timeball.selftest.skew import find_library


def without(faults: list[str], kind: str, why: object) -> None:
    faults.remove(kind)
    print(f"without {kind}: {why}", file=sys.stderr)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM ends it as Ctrl-C does: nothing is left behind."""
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, interrupt)
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--instances", type=int, default=5)
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--faults", default=",".join(KINDS), help="default: all")
    arguments.add_argument("--faketime", help="the library, where it is not found by itself")
    given, others = arguments.parse_known_args()
    faults = given.faults.split(",")
    if SKEW in faults:
        try:
            find_library(given.faketime)
        except InvalidInput as error:
            without(faults, SKEW, error)
    with contextlib.ExitStack() as stack:
        try:
            pair = stack.enter_context(postgres_pair(disk=DISK_FULL in faults))
        except NoServer as error:
            without(faults, DISK_FULL, error)
            pair = stack.enter_context(postgres_pair(disk=False))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        command = [sys.executable, "-m", "timeball", "selftest", "--db", f"{pair.url}/postgres", *pair.flags(faults)]
        command += ["--minutes", f"{given.minutes:g}", "--instances", str(given.instances), *others]
        command += ["--faults", ",".join(faults)]
        command += ["--seed", str(given.seed)] if given.seed is not None else []
        command += ["--faketime", given.faketime] if given.faketime and SKEW in faults else []
        return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
