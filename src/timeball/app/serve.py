"""`timeball serve`: one instance as a process of its own. Owns the signals, the HTTP server and the order of the end.

The web server never decides when the instance leaves: with an open stream it may wait for ever and then skip its
shutdown. On SIGTERM the engine first stops claiming and hands over, drains, and only then the server is told to end.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from timeball.app.scheduler import Scheduler
from timeball.clock import monotonic_us, seconds_to_us
from timeball.errors import SettingsError, TimeballError, Unavailable, Unusable
from timeball.observe.logs import configure_logging, counted
from timeball.settings import Settings

SWITCH_INTERVAL_SECONDS = 0.001
"""How long a busy Python thread may hold the interpreter: a job's endless loop must not make others late."""
YOUNG_OBJECTS_MAX = 50_000
"""Between collections of short-lived objects: the default of some hundred stops a herd of starts again and again."""
START_PAUSE_FIRST_SECONDS, START_PAUSE_MAX_SECONDS = 0.25, 5.0
SERVER_END_SECONDS = 2.0
SECOND_SIGNAL_STATUS = 130
SAME_SIGNAL_US = 500_000
_log = logging.getLogger("timeball.serve")


def serve(scheduler: Scheduler, *, http: bool) -> list[int]:
    """Run until SIGTERM or SIGINT; the runs that had not ended when the drain time was over.

    A second signal ends the process at once; what it leaves is found by the others. Raises TimeballError at start.
    """
    settings = scheduler.settings
    configure_logging(settings.log_level)
    tune_interpreter()
    ended = threading.Event()
    _own_signals(ended)
    with _http(scheduler, settings) if http else _no_http():
        _start(scheduler, settings, ended)
        _announce(scheduler, settings)
        while not ended.wait(1.0):
            pass
        _log.info("draining: no more claims; up to %g s for what still runs", settings.drain_seconds)
        left = scheduler.stop()
    if left:
        _log.warning("left %s not ended: %s", counted(len(left), "run"), ", ".join(map(str, left)))
    return left


def _start(scheduler: Scheduler, settings: Settings, ended: threading.Event) -> None:
    """Take part; a server that does not answer yet is waited for, a bounded time; one that refuses the URL is not."""
    until, pause = monotonic_us() + seconds_to_us(settings.start_wait_seconds), START_PAUSE_FIRST_SECONDS
    while not ended.is_set():
        try:
            return scheduler.start()
        except Unusable:
            raise
        except Unavailable as error:
            left_us = until - monotonic_us()
            if left_us <= 0 or settings.database_url.startswith("sqlite"):
                raise
            _log.warning("waiting %.0f s more for the database server to answer: %s", left_us / 1e6, error.message)
        ended.wait(pause)
        pause = min(2 * pause, START_PAUSE_MAX_SECONDS)
    return None


def tune_interpreter() -> None:
    """Tune a process that is ours alone; an embedded scheduler leaves its host's settings as they are."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gc.freeze()  # what is loaded by now stays; no collection need look at it
    gc.set_threshold(YOUNG_OBJECTS_MAX, 20, 100)


def _own_signals(ended: threading.Event) -> None:
    first_at = 0

    def on_signal(number: int, _frame: object) -> None:
        nonlocal first_at
        if ended.is_set():
            if monotonic_us() - first_at < SAME_SIGNAL_US:
                return  # a group and its supervisor often send the same signal twice
            _log.warning("second signal: ending at once")
            os._exit(SECOND_SIGNAL_STATUS)
        _log.info("got %s", signal.Signals(number).name)
        first_at = monotonic_us()
        ended.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)


def _announce(scheduler: Scheduler, settings: Settings) -> None:
    health = scheduler.health
    if health is not None:
        functions = ", ".join(scheduler.functions.names()) or "none"
        commands = [*settings.command_allow, *["the shell"] * settings.command_shell_allow]
        _log.info("%s is up; functions: %s; commands: %s", health.name, functions, ", ".join(commands) or "off")


@contextmanager
def _no_http() -> Generator[None]:
    yield


@contextmanager
def _http(scheduler: Scheduler, settings: Settings) -> Generator[None]:
    """The web server in a thread of its own, on a socket that is bound before anything else starts."""
    uvicorn, make_app = _server_parts()
    listener = _bind(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    config = uvicorn.Config(
        make_app(lambda: scheduler.health), log_level="warning", lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="timeball-http", daemon=True)
    thread.start()
    _log.info("http://%s:%d/healthz", host, port)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(SERVER_END_SECONDS)
        listener.close()


def _server_parts() -> tuple[Any, Any]:
    try:
        import uvicorn  # noqa: PLC0415 - an extra, and slow to import

        from timeball.api.health import make_app  # noqa: PLC0415 - needs the extra
    except ImportError as error:
        raise SettingsError(
            "the HTTP server needs an extra", hint="pip install 'timeball[server]', or --no-http"
        ) from error
    return uvicorn, make_app


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise TimeballError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint="another --port, or --port 0 for any free one",
        ) from error
    return listener
