"""The dialects of cron. Owns which fields a text has and which forms each dialect knows; reads no text.

Spans and dialects are what they are, not what they hold: they compare and hash by identity.
"""

from __future__ import annotations

from dataclasses import dataclass

from timeball.schedule.refusals import refusal

MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
DST_RULES = ("vixie", "literal")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Span:
    """One kind of field: its legal numbers, and names that stand for the numbers from `names_from` on."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    names_from: int = 0
    hash_high: int | None = None  # where `H` stops, when not at `high`

    @property
    def step_max(self) -> int:
        """Return the largest step that is accepted: the largest number of the field."""
        return self.high if self.name != "year" else self.high - self.low


SECOND = Span(name="second", low=0, high=59)
MINUTE = Span(name="minute", low=0, high=59)
HOUR = Span(name="hour", low=0, high=23)
DAY = Span(name="day of month", low=1, high=31, hash_high=28)
MONTH = Span(name="month", low=1, high=12, names=MONTH_NAMES, names_from=1)
YEAR = Span(name="year", low=1970, high=2099)
_WEEKDAY_UNIX = Span(name="weekday", low=0, high=7, names=WEEKDAY_NAMES, hash_high=6)
_WEEKDAY_QUARTZ = Span(name="weekday", low=1, high=7, names=WEEKDAY_NAMES, names_from=1)
_WEEKDAY_GO = Span(name="weekday", low=0, high=6, names=WEEKDAY_NAMES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dialect:
    """How one family of programs reads a text.

    `layouts`: the fields by how many there are. `weekday_base`: the number of Sunday. `wraps`: a range may run over
    the end of its field. `specials`: L, W and # are known. `hashes`: H is known. `question_anywhere`: `?` is `*` in
    each field. `one_of_two`: days and weekdays exclude each other. `stepped_star_restricts`: a star with a step is a
    restriction when days and weekdays combine. `any_step`: steps have no upper bound. `whole_seconds`: `@every` is cut
    to whole seconds, at least one. `dst`: the rule when none is named.
    """

    name: str
    layouts: dict[int, tuple[Span, ...]]
    weekday_base: int = 0
    wraps: bool = False
    specials: bool = True
    hashes: bool = True
    question_anywhere: bool = False
    one_of_two: bool = False
    stepped_star_restricts: bool = False
    any_step: bool = False
    whole_seconds: bool = False
    dst: str = "vixie"


STANDARD = Dialect(
    name="standard",
    layouts={
        5: (MINUTE, HOUR, DAY, MONTH, _WEEKDAY_UNIX),
        6: (SECOND, MINUTE, HOUR, DAY, MONTH, _WEEKDAY_UNIX),
    },
)
QUARTZ = Dialect(
    name="quartz",
    layouts={
        6: (SECOND, MINUTE, HOUR, DAY, MONTH, _WEEKDAY_QUARTZ),
        7: (SECOND, MINUTE, HOUR, DAY, MONTH, _WEEKDAY_QUARTZ, YEAR),
    },
    weekday_base=1,
    wraps=True,
    one_of_two=True,
)
GO_ADMIN = Dialect(
    name="go-admin",
    layouts={
        5: (SECOND, MINUTE, HOUR, DAY, MONTH),
        6: (SECOND, MINUTE, HOUR, DAY, MONTH, _WEEKDAY_GO),
    },
    specials=False,
    hashes=False,
    question_anywhere=True,
    stepped_star_restricts=True,
    any_step=True,
    whole_seconds=True,
    dst="literal",
)
DIALECTS = {dialect.name: dialect for dialect in (STANDARD, QUARTZ, GO_ADMIN)}


def dialect_named(name: str) -> Dialect:
    """Return the dialect. Raises ScheduleError (`unknown-dialect`)."""
    dialect = DIALECTS.get(name)
    if dialect is None:
        raise refusal("unknown-dialect", f"there is no dialect {name[:40]!r}", hint=f"use {_choices(DIALECTS)}")
    return dialect


def check_dst(name: str) -> str:
    """Return the rule for daylight saving when there is one of that name. Raises ScheduleError (`unknown-dst`)."""
    if name not in DST_RULES:
        raise refusal(
            "unknown-dst", f"there is no daylight-saving rule {name[:40]!r}", hint=f"use {_choices(DST_RULES)}"
        )
    return name


def _choices(names: dict[str, Dialect] | tuple[str, ...]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"
