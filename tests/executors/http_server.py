"""A real HTTP server on loopback that can misbehave: one thread, one event loop, a function a path."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field

Answer = Callable[["Received", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Received:
    """A request as it came in. Names of headers are in lower case. `reader`: what comes after it, and its end."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader


@dataclass
class Server:
    """`received`: every request, in order; `answers`: what to do, by path without its query; `lost`: closed early."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    open_now: int = 0
    open_most: int = 0
    lost: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, *, status: int = 200, headers: dict[str, str] | None = None, body: bytes = b"") -> str:
        """A fixed answer; its URL."""
        head = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        data = f"HTTP/1.1 {status} X\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        return self.raw(path, data)

    def raw(self, path: str, data: bytes) -> str:
        """These very bytes, then the end of the connection."""

        async def send(_: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(data)
            await writer.drain()

        return self.does(path, send)

    def does(self, path: str, answer: Answer) -> str:
        """Whatever a function does; its URL."""
        self.answers[path] = answer
        return self.url + path

    def hangs(self, path: str, first: bytes = b"") -> str:
        """Sends some bytes and then nothing, until the other side goes away, which `lost` tells."""

        async def hang(request: Received, writer: asyncio.StreamWriter) -> None:
            writer.write(first)
            with contextlib.suppress(ConnectionError):
                await request.reader.read()
            self.lost.release()

        return self.does(path, hang)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_now += 1
        self.open_most = max(self.open_most, self.open_now)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                request = await _read(reader)
                self.received.append(request)
                await self.answers[request.path.partition("?")[0]](request, writer)
        finally:
            self.open_now -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    method, path, _ = first.split(" ")
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method, path, headers, body, reader)


@contextlib.contextmanager
def running_server(tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Generator[Server]:
    server, loop, ready, stop = Server(), asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def main() -> None:
        listener = await asyncio.start_server(server.serve, host, 0, ssl=tls, backlog=4096)
        server.port = listener.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        listener.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),), name="test-server")
    thread.start()
    assert ready.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
