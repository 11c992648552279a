"""What a kill -9 costs on PostgreSQL by default: the worst gap of a one-second job, and how long a rerun waits.

Three instances. `owner`: each kill hits whoever holds the claim of the next tick; `idle`: one that holds none; `rerun`:
the instance that runs a long job with `on_lost: rerun`. A throw-away server is started unless --db names a database.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psycopg
from rich.console import Console
from rich.table import Table
from tests.cluster.aimed_kills import kill_again_and_again, reruns
from tests.postgres_server import postgres_server

BARS = {"owner": "below 3 s", "idle": "below 1.1 s", "rerun": "below 12 s"}


@contextlib.contextmanager
def fresh_database(url: str | None, name: str) -> Generator[str]:
    if url is not None:
        yield url
        return
    with postgres_server() as base:
        with psycopg.connect(f"{base}/postgres", autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}")  # pyright: ignore
        yield f"{base}/{name}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--kills", type=int, default=20)
    arguments.add_argument("--only", choices=tuple(BARS))
    arguments.add_argument("--db", help="an empty database; needs --only")
    given = arguments.parse_args()
    table = Table("killed", "kills", "ticks", "duplicates", "missed", "worst gap or wait", "p50", "bar")
    for kind in [given.only] if given.only else BARS:
        with fresh_database(given.db, kind) as url, tempfile.TemporaryDirectory() as folder:
            if kind == "rerun":
                waits = sorted(reruns(url, Path(folder), kills=given.kills))
                counts = ("", "", "")
            else:
                done = kill_again_and_again(url, Path(folder), kills=given.kills, owner=kind == "owner")
                waits = sorted(done.gaps_us)
                counts = (str(done.report.ticks), str(done.report.duplicates), str(done.report.missed))
        worst, middle = waits[-1] / 1e6, waits[len(waits) // 2] / 1e6
        table.add_row(kind, str(given.kills), *counts, f"{worst:.2f} s", f"{middle:.2f} s", BARS[kind])
    Console().print(table)


if __name__ == "__main__":
    main()
