"""`@reboot`: due when the cluster starts. Owns no tick: when that is, only the ledger knows."""

from __future__ import annotations

from timeball.schedule.once import Manual
from timeball.schedule.words import in_language


class Reboot(Manual):
    """No tick that could be computed; each start of the cluster is one."""

    __slots__ = ()

    def fires_at_reboot(self, instant: int) -> bool:
        del instant
        return True

    def most_a_day(self) -> int:
        return 1

    def describe(self, language: str = "en") -> str:
        return in_language(language).reboot()
