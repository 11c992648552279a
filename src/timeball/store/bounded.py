"""Sessions that do not wait for ever: a server, a pooler or a wire that is silent is given up after a while.

The server's own time-outs end what takes long there, and the kernel's what is not acknowledged. Neither notices a host
on the way that acknowledges all and answers nothing: a frozen pooler, a proxy that lost its other side.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, event

from timeball.clock import monotonic_us, seconds_to_us

ANSWER_AFTER_SECONDS = 1.0
"""How much longer than the server's time-out an answer may take on its way."""


class BoundedSession(psycopg.Connection[Any]):
    """A session that is closed when one statement or commit has no answer within `answer_seconds`."""

    answer_seconds: float | None = None

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait for the answer to one exchange with the server. Raises psycopg.OperationalError when it is too late."""
        if self.answer_seconds is None:
            return super().wait(gen, *args, **options)
        return super().wait(self._bounded(gen, self.answer_seconds), *args, **options)

    def _bounded(self, gen: Any, seconds: float) -> Generator[Any, Any, Any]:
        """The exchange, which the driver resumes several times a second while nothing comes."""
        late = monotonic_us() + seconds_to_us(seconds)
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and monotonic_us() > late:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {seconds:g} s; the session is given up")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


def bound(engine: Engine, *, statement_timeout_seconds: float) -> None:
    """Let every session of an engine wait for an answer a little longer than the server takes for a statement."""

    def connect(_dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]) -> BoundedSession:
        session = BoundedSession.connect(*arguments, **options)
        session.answer_seconds = statement_timeout_seconds + ANSWER_AFTER_SECONDS
        return session

    event.listen(engine, "do_connect", connect)


@contextlib.contextmanager
def patience(connection: Connection, seconds: float) -> Generator[None]:
    """Let one session wait longer for its answers, while this lasts."""
    session: Any = connection.connection.dbapi_connection
    before, session.answer_seconds = session.answer_seconds, seconds + ANSWER_AFTER_SECONDS
    try:
        yield
    finally:
        session.answer_seconds = before
