"""`Retry-After`: how long the far side wants to be left alone. Reads the host's clock only where no Date is given."""

from __future__ import annotations

import datetime as dt
import re
from email.utils import parsedate_to_datetime

from timeball.clock import seconds_to_us, wall_us

_SECONDS = re.compile(r"\d{1,9}")
_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def retry_after_us(header: str | None, date: str | None) -> int | None:
    """The wait in microseconds, or None when nothing was asked for that can be understood.

    An instant counts from the `Date` of the same response, so that no two clocks are compared.
    """
    if header is None:
        return None
    text = header.strip()
    if _SECONDS.fullmatch(text):
        return seconds_to_us(int(text))
    until = _instant(text)
    if until is None:
        return None
    now = _instant(date)
    return max(0, until - (wall_us() if now is None else now))


def _instant(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        found = parsedate_to_datetime(text)
        return ((found if found.tzinfo else found.replace(tzinfo=dt.UTC)) - _EPOCH) // _MICROSECOND
    except (TypeError, ValueError, OverflowError):
        return None
