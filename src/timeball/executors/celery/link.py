"""The wires to Celery: its broker, and the Redis that holds the results. Owns connections; decides nothing.

Two Celery apps: the one that sends has no result backend, or it would subscribe to the result of every task.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amqp.exceptions import ChannelError
from celery import Celery
from kombu.exceptions import EncodeError
from redis.exceptions import DataError, ResponseError

from timeball.clock import monotonic_us, seconds_to_us
from timeball.executors.celery.handover import Refused
from timeball.executors.celery.keys import CLOSED, begun_key, handover_key, run_key
from timeball.executors.celery.target import CeleryTarget
from timeball.executors.celery.verdict import RESULT_CHARS_MAX, Sign

WIRE_SECONDS = 5.0
"""How long a broker or a Redis may take for one answer."""
DROP_SECONDS = 0.1
STALE_SECONDS = 0.1
"""A connection that was not used for so long is opened anew: it may be dead, and a send on it would tell nothing."""
RECORD_BYTES_MAX = 1_048_576
HEAD_BYTES = 256
_REFUSALS = (EncodeError, ChannelError, ResponseError, DataError, LookupError, TypeError, ValueError)
"""The client could not make the message, or the server answered that it does not take it."""


class Link:
    """Connections to one broker and one result backend. `send` and `revoke` are for one thread only."""

    def __init__(self, broker_url: str, result_backend: str) -> None:
        self._sender = Celery("timeball", broker=broker_url, set_as_current=False)
        self._sender.conf.update(
            broker_connection_timeout=WIRE_SECONDS,
            broker_transport_options=_transport_options(broker_url),
            task_publish_retry=False,
        )
        self._reader = Celery("timeball-results", backend=result_backend, set_as_current=False)
        self._reader.conf.update(redis_socket_timeout=WIRE_SECONDS, redis_socket_connect_timeout=WIRE_SECONDS)
        self._connection: Any = None
        self._used_at = 0

    def open(self) -> None:
        """Reach the broker; nothing has been sent when this raises."""
        now = monotonic_us()
        if self._connection is not None and now - self._used_at <= seconds_to_us(STALE_SECONDS):
            return
        self.close()
        self._connection = self._sender.connection_for_write()
        try:
            self._connection.connect()
            _bound_answers(self._connection, WIRE_SECONDS)
            _ = self._connection.default_channel
        except BaseException:
            self._drop()
            raise
        self._used_at = monotonic_us()

    def send(self, task_id: str, target: CeleryTarget, kwargs: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """Send one message, once. Raises Refused when nothing was sent; after any other error it may be there."""
        options = dict(target.options)
        if target.queue is not None:
            options["queue"] = target.queue
        try:
            producer = self._sender.amqp.Producer(self._connection, auto_declare=False)
            self._sender.send_task(
                target.task,
                kwargs=dict(kwargs),
                task_id=task_id,
                headers=dict(headers),
                producer=producer,
                confirm_timeout=WIRE_SECONDS,
                **options,
            )
        except Exception as error:
            self._drop()
            if _is_refusal(error):
                raise Refused(f"{type(error).__name__}: {error}") from error
            raise
        self._used_at = monotonic_us()

    def revoke(self, task_ids: Sequence[str], signal: str = "SIGTERM") -> None:
        """Tell all workers to begin these tasks no more, and to end those that run."""
        self.open()
        try:
            self._sender.control.revoke(list(task_ids), terminate=True, signal=signal, connection=self._connection)
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        """Let go of a connection that is broken or does not answer: its end is not waited for."""
        if self._connection is not None and self._connection.connected:
            _bound_answers(self._connection, DROP_SECONDS)
        self.close()

    def close(self) -> None:
        """Let the broker go."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.release()

    def latest(self, identity: str) -> str | None:
        """The task id of a run's latest hand-over."""
        found = self._redis.get(run_key(identity))
        return None if found is None else found.decode()

    def claim(self, claims: Iterable[tuple[str, str]], mark: str, keep_seconds: int) -> list[bool]:
        """Note hand-overs, each by the run's identity and task id; False for what somebody else handed over."""
        claims, pipe = list(claims), self._redis.pipeline(transaction=False)
        for _, task_id in claims:
            pipe.set(handover_key(task_id), mark, nx=True, ex=keep_seconds)
            pipe.get(handover_key(task_id))
        ours = [value == mark.encode() for value in pipe.execute()[1::2]]
        pipe = self._redis.pipeline(transaction=False)
        for (identity, task_id), is_ours in zip(claims, ours, strict=True):
            if is_ours:
                pipe.set(run_key(identity), task_id, ex=keep_seconds)
        pipe.execute()
        return ours

    def give_up(self, task_id: str, keep_seconds: int) -> bool:
        """Close a hand-over: a task with the base `Once` does not begin any more. Whether one has begun before."""
        self._redis.set(handover_key(task_id), CLOSED, ex=keep_seconds)
        return bool(self._redis.exists(begun_key(task_id)))

    def closed(self, task_id: str) -> bool:
        """Whether a hand-over has been given up."""
        return self._redis.get(handover_key(task_id)) == CLOSED

    def look(self, task_ids: Sequence[str]) -> list[Sign]:
        """What the result backend has of each task, in three round trips at most."""
        backend, client = self._reader.backend, self._redis
        keys = [backend.get_key_for_task(task_id) for task_id in task_ids]
        pipe = client.pipeline(transaction=False)
        pipe.mget([handover_key(task_id) for task_id in task_ids])
        for key in keys:
            pipe.strlen(key)
        marks, *sizes = pipe.execute()
        pipe = client.pipeline(transaction=False)
        for key, size in zip(keys, sizes, strict=True):
            if size > RECORD_BYTES_MAX:
                pipe.getrange(key, 0, HEAD_BYTES)
            elif size:
                pipe.get(key)
        records = iter(pipe.execute() if any(sizes) else ())
        return [
            self._sign(next(records), size, known=mark is not None) if size else Sign(mark is not None)
            for mark, size in zip(marks, sizes, strict=True)
        ]

    def _sign(self, record: bytes | None, size: int, *, known: bool) -> Sign:
        if record is None:  # it ran out between two questions
            return Sign(known)
        if size > RECORD_BYTES_MAX:
            return _sign_of_head(record, size, known=known)
        try:
            meta = self._reader.backend.decode(record)
        except Exception as error:  # noqa: BLE001 - whatever stands there, it is this run's alone
            return Sign(known, None, size, f"{type(error).__name__}: {error}")
        if not isinstance(meta, dict):
            return Sign(known, None, size, "it is no record of Celery's")
        return Sign(known, meta, size)

    @property
    def _redis(self) -> Any:
        return self._reader.backend.client


