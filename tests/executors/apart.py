"""Functions that worker processes import: well-behaved ones and bad ones."""

from __future__ import annotations

import asyncio
import ctypes
import datetime as dt
import os
import signal
import sys
import threading
from typing import Any

from sqlalchemy import create_engine

from timeball.executors.function.endings import Retry, Skip


def whoami() -> int:
    return os.getpid()


def typed(run: Any, day: dt.date, count: int = 1) -> str:
    run.log(f"attempt {run.attempt}, fence {run.fence}")
    print("on stdout")
    print("on stderr", file=sys.stderr)
    return f"{type(day).__name__} {day} {count} {run.job}"


async def asynchronous(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


def raises(what: str) -> None:
    errors: dict[str, BaseException] = {
        "value": ValueError("bad"),
        "exit": SystemExit(3),
        "skip": Skip("nothing to do"),
        "retry": Retry("later", after=7),
    }
    raise errors[what]


def dies(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "segv":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


def loops() -> None:
    while True:
        pass


def holds_the_interpreter() -> None:
    """C code that never gives the interpreter's lock back: no thread of this process runs any more."""
    ctypes.PyDLL(None).sleep(1000)


def polite(run: Any) -> str:
    return "asked" if run.wait_cancelled(60) else "not asked"


def cleans_up_when_asked(run: Any, file: str) -> None:
    run.wait_cancelled(60)
    with open(file, "w") as marks:  # noqa: PTH123
        marks.write(run.cancel_reason)


def eats(megabytes: int) -> int:
    return len(bytearray(megabytes * 1_000_000))


def forks(code: int) -> int:
    child = os.fork()
    if child == 0:
        sys.exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def leaves_a_child(file: str) -> None:
    child = os.fork()
    if child == 0:
        while True:
            threading.Event().wait(60)
    with open(file, "w") as marks:  # noqa: PTH123
        marks.write(f"{os.getpid()} {child}")
    loops()


def floods() -> None:
    for number in range(200_000):
        print(f"line {number}")


def closes_its_streams() -> str:
    sys.stdout.close()
    os.close(2)
    return "done"


def speaks_nonsense() -> None:
    """Writes over what it must not touch: the socket to the instance."""
    for descriptor in range(3, 1000):
        try:
            os.write(descriptor, b"nonsense\n")
        except OSError:
            continue
    loops()


def progresses(run: Any) -> None:
    for step in range(5):
        run.progress(step / 4, f"step {step}")


def checks_its_fence(run: Any, url: str) -> str:
    """In a transaction of its own, on the ledger's database."""
    engine = create_engine(url)
    with engine.begin() as connection:
        run.fence.check(connection)
    engine.dispose()
    return "holds"
