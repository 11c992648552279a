"""What most commands need: the common options, the settings, the parts, the output."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from timeball.app.schema import ensure_schema
from timeball.app.wiring import Parts, connect, current_actor
from timeball.clock import local_instant, parse_instant
from timeball.errors import InvalidInput
from timeball.service.backfills import BackfillService
from timeball.service.calendars import CalendarService
from timeball.service.jobs import JobService
from timeball.service.limits import LimitService
from timeball.service.runs import RunService
from timeball.service.ticks import TickService
from timeball.settings import Settings, load_settings

AGE_SECONDS_MAX = 100 * 366 * 86_400


class RunId(click.IntRange):
    """The number of a run."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or a usage error that says where such numbers are found."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            words = f"{value!r} is not the number of a run; timeball runs list shows them, in the column ID"
            raise click.BadParameter(words, ctx=ctx, param=param) from error


RUN_ID = RunId(1, 2**63 - 1)


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --db, --namespace, --config and --json; the command gets one `Context` as its first argument."""

    @click.option("--db", "database_url", metavar="URL", help="The database; sqlite:///FILE or postgresql://…")
    @click.option("--namespace", metavar="NAME", help="The namespace of the jobs (default: default).")
    @click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings file (timeball.toml).")
    @click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
    @functools.wraps(command)
    def wrapped(
        database_url: str | None, namespace: str | None, config: Path | None, as_json: bool, **arguments: Any
    ) -> Any:
        context = Context({"database_url": database_url, "namespace": namespace}, config, as_json)
        try:
            return command(context, **arguments)
        finally:
            context.close()

    return wrapped


class Context:
    """Settings and parts, made when first asked for."""

    def __init__(self, flags: dict[str, Any], config: Path | None, as_json: bool) -> None:
        self.flags = flags
        self.config = config
        self.as_json = as_json
        self._parts: Parts | None = None
        self.creates = False
        """Whether the command may make a database that is not there yet."""

    @property
    def settings(self) -> Settings:
        """File, environment, flags."""
        return load_settings(self.flags, config=self.config)

    @property
    def parts(self) -> Parts:
        """The database, with a schema that this version can work on; commands that make jobs create one."""
        if self._parts is None:
            parts = connect(self.settings)
            if not self.creates:
                parts.store.database.must_exist()
            ensure_schema(parts.store, parts.settings, upgrade=False, create=self.creates)
            self._parts = parts
        return self._parts

    @property
    def jobs(self) -> JobService:
        """The job use-cases, in the name of the user at the terminal."""
        return self.parts.jobs(current_actor("cli"))

    @property
    def calendars(self) -> CalendarService:
        """The use-cases about named calendars."""
        return self.parts.calendars(current_actor("cli"))

    @property
    def runs(self) -> RunService:
        """The use-cases about runs."""
        return self.parts.runs(current_actor("cli"))

    @property
    def backfills(self) -> BackfillService:
        """The use-cases about the past: backfill, pause, resume."""
        return self.parts.backfills(current_actor("cli"))

    @property
    def limits(self) -> LimitService:
        """The use-cases about named limits."""
        return self.parts.limits(current_actor("cli"))

    @property
    def ticks(self) -> TickService:
        """The use-cases about single coming ticks."""
        return self.parts.ticks(current_actor("cli"))

    def notes(self, service: JobService | CalendarService) -> None:
        """Remarks go to standard error, out of the way of programs."""
        for note in service.notes:
            click.echo(f"note: {note}", err=True)

    def close(self) -> None:
        """Close what was opened."""
        if self._parts is not None:
            self._parts.store.close()

    def show(self, document: Any, people: Callable[[], None]) -> None:
        """One JSON document for programs, or whatever suits people."""
        if self.as_json:
            click.echo(json.dumps(document, ensure_ascii=False, indent=2))
        else:
            people()


def read_file(file: Path) -> str:
    """The text of a file that a command was given; `-` is standard input. Raises InvalidInput."""
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"cannot read {file}: {error}", hint="it must be UTF-8") from error


def table(titles: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A plain table that stays readable in a pipe: columns as wide as needed, nothing cut, lines kept apart."""
    lines = [list(line) for row in rows for line in _lines([_cell(cell) for cell in row])]
    if not lines:
        click.echo(empty)
        return
    widths = [max(len(line[i]) for line in [list(titles), *lines]) for i in range(len(titles))]
    for number, line in enumerate([list(titles), *lines]):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        click.echo(click.style(text, bold=True) if number == 0 else text)


def _lines(cells: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return itertools.zip_longest(*(cell.splitlines() or [""] for cell in cells), fillvalue="")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | bool) else str(value)


def tick_table(
    ticks: Sequence[int], zone_name: str, zone: dt.tzinfo, *, empty: str, remarks: Mapping[int, str] | None = None
) -> None:
    """Ticks in their zone, and in UTC where that is another; `remarks` on some of them, and how the clocks change."""
    local = [local_instant(tick, zone) for tick in ticks]
    titles, columns = [f"TICK ({zone_name})"], [[moment.isoformat(" ") for moment in local]]
    if zone_name != "UTC":
        titles.append("TICK (UTC)")
        columns.append([local_instant(tick, dt.UTC).isoformat(" ") for tick in ticks])
    said = [(remarks or {}).get(tick, "") for tick in ticks]
    notes = ["; ".join(filter(None, pair)) for pair in zip(said, clock_changes(local), strict=True)]
    if any(notes):
        titles.append("NOTE")
        columns.append(notes)
    table(titles, list(zip(*columns, strict=True)), empty=empty)


def clock_changes(moments: Sequence[dt.datetime]) -> list[str]:
    """For each local time, how the clocks of its zone have moved since the one before it in the list; mostly empty."""
    notes = [""]
    for one, other in itertools.pairwise(moments):
        moved = (other.utcoffset() or dt.timedelta()) - (one.utcoffset() or dt.timedelta())
        back = (moved < dt.timedelta()) == (one.timestamp() < other.timestamp())
        size = str(abs(moved)).removesuffix(":00")
        notes.append(f"clocks went {'back' if back else 'forward'} {size} in between" if moved else "")
    return notes[: len(moments)]


def json_object(text: str | None, field: str) -> dict[str, Any] | None:
    """A JSON object from a flag. Raises InvalidInput."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{field} is not JSON: {error}", hint='for example \'{"region": "eu"}\'', field=field
        ) from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{field} must be a JSON object", hint='for example \'{"region": "eu"}\'', field=field)
    return value


def instant_option(text: str | None, field: str, now: Callable[[], int]) -> int | None:
    """An instant from a flag: RFC 3339, or an age like 90s, 15m, 2h, 7d before now. Raises InvalidInput."""
    if text is None:
        return None
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    number, unit = text[:-1], text[-1:]
    if unit in units and number.replace(".", "", 1).isdigit():
        age = float(number) * units[unit]
        if age > AGE_SECONDS_MAX:
            raise InvalidInput(f"--{field} {text!r} is too long ago", hint="at most 100 years", field=field)
        return now() - round(age * 1_000_000)
    try:
        return parse_instant(text)
    except ValueError as error:
        raise InvalidInput(
            f"--{field} {text!r} is no instant",
            hint="2026-12-01T09:00:00Z, or an age: 90s, 15m, 2h, 7d",
            field=field,
        ) from error


def duration_ms(later: int | None, earlier: int | None) -> float | None:
    """Milliseconds between two instants in microseconds."""
    return None if later is None or earlier is None else (later - earlier) / 1000
