"""What an instance and its worker processes say to each other: JSON, one message a line, over a socket.

Nothing is pickled: what comes from a worker is data, whatever its function did to it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from timeball.model.run import Kind, Outcome, Output, Work
from timeball.model.states import State

READ_BYTES = 65_536
LINE_BYTES_MAX = 16_000_000


class Lines:
    """Messages out of bytes that come in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def take(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that are whole by now. Raises ValueError for what is none."""
        self._buffer += data
        if len(self._buffer) > LINE_BYTES_MAX and b"\n" not in self._buffer:
            raise ValueError("a message without end")
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        found = [json.loads(line) for line in lines]
        if not all(isinstance(message, dict) for message in found):
            raise ValueError("a message that is no object")
        return found


def say(connection: socket.socket, **message: Any) -> None:
    """Send one message. Raises OSError."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def work_message(work: Work) -> dict[str, Any]:
    """A piece of work; its time-out stays with the instance, which keeps it."""
    return {**work._asdict(), "kind": str(work.kind), "target": dict(work.target), "args": dict(work.args)}


def read_work(message: Mapping[str, Any]) -> Work:
    """The reverse."""
    values: dict[str, Any] = {**message, "timeout_seconds": None}
    values["kind"] = Kind(values["kind"])
    return Work(**values)


def outcome_message(outcome: Outcome) -> dict[str, Any]:
    """How the function ended."""
    return {
        "state": str(outcome.state),
        "reason": outcome.reason,
        "error": outcome.error,
        "result": outcome.result,
        "retry": outcome.retry,
        "retry_after_us": outcome.retry_after_us,
        "outputs": [asdict(output) for output in outcome.outputs],
    }


def read_outcome(message: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse, as keywords of `Call.tell`. Raises ValueError, TypeError, KeyError for what is none."""
    values: dict[str, Any] = dict(message)
    values["outputs"] = tuple(Output(**output) for output in values["outputs"])
    values["state"] = State(values["state"])
    return values
