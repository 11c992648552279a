"""From text to schedule. Owns prefixes, `@` words and `|`; leaves fields, durations and instants to their modules.

Bounded: a text has at most `TEXT_LENGTH_MAX` characters and `PARTS_MAX` parts.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from dataclasses import dataclass, replace

from timeball.errors import ScheduleError
from timeball.schedule.after import After
from timeball.schedule.contract import Schedule
from timeball.schedule.cron import ElapsedCron, FixedCron
from timeball.schedule.dialects import STANDARD, Dialect, check_dst, dialect_named
from timeball.schedule.every import Every, read_interval
from timeball.schedule.expression import read_expression
from timeball.schedule.once import MANUAL_WORDS, At, Manual, read_instant
from timeball.schedule.reboot import Reboot
from timeball.schedule.refusals import refusal
from timeball.schedule.segments import Zone, zone_named
from timeball.schedule.union import Union
from timeball.schedule.zones import resolve_zone

TEXT_LENGTH_MAX = 1000
PARTS_MAX = 16
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_OTHER_WORDS = ("@every", "@at", "@after", "@reboot")
_PREFIX = re.compile(r"(?:CRON_)?TZ=(?P<zone>\S*)\s*")
_WORD = re.compile(r"(?P<word>@\S*)\s*(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """What a text is read with."""

    dialect: Dialect
    dst: str
    zone: Zone
    name: str
    anchor: int
    start: int | None


def parse(
    text: str,
    *,
    timezone: str = "UTC",
    dialect: str = "standard",
    dst: str | None = None,
    name: str = "",
    anchor: int = 0,
    start: int | None = None,
) -> Schedule:
    """Return the schedule that a text means. Raises ScheduleError for whatever is wrong, and nothing else.

    `timezone`: the zone of wall times, unless the text names one. `dst`: `vixie` or `literal`; None means the rule of
    the dialect. `name`: the job's name, for H. `anchor`: the instant (microseconds) from which `@every` counts;
    `start`: its first tick instead.
    """
    try:
        return _read(text, timezone=timezone, dialect=dialect, dst=dst, name=name, anchor=anchor, start=start)
    except ScheduleError as error:
        error.text = text
        raise


def _read(
    text: str, *, timezone: str, dialect: str, dst: str | None, name: str, anchor: int, start: int | None
) -> Schedule:
    known = dialect_named(dialect)
    rule = check_dst(known.dst if dst is None else dst)
    _check_text(text)
    resolve_zone(timezone)
    rules = _Rules(dialect=known, dst=rule, zone=zone_named(timezone), name=name, anchor=anchor, start=start)
    if text.strip().casefold() in MANUAL_WORDS:
        return Manual(text=text, timezone=timezone)
    pieces = text.split("|")
    if len(pieces) > PARTS_MAX:
        raise refusal("too-long", f"more than {PARTS_MAX} schedules are joined by |", hint="use several jobs")
    parts: list[Schedule] = []
    position = 0
    for piece in pieces:
        _check_piece(piece, position, alone=len(pieces) == 1)
        schedule, rules = _read_piece(piece, position, rules)
        if len(pieces) > 1 and (schedule.follows_runs is not None or isinstance(schedule, Reboot)):
            word = "@reboot" if schedule.follows_runs is None else "@after"
            raise refusal("bad-union", f"{word} cannot be joined by |", position=position, hint="use several jobs")
        parts.append(schedule)
        position += len(piece) + 1
    if len(parts) == 1:
        return parts[0]
    return Union(text=text, parts=tuple(parts))


def _check_text(text: str) -> None:
    if len(text) > TEXT_LENGTH_MAX:
        raise refusal("too-long", f"the schedule has {len(text)} characters", hint=f"at most {TEXT_LENGTH_MAX}")
    for position, character in enumerate(text):
        if not character.isascii():
            plain = unicodedata.normalize("NFKC", character)
            hint = f"write {plain}" if plain.isascii() and plain.isprintable() and plain.strip() else "use ASCII only"
            raise refusal("non-ascii", f"{character!a} is not an ASCII character", position=position, hint=hint)


def _check_piece(piece: str, position: int, *, alone: bool) -> None:
    if not alone and piece.strip().casefold() in MANUAL_WORDS:
        raise refusal(
            "bad-union",
            "a part around | is empty" if not piece.strip() else f"{piece.strip()} cannot be joined by |",
            position=position,
            hint="write a schedule on both sides of |",
        )


def _read_piece(piece: str, position: int, rules: _Rules) -> tuple[Schedule, _Rules]:
    """Read one part and the zone that holds from it on."""
    body = piece.strip()
    position += len(piece) - len(piece.lstrip())
    text = body
    match = _PREFIX.match(body)
    if match:
        body = body[match.end() :]
        if body:
            resolve_zone(match["zone"], position=position + match.start("zone"))
            rules = replace(rules, zone=zone_named(match["zone"]))
        position += match.end()
    if body.startswith("@"):
        return _read_word(text, body, position, rules), rules
    return _read_cron(text, body, position, rules), rules


def _read_cron(text: str, body: str, position: int, rules: _Rules) -> Schedule:
    expression = read_expression(body, position, dialect=rules.dialect, name=rules.name)
    fixed = rules.dst == "vixie" and not expression.follows_elapsed_time
    kind = FixedCron if fixed else ElapsedCron
    return kind(text=text, zone=rules.zone, expression=expression, wall=expression.wall())


def _read_word(text: str, body: str, position: int, rules: _Rules) -> Schedule:
    match = _WORD.fullmatch(body)
    assert match is not None
    word, rest, at = match["word"].casefold(), match["rest"], position + match.start("rest")
    if word in MACROS and not rest:
        return _read_cron(text, MACROS[word], position, replace(rules, dialect=STANDARD))
    if word == "@reboot" and not rest:
        return Reboot(text=text, timezone=rules.zone.name)
    if word == "@every":
        interval = read_interval(rest, at, whole_seconds=rules.dialect.whole_seconds)
        anchor = rules.anchor if rules.start is None else rules.start - interval
        return Every(text=text, timezone=rules.zone.name, interval=interval, anchor=anchor)
    if word == "@at":
        instant = read_instant(rest, at, zone=rules.zone, dst=rules.dst)
        return At(text=text, zone=rules.zone, instant=instant)
    if word == "@after":
        delay = read_interval(rest, at, whole_seconds=rules.dialect.whole_seconds, macro=word)
        anchor = rules.anchor if rules.start is None else rules.start - delay
        return After(text=text, timezone=rules.zone.name, delay=delay, anchor=anchor)
    raise _refused_word(word, rest, position, at)


def _refused_word(word: str, rest: str, position: int, at: int) -> ScheduleError:
    if word in MACROS or word == "@reboot":
        return refusal(
            "syntax", f"{word} takes nothing after it, but here is {rest[:20]!r}", position=at, hint=f"write {word}"
        )
    names = (*MACROS, *_OTHER_WORDS)
    close = difflib.get_close_matches(word[:20], names, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
    return refusal("unknown-macro", f"there is no {word[:20]}", position=position, hint=hint)
