"""A process that runs commands as an instance does: targets as JSON in, outcomes as JSON lines out.

Run as `python -m tests.executors.instance_of_commands [--fork] [--plain] TARGET…`; `--fork` leaves a copy of itself
that holds all that it holds, `--plain` works as where no process can adopt another. Ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from tests.executors.bench_of_work import make_work
from timeball.executors.command.executor import CommandExecutor
from timeball.executors.command.link import Link
from timeball.model.run import Outcome


def main(arguments: list[str]) -> None:
    targets = [text for text in arguments if not text.startswith("--")]
    link = Link(plain=True) if "--plain" in arguments else Link()
    executor = CommandExecutor(("*",), 65_536, 0.5, link=link)
    begun = threading.Event()

    def report(outcome: Outcome) -> None:
        texts = [output.text for output in outcome.outputs]
        print(json.dumps({"state": outcome.state, "error": outcome.error, "outputs": texts}), flush=True)
        begun.set()

    if "--fork" in arguments:
        executor.submit([make_work("command", {"argv": ["/bin/true"]})], report)
        begun.wait()
        copy = os.fork()
        if not copy:
            signal.pause()
        print(json.dumps({"copy": copy}), flush=True)
    executor.submit([make_work("command", json.loads(text)) for text in targets], report)
    sys.stdin.read()
    executor.close(1)


if __name__ == "__main__":
    main(sys.argv[1:])
