"""A gate before connections: few are made at once, so that of many requests the first ones leave soon. One event loop.

Without it a thousand requests of one instant would all connect side by side, each as late as the last one, and some
beyond a time-out that is meant for the far side.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

CONNECTING_MAX = 64
HOLD_SECONDS = 0.1


class Gate:
    """At most CONNECTING_MAX in it. Who does not connect for HOLD_SECONDS goes on outside of it and holds up nobody."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(CONNECTING_MAX)

    @contextlib.asynccontextmanager
    async def passing(self) -> AsyncGenerator[None]:
        """Wait for a place in the gate, and leave it with the block, or earlier."""
        await self._room.acquire()
        places = [self._room]

        def leave() -> None:
            if places:
                places.pop().release()

        timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, leave)
        try:
            yield
        finally:
            timer.cancel()
            leave()
