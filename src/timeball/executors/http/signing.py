"""Signatures, so that the far side knows who sent a request, and when. Pure; docs/executors.md shows how to verify."""

from __future__ import annotations

import hashlib
import hmac


def signature(key: str, *, at_seconds: int, method: str, path: str, content: bytes) -> str:
    """The value of `Timeball-Signature`: `t=SECONDS,v1=HEX`, HMAC-SHA256 over time, method, path with query, body.

    `at_seconds`: since the epoch. The four parts are joined by line ends, which none of the first three can hold.
    """
    message = b"\n".join((str(at_seconds).encode(), method.encode(), path.encode(), content))
    return f"t={at_seconds},v1={hmac.new(key.encode(), message, hashlib.sha256).hexdigest()}"
