"""`timeball import …`: jobs of other systems."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import click

from timeball.cli.context import Context, common, read_file
from timeball.clock import local_instant, wall_us
from timeball.errors import Conflict, InvalidInput, TimeballError
from timeball.schedule import resolve_zone, schedule_of
from timeball.service.importers.crontab import FORMATS, Import, ImportedJob, read_crontab
from timeball.service.jobs import JobService, ticks_after

TICKS_SHOWN = 3


@click.group(name="import")
def command() -> None:
    """Take over the jobs of another system."""


@command.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    help="system: with the user column; user: without; auto: by what stands in the file.",
)
@click.option("--timezone", metavar="ZONE", help="The zone of the host it ran on (default: this host's).")
@click.option("--prefix", default="", metavar="TEXT", help="Put this before each job's name.")
@click.option("--start", is_flag=True, help="Make the jobs active; by default they arrive stopped.")
@click.option("--dry-run", is_flag=True, help="Only show the jobs, in words and with their next ticks.")
@common
def crontab(
    context: Context,
    file: Path,
    file_format: str,
    timezone: str | None,
    prefix: str,
    start: bool,
    dry_run: bool,
) -> None:
    """Take over a crontab, line by line. What cannot be taken over one to one is said, with its line.

    \b
    timeball import crontab /etc/crontab --dry-run
    """
    text = read_file(file)
    result = read_crontab(
        text,
        timezone=timezone or host_zone(),
        format=file_format,
        users=[entry.pw_name for entry in pwd.getpwall()],
    )
    context.creates = not dry_run
    now = wall_us() if dry_run else context.parts.store.members.clock()
    documents = [_document(job, prefix, now) for job in result.jobs]
    if not dry_run:
        _create(context, result, documents, start=start)
    context.show(
        {
            "format": result.format,
            "dry_run": dry_run,
            "jobs": documents,
            "notes": [{"line": n.line, "text": n.text} for n in result.notes],
        },
        lambda: _people(result, documents, file, dry_run=dry_run),
    )


def _document(job: ImportedJob, prefix: str, now: int) -> dict[str, Any]:
    schedule = schedule_of(job.definition, name=prefix + job.name, anchor_at=0)
    zone = resolve_zone(job.definition.timezone)
    return {
        "line": job.line,
        "name": prefix + job.name,
        "schedule": job.definition.schedule,
        "timezone": job.definition.timezone,
        "text": schedule.describe(),
        "ticks": [local_instant(t, zone).isoformat() for t in ticks_after(schedule, now, TICKS_SHOWN)],
        "target": dict(job.definition.target),
        "notes": list(job.notes),
        "result": None,
    }


def _create(context: Context, result: Import, documents: list[dict[str, Any]], *, start: bool) -> None:
    service = context.jobs
    taken = {job.name for job in service.list()}
    clash = sorted(taken & {str(d["name"]) for d in documents})
    if clash:
        raise Conflict(
            f"these jobs exist already: {', '.join(clash)}; nothing was imported",
            hint="--prefix TEXT, or delete them",
        )
    if start:
        _check_all(service, result)
    for job, document in zip(result.jobs, documents, strict=True):
        document["result"] = _create_one(service, job, document, start=start)


def _check_all(service: JobService, result: Import) -> None:
    for job in result.jobs:
        try:
            service.check(job.name, job.definition)
        except TimeballError as error:
            raise InvalidInput(
                f"line {job.line}: {error.message}; nothing was imported", hint=error.hint, field=error.field
            ) from error


def _create_one(service: JobService, job: ImportedJob, document: dict[str, Any], *, start: bool) -> str:
    try:
        service.check(job.name, job.definition)
    except TimeballError as error:
        document["notes"].append(f"cannot be started yet: {error}")
    service.create_unchecked(str(document["name"]), job.definition, active=start)
    return "active" if start else "stopped"


def _people(result: Import, documents: list[dict[str, Any]], file: Path, *, dry_run: bool) -> None:
    click.echo(f"{file}: {result.format} format, {len(documents)} jobs")
    for document in documents:
        state = "would arrive" if dry_run else f"imported, {document['result']}"
        click.echo(f"\nline {document['line']}: {document['name']}  ({state})")
        click.echo(f"  {document['schedule']}  {document['text']}  [{document['timezone']}]")
        click.echo(f"  next: {', '.join(document['ticks'])}")
        click.echo(f"  runs: {document['target']['argv'][-1]}")
        for note in document["notes"]:
            click.echo(f"  note: {note}")
    if result.notes:
        click.echo("")
    for note in result.notes:
        where = f"line {note.line}" if note.line else "all jobs"
        click.echo(f"{where}: {note.text}")


def host_zone() -> str:
    """This host's time zone by name: TZ, else the link /etc/localtime, else /etc/timezone, else UTC."""
    if os.environ.get("TZ"):
        return os.environ["TZ"].lstrip(":")
    link = os.path.realpath("/etc/localtime")
    if "/zoneinfo/" in link:
        return link.split("/zoneinfo/", 1)[1]
    named = Path("/etc/timezone")
    return named.read_text(encoding="utf-8").strip() or "UTC" if named.is_file() else "UTC"
