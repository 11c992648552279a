"""What a PostgreSQL server, or this host, says when it refuses a connection for good, and what would be right.

Such errors carry no SQLSTATE, only words. Words in another language are not known here: they count as a server that is
away, which is waited for.
"""

from __future__ import annotations

import re

from timeball.errors import Unusable

_REFUSALS: tuple[tuple[str, str], ...] = (
    (r'database ".*" does not exist', "create it (createdb NAME), or name another one in the URL"),
    (r"permission denied for database", "GRANT CONNECT ON DATABASE, or another role in the URL"),
    (
        r'role ".*" does not exist|not permitted to log in',
        "the name of a role that may log in, before the @ of the URL",
    ),
    (
        r"authentication failed|no password supplied|password authentication",
        "user and password in the URL (a password with :/@%# must be percent-encoded), or PGPASSWORD, or ~/.pgpass",
    ),
    (r"no pg_hba.conf entry|pg_hba.conf rejects", "the server's pg_hba.conf must let this host, role and database in"),
    (r"invalid sslmode", "sslmode is disable, allow, prefer, require, verify-ca or verify-full"),
    (r"does not support SSL", "sslmode=prefer or disable, or a server with SSL on"),
    (r"certificate|private key file", "sslmode, sslrootcert, sslcert and sslkey in the URL"),
    (r"invalid connection option|invalid port|invalid integer value|invalid .* value", "look at what is behind the ?"),
    (r"Name or service not known|nodename nor servname|No address associated", "the host's name in the URL"),
)


def refusal_of(text: str) -> Unusable | None:
    """The error for a refusal that waiting does not mend; None for all others."""
    for pattern, hint in _REFUSALS:
        if re.search(pattern, text):
            return Unusable(text, hint=hint)
    return None
