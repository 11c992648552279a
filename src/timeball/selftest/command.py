"""The command that the self-test's command job runs, `python -m timeball.selftest.command`: it leaves its evidence."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from timeball.clock import parse_instant
from timeball.selftest.evidence import BEGIN, END, writer_of

TAKES_SECONDS = 0.1
FILE = "commands"


def main(environ: Mapping[str, str]) -> None:
    """Mark begin and end of the run that the environment names."""
    writer = writer_of(environ, FILE)
    for what in (BEGIN, END):
        writer.mark(
            what,
            job=environ["TIMEBALL_JOB"],
            kind="",
            due_at=parse_instant(environ["TIMEBALL_DUE_AT"]),
            run_id=int(environ["TIMEBALL_RUN_ID"]),
            attempt=int(environ["TIMEBALL_ATTEMPT"]),
            fence=int(environ["TIMEBALL_FENCE"]),
        )
        if what == BEGIN:
            threading.Event().wait(TAKES_SECONDS)


if __name__ == "__main__":
    main(os.environ)
