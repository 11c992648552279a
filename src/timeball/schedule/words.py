"""Schedules in words. Owns which languages there are; each language has its own module.

A new language is one class with the methods of `Language` and one line in `_LANGUAGES`.
"""

from __future__ import annotations

from typing import Protocol

from timeball.schedule.chinese import Chinese
from timeball.schedule.english import English
from timeball.schedule.expression import Expression


class Language(Protocol):
    """What a language can say."""

    def cron(self, expression: Expression) -> str:
        """Say when a cron expression is due."""
        ...

    def interval(self, microseconds: int) -> str:
        """Say a fixed interval."""
        ...

    def after(self, microseconds: int) -> str:
        """Say an interval from the end of the last run."""
        ...

    def once(self, shown: str, timezone: str) -> str:
        """Say a single instant; `shown`: as the wall clock of the zone shows it."""
        ...

    def reboot(self) -> str:
        """Say that there is a tick when the cluster starts."""
        ...

    def manual(self) -> str:
        """Say that there are no ticks."""
        ...

    def union(self, parts: list[str]) -> str:
        """Join the words of several schedules."""
        ...

    def in_zone(self, text: str, timezone: str) -> str:
        """Add the zone in which the words hold."""
        ...

    def bounded(self, text: str, since: str | None, until: str | None) -> str:
        """Add the first and the last instant, as the wall clock shows them."""
        ...

    def closed(self, text: str, name: str, roll: str) -> str:
        """Add that a calendar takes ticks out; `name`: of the calendar, or empty; `roll`: skip, previous or next."""
        ...


_LANGUAGES: dict[str, Language] = {"en": English(), "zh": Chinese()}


def languages() -> tuple[str, ...]:
    """Return the codes of the languages that `describe` knows."""
    return tuple(_LANGUAGES)


def in_language(code: str) -> Language:
    """Return the language of a code such as `zh` or `zh-CN`; English when it is not known."""
    return _LANGUAGES.get(code.replace("_", "-").partition("-")[0].casefold(), _LANGUAGES["en"])
