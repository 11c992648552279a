"""Connecting: names are looked up here, and only an address that has been checked is connected to.

There is no second lookup between the check and the connection, so a name whose address changes gets nowhere else.
Needs the extra `http`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import cast

import httpcore2

from timeball.clock import monotonic_us, seconds_to_us
from timeball.executors.http.addresses import AddressRules, refused_words
from timeball.executors.http.gate import Gate
from timeball.executors.http.names import Names


class AddressRefused(Exception):
    """A request was about to go where the operator does not allow it to go."""


class CheckedBackend(httpcore2.AsyncNetworkBackend):
    """The network of httpcore2, with a check between lookup and connection. For one event loop."""

    def __init__(self, rules: AddressRules, names: Names, *, proxy_host: str | None = None) -> None:
        """`proxy_host`: where the operator has all requests go; no other host is connected to then."""
        self._rules = rules
        self._names = names
        self._proxy_host = proxy_host
        self._gate = Gate()
        self._network = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the contract of httpcore2
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address of a host that may be connected to and answers, within the time-out.

        Raises AddressRefused when there is none that may be, and what httpcore2 raises.
        """
        del local_address, socket_options  # nobody sets them
        async with self._gate.passing():
            return await self._connect(host, port, timeout)

    async def _connect(self, host: str, port: int, timeout: float | None) -> httpcore2.AsyncNetworkStream:  # noqa: ASYNC109
        begun = monotonic_us()
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._permitted(host)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"{host} was not looked up within {timeout:g} s") from None
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        trouble: Exception = httpcore2.ConnectError(f"{host} has no address")
        for number, address in enumerate(addresses):
            left = None if timeout is None else timeout - (monotonic_us() - begun) / seconds_to_us(1)
            share = None if left is None else max(0.0, left) / (len(addresses) - number)
            try:
                return await self._network.connect_tcp(address, port, share)
            except httpcore2.ConnectTimeout:
                trouble = httpcore2.ConnectTimeout(f"{address} port {port} did not answer within {timeout:g} s")
            except httpcore2.ConnectError as error:
                trouble = httpcore2.ConnectError(f"{address} port {port}: {_cause(error)}")
        raise trouble

    async def sleep(self, seconds: float) -> None:
        """Part of the contract of httpcore2."""
        await asyncio.sleep(seconds)

    async def _permitted(self, host: str) -> list[str]:
        addresses = await self._names.addresses(host)
        if host == self._proxy_host or self._rules.allows_host(host):
            return addresses
        judged = [(address, self._rules.refusal(address)) for address in addresses]
        permitted = [address for address, why in judged if why is None]
        if not permitted:
            raise AddressRefused(refused_words(host, [(address, why) for address, why in judged if why is not None]))
        return permitted


def _cause(error: BaseException) -> str:
    """What the system said: the library's own words are the same for every cause."""
    words, seen = str(error) or type(error).__name__, error.__cause__ or error.__context__
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno is not None:
            words = os.strerror(seen.errno)
        seen = seen.__cause__ or seen.__context__
    return words
