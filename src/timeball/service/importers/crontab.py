"""Reading a crontab (system format with the user column, or a user's own) into jobs. Pure: text in, jobs and notes out.

What cannot be taken over one to one is a note with its line's number; nothing is dropped silently.
Sources: the manual page crontab(5) of Debian's cron for environment lines, `%`, names and macros.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from timeball.errors import ScheduleError
from timeball.model.job import Definition, Misfire, Overlap
from timeball.schedule import parse

FORMATS = ("auto", "system", "user")
_ENVIRONMENT = re.compile(r"""^\s*(?:"([^"]+)"|'([^']+)'|([A-Za-z_]\w*))\s*=\s*(.*?)\s*$""")
_USER = re.compile(r"^[a-z_][a-z0-9_-]*\$?$")
_ASSIGNMENT = re.compile(r"^\w+=\S*$")
_PREFIXES = frozenset(
    {
        "cd",
        "test",
        "[",
        "if",
        "then",
        "else",
        "command",
        "perl",
        "sleep",
        "true",
        "exec",
        "sudo",
        "nice",
        "ionice",
        "env",
    }
)
_DAY_FIELDS = (2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a person should know; `line` counts from 1, 0 for the whole file."""

    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedJob:
    """One line as a job; `notes` belong to it."""

    line: int
    name: str
    definition: Definition
    notes: tuple[str, ...]


@dataclass(slots=True)
class Import:
    """What a file gave: jobs, and notes on what was left out or changed."""

    format: str = "user"
    jobs: list[ImportedJob] = field(default_factory=list[ImportedJob])
    notes: list[Note] = field(default_factory=list[Note])


@dataclass(slots=True)
class _Context:
    """Environment lines hold from where they stand to the end of the file."""

    timezone: str
    shell: str = "/bin/sh"
    env: dict[str, str] = field(default_factory=dict[str, str])


def read_crontab(text: str, *, timezone: str, format: str = "auto", users: Collection[str] = ()) -> Import:  # noqa: A002
    """Jobs of a crontab. `timezone`: of the host it ran on. `users`: names that make a sixth field a user's."""
    lines = text.splitlines()
    result = Import(format=_detect(lines, users) if format == "auto" else format)
    context = _Context(timezone=timezone)
    names: set[str] = set()
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        environment = _ENVIRONMENT.match(line)
        if environment:
            _set_variable(result, context, number, environment)
        else:
            _add_entry(result, context, number, stripped, names)
    if result.jobs:
        result.notes.append(
            Note(
                line=0,
                text="as under cron, jobs may overlap (overlap=allow) and what was missed is not made up for "
                "(misfire=skip); change it per job where another policy is safer",
            )
        )
    return result


def _detect(lines: list[str], users: Collection[str]) -> str:
    sixth = [fields[-2] for line in lines if len(fields := _fields(line.strip(), with_user=True)) == 3]
    entries = [line for line in lines if _is_entry(line)]
    plausible = len(sixth) == len(entries) and all(_USER.match(user) for user in sixth)
    return "system" if plausible and any(user in users or user == "root" for user in sixth) else "user"


def _is_entry(line: str) -> bool:
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith("#") and not _ENVIRONMENT.match(line)


def _fields(line: str, *, with_user: bool) -> list[str]:
    """[schedule, user, command] or [schedule, command]; fewer when the line is too short."""
    if line.startswith("#") or not line:
        return []
    words = 1 if line.startswith("@") else 5
    parts = line.split(None, words + with_user)
    schedule = " ".join(parts[:words])
    return [schedule, *parts[words:]]


def _set_variable(result: Import, context: _Context, number: int, match: re.Match[str]) -> None:
    name = match[1] or match[2] or match[3]
    value = match[4]
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    if name in {"CRON_TZ", "TZ"}:
        context.timezone = value
        result.notes.append(Note(line=number, text=f"{name}={value}: the time zone of the jobs below"))
    elif name == "SHELL":
        context.shell = value
    elif name in {"MAILTO", "MAILFROM", "CONTENT_TYPE"}:
        if value:
            result.notes.append(
                Note(
                    line=number,
                    text=f"{name}={value}: not taken over; output is kept with each run and not mailed",
                )
            )
    elif name == "RANDOM_DELAY":
        result.notes.append(Note(line=number, text=f"{name}={value}: not taken over; runs start on time"))
    else:
        context.env[name] = value


def _add_entry(result: Import, context: _Context, number: int, line: str, names: set[str]) -> None:
    with_user = result.format == "system"
    fields = _fields(line, with_user=with_user)
    if len(fields) < 2 + with_user:
        wanted = "five time fields, a user and a command" if with_user else "five time fields and a command"
        result.notes.append(Note(line=number, text=f"NOT imported: {line!r} has too few fields; wanted {wanted}"))
        return
    schedule, user, command = fields[0], fields[1] if with_user else None, fields[-1]
    try:
        parse(schedule, timezone=context.timezone)
    except ScheduleError as error:
        result.notes.append(Note(line=number, text=f"NOT imported: {schedule!r}: {error}"))
        return
    result.jobs.append(_job(context, number, schedule, user, command, names))


def _job(context: _Context, number: int, schedule: str, user: str | None, command: str, names: set[str]) -> ImportedJob:
    script, stdin = _split_percent(command)
    notes: list[str] = []
    target: dict[str, Any] = {"argv": [context.shell, "-c", script]}
    if context.env:
        target["env"] = dict(context.env)
    if stdin is not None:
        target["stdin"] = stdin
        notes.append("the text after % goes to the command's standard input")
    if user is not None:
        target["user"] = user
        others = "" if user == "root" else f" or as {user}"
        notes.append(f"runs as {user}: needs an instance that runs as root{others}")
    if schedule.casefold() == "@reboot":
        notes.append("runs once when the cluster starts, on one instance; not whenever a host boots")
    if _both_days(schedule):
        notes.append("day of month OR day of week, as cron reads it: it fires when either matches")
    return ImportedJob(
        line=number,
        name=_unique(_name(script), names),
        definition=Definition(
            schedule=schedule,
            executor="command",
            target=target,
            timezone=context.timezone,
            overlap=Overlap.ALLOW.value,
            misfire=Misfire.SKIP.value,
        ),
        notes=tuple(notes),
    )


def _split_percent(command: str) -> tuple[str, str | None]:
    r"""The command up to the first bare `%`, and what follows it as standard input; `\%` is a plain `%`."""
    parts = re.split(r"(?<!\\)%", command)
    texts = [part.replace(r"\%", "%") for part in parts]
    return texts[0].strip(), "\n".join(texts[1:]) + "\n" if len(texts) > 1 else None


def _both_days(schedule: str) -> bool:
    fields = schedule.split()
    return len(fields) == 5 and all(not fields[i].startswith("*") for i in _DAY_FIELDS)


def _name(script: str) -> str:
    """A name out of a command line: its first real program, with what it works on where that says more."""
    for part in re.split(r"&&|\|\|?|;", script):
        words = part.split()
        while words and (words[0] in {"then", "else", "exec", "sudo", "env"} or _ASSIGNMENT.match(words[0])):
            words.pop(0)
        if words and words[0] not in _PREFIXES:
            return _slug(words)
    return _slug(script.split() or ["job"])


def _slug(words: list[str]) -> str:
    program = words[0].rsplit("/", 1)[-1]
    paths = [w for w in words[1:] if w.startswith("/")]
    suffix = f"-{paths[-1].rstrip('/').rsplit('/', 1)[-1]}" if program == "run-parts" and paths else ""
    return re.sub(r"[^\w.-]+", "-", program + suffix).strip("-.")[:80] or "job"


def _unique(name: str, names: set[str]) -> str:
    candidate, number = name, 2
    while candidate in names:
        candidate, number = f"{name}-{number}", number + 1
    names.add(candidate)
    return candidate
