"""`timeball apply FILE`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from timeball.cli.context import Context, common, read_file, table
from timeball.service.files import read_wanted
from timeball.service.rollout import roll_out


@click.command(name="apply")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--prune", is_flag=True, help="Delete the jobs that the file does not name.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@common
def command(context: Context, file: Path, prune: bool, dry_run: bool) -> None:
    """Make the calendars and jobs be what a TOML (or .json) file says. All is checked before anything is changed.

    Then each of them changes in one transaction of its own; after a failure apply again: what is done stays as it is.
    """
    text = read_file(file)
    context.creates = not dry_run
    wanted = read_wanted(text, json_format=file.suffix == ".json")
    calendars, jobs = context.calendars, context.jobs
    done = roll_out(calendars, jobs, wanted, prune=prune, dry_run=dry_run)
    context.notes(calendars)
    context.notes(jobs)
    rows = [(f"calendar {d.name}", d.action, d.version) for d in done.calendars]
    rows += [(d.name, d.action, d.version) for d in done.jobs]
    title = "WOULD" if dry_run else "DID"
    context.show(
        {
            "dry_run": dry_run,
            "calendars": [asdict(d) for d in done.calendars],
            "jobs": [asdict(d) for d in done.jobs],
        },
        lambda: table(("NAME", title, "VERSION"), rows, empty="the file names no jobs"),
    )
