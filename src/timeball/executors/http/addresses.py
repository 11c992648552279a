"""Which addresses a request may go to. Owns the rule; knows nothing of names, sockets or requests.

Refused unless the operator allows them: whatever is not an address of the public internet, so that a job cannot be
made to talk to the host itself, its neighbours, or the metadata service of a cloud.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

from timeball.errors import SettingsError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

SETTING = "http_allow_networks"
_METADATA = frozenset(
    map(ipaddress.ip_address, ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"))
)
"""Where clouds answer with the credentials of the host; one of them is a public address."""
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_SPECIAL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "3fff::/20")))
"""Protocols, tunnels and documentation, which not every version of Python takes for private."""
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


class AddressRules:
    """What the operator allows beside the public internet: networks, single addresses, hosts by name."""

    def __init__(self, allow: Iterable[str] = ()) -> None:
        """Raises SettingsError for an entry that is neither a network nor the name of a host."""
        self._networks: list[Network] = []
        self._hosts: set[str] = set()
        for entry in allow:
            network = _network(entry)
            if network is None:
                self._hosts.add(_plain(entry))
            else:
                self._networks.append(network)

    def allows_host(self, host: str) -> bool:
        """Whether a host is allowed by its name, wherever that leads."""
        return _plain(host) in self._hosts

    def refusal(self, address: str) -> str | None:
        """Why a request may not go to an address, in words; None when it may."""
        found = ipaddress.ip_address(address.partition("%")[0])
        inner = _embedded(found)
        if any(part in network for part in {found, inner} for network in self._networks):
            return None
        return _refusal(inner)

    def refusal_of_literal(self, host: str) -> str | None:
        """The same for the host of a URL, where no name has to be looked up for it."""
        if self.allows_host(host):
            return None
        if _plain(host) == "localhost" or _plain(host).endswith(".localhost"):
            loopback = (self.refusal("127.0.0.1"), self.refusal("::1"))
            return loopback[0] if all(loopback) else None
        try:
            return self.refusal(host)
        except ValueError:
            return None


def refused_words(host: str, refusals: Sequence[tuple[str, str]]) -> str:
    """Why a host is refused, with each of its addresses."""
    found = ", ".join(f"{address} ({why})" if address != host else why for address, why in refusals)
    return f"requests to {host} are refused: {found}; the setting {SETTING} lists what is allowed"


def _refusal(address: Address) -> str | None:
    if address in _METADATA:
        return "the metadata service of a cloud"
    kinds = (
        (address.is_unspecified, "the unspecified address"),
        (address.is_loopback, "a loopback address"),
        (address.is_link_local, "a link-local address"),
        (address.is_multicast, "a multicast address"),
        (address.is_reserved, "a reserved address"),
        (address.is_private, "a private address"),
        (not address.is_global, "not an address of the public internet"),
        (isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_V6, "not a global address"),
        (any(address in network for network in _SPECIAL), "an address for a special purpose"),
    )
    return next((words for holds, words in kinds if holds), None)


def _embedded(address: Address) -> Address:
    """The IPv4 address that a packet to an IPv6 address ends up at, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    in_last_bits = address in _NAT64 or address in _TRANSLATED or (address in _COMPATIBLE and int(address) > 1)
    return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF) if in_last_bits else address


def _network(entry: str) -> Network | None:
    try:
        return ipaddress.ip_network(entry)
    except ValueError as error:
        if "/" in entry or ":" in entry or not _HOST.fullmatch(_plain(entry)) or _plain(entry)[-1].isdigit():
            raise SettingsError(
                f"{SETTING}: {entry!r} is neither a network nor the name of a host: {error}",
                hint="10.0.0.0/8, 127.0.0.1, fd00::/8 or api.internal",
                field=SETTING,
            ) from error
        return None


def _plain(host: str) -> str:
    return host.strip().rstrip(".").lower()
