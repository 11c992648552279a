"""What a worker process runs: `main`, with the descriptors and the kind of database that its instance gives."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from timeball.executors.function.worker import serve
from timeball.store.fences import FenceCheck

_SCRIPT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from timeball.app.worker import main; main()"


def worker_command(database_kind: str) -> Sequence[str]:
    """What to execute, but for the two descriptors at its end. The same interpreter with the same search path."""
    return (sys.executable, "-c", _SCRIPT, json.dumps(sys.path), database_kind)


def main() -> None:
    """Be a worker until told to end."""
    kind, connection, log = sys.argv[2:5]
    sys.argv[:] = ["timeball-worker"]
    serve(int(connection), int(log), FenceCheck(kind))
