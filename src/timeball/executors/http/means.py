"""What all exchanges of a process share: certificates, the checked network, the proxy. Needs the extra `http`.

Nothing of it comes from the process's environment: no proxy, no password file.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import httpcore2

from timeball.errors import SettingsError
from timeball.executors.http.addresses import AddressRules
from timeball.executors.http.exchange import Means
from timeball.executors.http.names import Names
from timeball.executors.http.network import CheckedBackend

if TYPE_CHECKING:
    from timeball.executors.http.executor import HttpLimits


def make_means(limits: HttpLimits, rules: AddressRules) -> Means:
    """Read the certificates and put the parts together; on the loop that will use them. Raises SettingsError."""
    verified = ssl.create_default_context()
    if limits.ca_file:
        try:
            verified.load_verify_locations(cafile=limits.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                f"http_ca_file {limits.ca_file!r} cannot be used: {error}", field="http_ca_file"
            ) from error
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    proxy_host = urlsplit(limits.proxy).hostname if limits.proxy else None
    return Means(
        rules=rules,
        backend=CheckedBackend(rules, Names(), proxy_host=proxy_host),
        verified=verified,
        unverified=unverified,
        proxy=_proxy(limits.proxy, verified) if limits.proxy else None,
        kept_bytes_max=limits.output_bytes_max,
        response_bytes_max=limits.response_bytes_max,
    )


def _proxy(url: str, verified: ssl.SSLContext) -> httpcore2.Proxy:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    auth = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
    port = parts.port or (443 if parts.scheme == "https" else 80)
    context = verified if parts.scheme == "https" else None
    return httpcore2.Proxy(url=f"{parts.scheme}://{host}:{port}", auth=auth, ssl_context=context)
