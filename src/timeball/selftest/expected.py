"""The ticks that should be, by arithmetic of its own: the checker does not ask the schedules under test. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from timeball.selftest.history import ACTIVE, Version

SECOND_US = 1_000_000
_STEP = re.compile(r"\*(?:/(\d+))?( \*){5}")
_EVERY = re.compile(r"@every (\d+)s")


def ticks_of(version: Version, after: int, until: int, reboots: Sequence[int] = ()) -> Iterator[int]:
    """Ticks of a definition, later than `after`, up to `until`. Raises ValueError for schedules it cannot reckon.

    `reboots`: the starts of the cluster.
    """
    if version.schedule == "none":
        return
    if version.schedule == "@reboot":
        yield from (at for at in reboots if after < at <= until)
        return
    step, every = _STEP.fullmatch(version.schedule), _EVERY.fullmatch(version.schedule)
    if step is not None and 60 % int(step[1] or 1) == 0:
        period, phase = int(step[1] or 1) * SECOND_US, 0
    elif every is not None:
        period, phase = int(every[1]) * SECOND_US, version.anchor_at
        after = max(after, phase)
    else:
        raise ValueError(f"the self-test has no arithmetic for {version.schedule!r}")
    yield from range(phase + ((after - phase) // period + 1) * period, until + 1, period)


def expected_ticks(
    versions: Sequence[Version], until: int, reboots: Sequence[int] = ()
) -> Iterator[tuple[int, Version]]:
    """Every tick that one job must answer for, given all of its versions in order, up to an instant."""
    for version, following in itertools.zip_longest(versions, versions[1:]):
        end = until if following is None else following.from_at
        if version.state == ACTIVE and version.from_at < end:
            for tick in ticks_of(version, version.from_at, end, reboots):
                yield tick, version
