"""What a person probably meant. Owns the suggestions for fields that cannot be read; reads nothing itself."""

from __future__ import annotations

import difflib
import re

from timeball.errors import ScheduleError
from timeball.schedule.dialects import Dialect, Span
from timeball.schedule.refusals import refusal

_KNOWN = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ*?-/,#()")
_SHOWN_MAX = 20
_FORMS = "a field is *, a number, a range 1-5, a step */10 or 1-30/5, or a list of these with commas"


def explain_syntax(text: str, at: int, *, span: Span, dialect: Dialect) -> ScheduleError:
    """Return the error for a part of a field that the grammar does not know."""
    word = text.upper()
    for offset, character in enumerate(word):
        if character not in _KNOWN:
            return refusal(
                "syntax",
                f"{character!r} has no meaning in the {span.name} field",
                position=at + offset,
                hint="leave the quotes out" if character in "\"'" else _FORMS,
            )
    if not word:
        return refusal(
            "syntax", f"an empty part in the {span.name} field", position=at, hint="a comma stands between two values"
        )
    shown = text[:_SHOWN_MAX]
    if word == "?":
        return refusal("syntax", f"? has no meaning in the {span.name} field", position=at, hint="write *")
    known = _known_elsewhere(word, span=span, dialect=dialect)
    if known:
        return refusal("unsupported", f"{shown} is not known in the {span.name} field", position=at, hint=known)
    return refusal(
        "syntax", f"{shown!r} cannot be read in the {span.name} field", position=at, hint=_syntax_hint(shown, span)
    )


def _syntax_hint(text: str, span: Span) -> str:
    word = text.upper()
    if re.fullmatch(r"[A-Z]{3,}/[A-Z_/+-]+", word):
        return f"a time zone is an option of its own, or stands first: TZ={text} …"
    if re.search(r"[A-Z]", word) and "/" in word and "*" not in word:
        return "only the schedule belongs here; the command is given apart"
    return _unfinished(word, span) or _FORMS


def _unfinished(word: str, span: Span) -> str | None:
    """Say what is missing from a part that begins or ends in the middle of one of the forms."""
    if word.startswith("/"):
        return f"write *{word}"
    if word.startswith("-"):
        return f"numbers here run from {span.low} to {span.high}; there are no negative ones"
    if word.endswith("-"):
        return f"the end of the range is missing; it may be up to {span.high}"
    if word.endswith("/"):
        return f"the step is missing; write for example {word}5"
    return f"did you mean */{word[1:]}?" if word.startswith("*") and word[1:2].isdigit() else None


def _known_elsewhere(word: str, *, span: Span, dialect: Dialect) -> str | None:
    if word == "L" and span.name == "weekday" and dialect.specials:
        return "write FRIL for the last Friday of the month; L alone is Saturday in quartz only"
    if not any(letter in word for letter in "LWH#"):
        return None
    if "#" in word or word.endswith(("L", "W")) or word.startswith(("L", "H")):
        if not dialect.specials:
            return f"the {dialect.name} dialect has no L, W, # and H; the standard dialect has them"
        return _special_hint(word)
    return None


def _special_hint(word: str) -> str:
    if word.startswith("L") and word[1:].isdigit():
        return f"write {word[1:_SHOWN_MAX]}L for the last such weekday of the month"
    if word.startswith("H"):
        return "write H, H(0-29) or H/15"
    if "#" in word:
        return "# belongs in the weekday field, as in MON#2"
    return "L, L-3, LW and 15W belong in the day-of-month field, 5L and FRIL in the weekday field"


def explain_unknown_name(word: str, at: int, *, span: Span, dialect: Dialect) -> ScheduleError:
    """Return the error for letters where a number or a name of the field should be."""
    shown = word[:_SHOWN_MAX]
    if not span.names:
        known = _known_elsewhere(word, span=span, dialect=dialect)
        if known:
            return refusal("unsupported", f"{shown} is not known in the {span.name} field", position=at, hint=known)
        return refusal(
            "unknown-name",
            f"the {span.name} field has no names, but here is {shown}",
            position=at,
            hint=f"use {span.low} to {span.high}",
        )
    close = [word[:3]] if word[:3] in span.names else difflib.get_close_matches(word[:9], span.names, n=1)
    known = _known_elsewhere(word, span=span, dialect=dialect) if not close else None
    if known:
        return refusal("unsupported", f"{shown} is not known in the {span.name} field", position=at, hint=known)
    hint = f"did you mean {close[0]}?" if close else f"use {span.names[0]} to {span.names[-1]}"
    return refusal("unknown-name", f"there is no {span.name} {shown}", position=at, hint=hint)


def wrapped_list(first: str, last: str, low: int, high: int, *, span: Span) -> str:
    """Return how a range that runs over the end of its field is written, for example `22-23,0-2`."""
    if span.names and not (first.isdigit() and last.isdigit()):
        names = span.names
        start, end = low - span.names_from, high - span.names_from
        count = (end - start) % len(names) + 1
        return ",".join(names[(start + index) % len(names)] for index in range(count))
    top = span.hash_high if span.name == "weekday" and span.hash_high else span.high
    if low > top:
        return f"{span.low}-{high}"
    before = f"{low}-{top}" if low < top else f"{low}"
    after = f"{span.low}-{high}" if high > span.low else f"{high}"
    return f"{before},{after}"
