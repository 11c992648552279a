"""The tasks of the tests' Celery workers."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from celery import Celery

from timeball.celery import Once, run_of

app = Celery("tasks", broker=os.environ["TEST_BROKER"], backend=os.environ["TEST_BACKEND"])
app.conf.update(broker_connection_retry_on_startup=True, worker_hijack_root_logger=False, result_expires=600)
app.conf.broker_transport_options = {"visibility_timeout": int(os.environ.get("TEST_VISIBILITY_SECONDS", "3600"))}


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def note(file: str, word: str) -> None:
    """One word a line: what was begun, and what ended."""
    with Path(file).open("a", encoding="utf-8") as notes:
        notes.write(f"{word}\n")


@app.task
def add(a: int = 0, b: int = 0) -> int:
    return a + b


@app.task(bind=True)
def whose(self) -> object:
    run = run_of(self)
    return None if run is None else [run.run_id, run.job, run.due_at, run.attempt, run.fence, run.namespace]


@app.task
def fails(text: str = "broken") -> None:
    raise ValueError(text)


@app.task
def much(chars: int) -> str:
    return "x" * chars


@app.task
def crashes() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def works(file: str, seconds: float = 60) -> str:
    note(file, "begun")
    wait(seconds)
    note(file, "ended")
    return "done"


@app.task(base=Once)
def works_once(file: str, seconds: float = 60) -> str:
    note(file, "begun")
    wait(seconds)
    note(file, "ended")
    return "done"


@app.task(base=Once, acks_late=True)
def works_once_late(file: str, seconds: float = 60) -> str:
    note(file, "begun")
    wait(seconds)
    return "done"


@app.task(bind=True, base=Once, max_retries=3)
def third_time(self, file: str) -> str:
    note(file, "begun")
    if self.request.retries < 2:
        raise self.retry(countdown=0, exc=ValueError("not yet"))
    return "done"
