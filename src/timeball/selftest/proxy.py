"""A TCP proxy between each instance and the database server, which can misbehave in every direction.

One event loop in one thread carries all links. A direction that is shut holds what it has and reads no more, as a
network that lost its way; at the end of the fault it goes on, or the connection is reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from timeball.selftest.addresses import LOOPBACK, Upstream

T = TypeVar("T")
CHUNK_BYTES = 65_536
CALL_SECONDS = 10.0
NO_LINGER = struct.pack("ii", 1, 0)
"""Closing sends a reset."""
TO_DATABASE, FROM_DATABASE = "to-database", "from-database"


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two halves of one connection."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter

    def reset(self) -> None:
        for writer in (self.client, self.server):
            with contextlib.suppress(OSError):  # it is closed already
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            writer.transport.abort()


class Link:
    """One instance's way to the database. Everything here runs on the proxies' loop; use `Proxies` from outside."""

    def __init__(self, upstream: Upstream) -> None:
        self.port = 0
        self.delay_seconds = 0.0
        self._upstream = upstream
        self._open = {TO_DATABASE: asyncio.Event(), FROM_DATABASE: asyncio.Event()}
        self._pairs: set[_Pair] = set()
        self._server: asyncio.Server | None = None
        self._barred = False
        for event in self._open.values():
            event.set()

    async def listen(self) -> None:
        """Accept connections, always on the same port."""
        if self._server is None and not self._barred:
            self._server = await asyncio.start_server(self._serve, LOOPBACK, self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Accept no more, and break what there is."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        await self.cut()

    async def bar(self) -> None:
        """Let nobody through, whatever else is healed, until `unbar`."""
        self._barred = True
        await self.refuse()

    async def unbar(self, upstream: Upstream | None) -> None:
        """Let people through again, to another server if one is given: nothing reaches the old one any more."""
        self._upstream = upstream or self._upstream
        self._barred = False
        await self.listen()

    async def cut(self) -> None:
        """Break every connection."""
        for pair in list(self._pairs):
            pair.reset()

    async def shut(self, *directions: str) -> None:
        """Hold what goes these ways."""
        for direction in directions:
            self._open[direction].clear()

    async def heal(self, *, resets: bool) -> None:
        """As if nothing had been; with `resets` connections that were held are broken."""
        if resets and not all(event.is_set() for event in self._open.values()):
            await self.cut()
        self.delay_seconds = 0.0
        for event in self._open.values():
            event.set()
        await self.listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # asyncio would print it; the task ends here anyway
            await self._carry(reader, writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._open[TO_DATABASE].wait()
            upstream = self._upstream
            from_server, to_server = await _connect(upstream)
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(writer, to_server)
        if self._barred or upstream is not self._upstream:
            pair.reset()
            return
        self._pairs.add(pair)
        try:
            await asyncio.gather(
                self._pump(reader, to_server, TO_DATABASE),
                self._pump(from_server, writer, FROM_DATABASE),
                return_exceptions=True,
            )
        finally:
            self._pairs.discard(pair)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: str) -> None:
        try:
            while data := await source.read(CHUNK_BYTES):
                await self._pass(direction)
                sink.write(data)
                await sink.drain()
            await self._pass(direction)
        finally:
            sink.close()

    async def _pass(self, direction: str) -> None:
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        await self._open[direction].wait()


async def _connect(upstream: Upstream) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if upstream.socket:
        return await asyncio.open_unix_connection(upstream.socket)
    return await asyncio.open_connection(upstream.host, upstream.port)


class Proxies:
    """Links by name, on a loop of their own. Safe for threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="selftest-proxies", daemon=True)
        self.links: dict[str, Link] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()

    def add(self, name: str, upstream: Upstream) -> Link:
        """A link that listens."""

        async def made() -> Link:
            link = Link(upstream)
            await link.listen()
            return link

        self.links[name] = self.do(made())
        return self.links[name]

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop and wait for it, e.g. `do(link.cut())`."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    async def _close(self) -> None:
        for link in self.links.values():
            await link.refuse()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*others, return_exceptions=True)