def _is_refusal(error: BaseException) -> bool:
    """Whether it is certain that the message was not taken; kombu wraps what its transports raise, both kinds alike."""
    while True:
        if isinstance(error, _REFUSALS):
            return True
        if error.__cause__ is None:
            return False
        error = error.__cause__


def _sign_of_head(record: bytes, size: int, *, known: bool) -> Sign:
    """A record that is too large to be fetched: of a success the word is enough."""
    found = re.search(rb'"status": ?"([A-Z]+)"', record)
    if found is None:
        return Sign(known, None, size, f"it has {size} bytes; at most {RECORD_BYTES_MAX}")
    status = found[1].decode()
    value: Any = "x" * RESULT_CHARS_MAX
    if status != "SUCCESS":
        value = {"exc_type": "an exception", "exc_message": [f"its text has {size} bytes and was not fetched"]}
    return Sign(known, {"status": status, "result": value}, size)


def _bound_answers(connection: Any, seconds: float) -> None:
    """py-amqp waits for ever on a server that is frozen: its own read_timeout starts anew each time it runs out."""
    wire = getattr(getattr(connection.connection, "transport", None), "sock", None)
    if wire is not None:
        wire.settimeout(seconds)


def _transport_options(broker_url: str) -> dict[str, Any]:
    """Bounds for one answer; RabbitMQ has to confirm each message, or a lost one would look sent."""
    if broker_url.startswith(("amqp", "pyamqp")):
        return {"confirm_publish": True}
    return {"socket_timeout": WIRE_SECONDS, "socket_connect_timeout": WIRE_SECONDS}
