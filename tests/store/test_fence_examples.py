"""The examples of docs/fences.md, run against a real database, a store with conditional writes, and a real service."""

from __future__ import annotations

import http.server
import json
import re
import sqlite3
import threading
import urllib.error
import urllib.request
import wsgiref.simple_server
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

from tests.executors.bench_of_work import make_work
from tests.store.scene import Scene
from timeball.errors import Superseded
from timeball.executors.function.fence import Fence
from timeball.store import Store
from timeball.store.fences import fence_check

PAGE = Path(__file__).resolve().parents[2] / "docs/fences.md"


def example(name: str) -> Any:
    """What a Python block of the page defines under a name."""
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        if f"def {name}(" in block:
            found: dict[str, Any] = {}
            exec(compile(block, str(PAGE), "exec"), found)
            return found[name]
    raise AssertionError(f"no example defines {name}")


class ObjectStore(http.server.BaseHTTPRequestHandler):
    """One object a path, its number of writes as its entity tag; conditions as RFC 9110 has them."""

    def do_GET(self) -> None:
        found = self.server.objects.get(self.path)  # type: ignore[attr-defined]
        self._answer(404 if found is None else 200, *(found or (0, b"")))

    def do_PUT(self) -> None:
        objects = self.server.objects  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        rivals = self.server.rivals  # type: ignore[attr-defined]
        if rivals:  # somebody who writes between the look and the write
            objects[self.path] = (objects.get(self.path, (0,))[0] + 1, rivals.pop())
        tag = objects.get(self.path, (0,))[0]
        wanted = self.headers["If-Match"]
        if wanted != f'"{tag}"' if wanted else tag:
            self._answer(412, tag, b"")
            return
        objects[self.path] = (tag + 1, body)
        self._answer(200, tag + 1, b"")

    def _answer(self, status: int, tag: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", f'"{tag}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not said."""


@pytest.fixture
def objects() -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ObjectStore)
    server.objects, server.rivals = {}, []
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_the_example_of_a_database_write(store: Store, database_url: str) -> None:
    scene = Scene(store)
    me = scene.join("a")
    scene.plan(scene.lead(me), scene.job(), [scene.now()])
    started = scene.start(me, scene.claim(me)).started[0]
    work = make_work("function", {})._replace(run_id=started.run_id, fence=started.fence)
    driver = "sqlite" if database_url.startswith("sqlite") else "postgresql+psycopg"
    engine = create_engine(make_url(database_url).set(drivername=driver))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE invoice (id BIGINT, paid_by_run BIGINT)")
        connection.exec_driver_sql("INSERT INTO invoice VALUES (7, NULL)")
    run = SimpleNamespace(id=started.run_id, fence=Fence(work, fence_check(database_url)))
    example("pay")(run, engine, 7)
    scene.settle(started)
    with pytest.raises(Superseded):
        example("pay")(SimpleNamespace(id=99, fence=run.fence), engine, 7)
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT paid_by_run FROM invoice").scalar() == started.run_id
    engine.dispose()


def test_the_example_of_an_object_store(objects: Any) -> None:
    put, url = example("put_report"), f"http://127.0.0.1:{objects.server_port}/report"
    assert put(url, {"n": 1}, 5)
    assert put(url, {"n": 2}, 6)
    assert not put(url, {"n": "stale"}, 5)
    objects.rivals.append(json.dumps({"fence": 9, "report": {}}).encode())
    assert not put(url, {"n": "overtaken"}, 8)
    objects.rivals.append(json.dumps({"fence": 10, "report": {}}).encode())
    assert put(url, {"n": 3}, 11)
    assert json.loads(objects.objects["/report"][1]) == {"fence": 11, "report": {"n": 3}}


def test_the_example_of_an_http_service(tmp_path: Path) -> None:
    class Quiet(wsgiref.simple_server.WSGIRequestHandler):
        def log_message(self, *_: object) -> None:
            """Not said."""

    database = sqlite3.connect(tmp_path / "service.db", check_same_thread=False)
    application = example("service")(database)
    server = wsgiref.simple_server.make_server("127.0.0.1", 0, application, handler_class=Quiet)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def post(fence: int) -> int:
        headers = {"Timeball-Job": "report", "Timeball-Fence": str(fence)}
        request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}/", f"by {fence}".encode(), headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    assert [post(fence) for fence in (4, 7, 7, 6, 4, 8)] == [200, 200, 200, 409, 409, 200]
    assert database.execute("SELECT body FROM seen").fetchall() == [("by 8",)]
    server.shutdown()
    server.server_close()
    database.close()
