"""Looking names up beside the event loop. Owns the threads for it, which end with each lookup."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading

LOOKUPS_MAX = 16


class Names:
    """One lookup at a time for each name, whoever waits for it; at most LOOKUPS_MAX at once. For one event loop.

    The threads are daemons of their own: a name server that does not answer holds up neither the end of the process
    nor more than the one thread of its name.
    """

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(LOOKUPS_MAX)
        self._asked: dict[str, asyncio.Task[list[str] | Exception]] = {}

    async def addresses(self, host: str) -> list[str]:
        """The addresses of a host in the order of preference. Raises OSError when it has none."""
        if _is_address(host):
            return [host]
        task = self._asked.get(host)
        if task is None:
            task = self._asked[host] = asyncio.create_task(self._ask(host))
            task.add_done_callback(lambda _: self._asked.pop(host, None))
        found = await asyncio.shield(task)
        if isinstance(found, Exception):
            raise OSError(f"{host} cannot be looked up: {found}") from found
        return found

    async def _ask(self, host: str) -> list[str] | Exception:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str] | Exception] = loop.create_future()

        def tell(found: list[str] | Exception) -> None:
            if not answer.done():
                answer.set_result(found)

        def look() -> None:
            found = look_up(host)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(tell, found)

        async with self._room:
            threading.Thread(target=look, name="timeball-lookup", daemon=True).start()
            return await answer


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def look_up(host: str) -> list[str] | Exception:
    """What the host's resolver says about a name; its trouble as a value."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
