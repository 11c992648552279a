"""The program that the instances of the self-test run: `timeball serve --app timeball.selftest.work:scheduler`.

An instance hangs on a leash: the other end of its standard input is held by the self-test, and when that is gone,
killed for example, the instance ends itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from timeball.app.scheduler import Scheduler
from timeball.executors.function.context import RunContext
from timeball.selftest.evidence import BEGIN, END, writer_of
from timeball.selftest.jobs import SPECS, Spec

LEASH_VARIABLE = "SELFTEST_LEASH"
scheduler = Scheduler()
_writer = writer_of(os.environ)


class FirstAttempt(Exception):
    """The failure that a job was asked to have."""


def _mark(what: str, run: RunContext, edition: int) -> None:
    _writer.mark(
        what,
        job=run.job,
        kind=run.kind,
        due_at=run.due_at_us,
        run_id=run.id,
        attempt=run.attempt,
        fence=run.fence,
        edition=edition,
    )


def _end(run: RunContext, spec: Spec, edition: int) -> None:
    _mark(END, run, edition)
    if spec.fails_first and run.attempt == 1:
        raise FirstAttempt


def _work_of(spec: Spec) -> Callable[..., Any]:
    def in_thread(run: RunContext, edition: int = 0) -> None:
        _mark(BEGIN, run, edition)
        if not run.wait_cancelled(spec.seconds):
            _end(run, spec, edition)

    async def on_loop(run: RunContext, edition: int = 0) -> None:
        _mark(BEGIN, run, edition)
        await asyncio.sleep(spec.seconds)
        _end(run, spec, edition)

    return in_thread if spec.sync else on_loop


for _spec in SPECS:
    scheduler.job(_spec.name, _spec.schedule, **_spec.policies)(_work_of(_spec))


def _leash() -> None:
    while os.read(0, 1):  # not through sys.stdin, whose lock would be held when the interpreter ends
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if os.environ.get(LEASH_VARIABLE):
    threading.Thread(target=_leash, name="selftest-leash", daemon=True).start()
