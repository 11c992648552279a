"""`timeball calendars …`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from timeball.cli.context import Context, common, read_file, table
from timeball.clock import format_instant, local_instant, wall_us
from timeball.errors import InvalidInput
from timeball.model.calendar import Calendar, Content
from timeball.schedule import resolve_zone
from timeball.service.calendars import CalendarChange
from timeball.service.importers.countries import import_country
from timeball.service.importers.days import Imported, read_years
from timeball.service.importers.ical import import_ical

NAMED_MAX = 20


@click.group(name="calendars")
def command() -> None:
    """Make, list, show, edit and delete named calendars."""


def content_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that make up a calendar."""
    options = [
        click.option("--exclude", metavar="RULE", multiple=True, help="Closed: 12-25, sat,sun, …; repeatable."),
        click.option("--country", metavar="CC", help="Also closed: the public holidays of a country, e.g. DE."),
        click.option("--subdivision", metavar="S", help="Of a part of the country, e.g. BY."),
        click.option("--ical", type=click.Path(path_type=Path, dir_okay=False), help="Also closed: events of a file."),
        click.option("--years", metavar="Y-Y", help="What to import, e.g. 2026-2035 (default: this year and 5 more)."),
        click.option("--timezone", metavar="ZONE", help="Of the rules (default: that of each schedule)."),
        click.option("--description", metavar="TEXT", help="For people."),
    ]
    return functools.reduce(lambda f, option: option(f), reversed(options), function)


@command.command(name="list")
@common
def list_(context: Context) -> None:
    """List the calendars."""
    calendars = context.calendars.list()
    rows = [
        (
            c.name,
            len(c.content.exclude),
            c.content.timezone or None,
            c.content.until or None,
            c.version,
            c.content.description,
        )
        for c in calendars
    ]
    titles = ("NAME", "RULES", "ZONE", "KNOWN UNTIL", "VERSION", "DESCRIPTION")
    empty = "no calendars; timeball calendars add makes one"
    context.show([_calendar_json(c) for c in calendars], lambda: table(titles, rows, empty=empty))


@command.command()
@click.argument("name")
@common
def show(context: Context, name: str) -> None:
    """Show one calendar: its rules, where they are from, and the jobs that carry it."""
    service = context.calendars
    calendar = service.get(name)
    jobs = [job.name for job in service.users(name)]
    document = {**_calendar_json(calendar), "jobs": jobs, "behind": list(service.behind(calendar))}
    context.show(document, lambda: _shown(document))


@command.command()
@click.argument("name")
@content_options
@common
def add(context: Context, name: str, **given: Any) -> None:
    """Create a calendar.

    \b
    timeball calendars add works --exclude sat,sun --exclude 12-24..01-01
    timeball calendars add bavaria --country DE --subdivision BY --years 2026-2035
    timeball calendars add school --ical school.ics --timezone Europe/Paris
    """
    context.creates = True
    content, notes = _content(given, None)
    service = context.calendars
    calendar = service.create(name, content)
    service.notes[:0] = notes
    context.notes(service)
    context.show(_calendar_json(calendar), lambda: click.echo(f"calendar {name} created, {_extent(content)}"))


@command.command()
@click.argument("name")
@content_options
@click.option("--version", "expected", type=int, help="Only if the calendar is still at this version.")
@common
def edit(context: Context, name: str, expected: int | None, **given: Any) -> None:
    """Change a calendar; every job that carries it follows.

    What is not named stays. New rules, given or imported, take the place of all that were there.
    """
    service = context.calendars
    before = service.get(name)
    content, notes = _content(given, before.content)
    change = service.edit(name, content, expected_version=before.version if expected is None else expected)
    service.notes[:0] = notes
    context.notes(service)
    document = {
        **_calendar_json(change.calendar),
        "changed": change.changed,
        "jobs_changed": len(change.followed),
        "left": dict(change.left),
    }
    context.show(document, lambda: _edited(change))


@command.command()
@click.argument("name")
@common
def delete(context: Context, name: str) -> None:
    """Delete a calendar that no job carries."""
    context.calendars.delete(name)
    context.show({"name": name, "state": "deleted"}, lambda: click.echo(f"calendar {name} deleted"))


def _content(given: dict[str, Any], before: Content | None) -> tuple[Content, list[str]]:
    """The content that the options say, and remarks."""
    base = before or Content(exclude=())
    zone, description = given["timezone"], given["description"]
    timezone = base.timezone if zone is None else zone
    rules, sources = base.exclude, base.sources
    imported = _imported(given, timezone)
    if given["exclude"] or imported:
        rules = (*given["exclude"], *(rule for each in imported for rule in each.rules))
        sources = tuple(each.source for each in imported)
    elif before is None:
        raise InvalidInput("say what is closed", hint="--exclude RULE, --country CC or --ical FILE", field="calendar")
    content = Content(
        exclude=rules,
        timezone=timezone,
        description=base.description if description is None else description,
        sources=sources,
    )
    return content, [note for each in imported for note in each.notes]


def _imported(given: dict[str, Any], timezone: str) -> list[Imported]:
    country, subdivision, file = given["country"], given["subdivision"], given["ical"]
    if subdivision is not None and country is None:
        raise InvalidInput("--subdivision needs --country", field="subdivision")
    if given["years"] is not None and country is None and file is None:
        raise InvalidInput("--years needs --country or --ical", field="years")
    if country is None and file is None:
        return []
    this_year = local_instant(wall_us(), resolve_zone("UTC")).year
    years = read_years(given["years"], this_year=this_year)
    found = [] if country is None else [import_country(country, subdivision, years)]
    if file is not None:
        found.append(import_ical(read_file(file), years, timezone=timezone, name=file.name))
    return found


def _calendar_json(calendar: Calendar) -> dict[str, Any]:
    content = calendar.content
    return {
        "name": calendar.name,
        "version": calendar.version,
        "description": content.description,
        "exclude": list(content.exclude),
        "timezone": content.timezone,
        "sources": [{"what": source.what, "until": source.until} for source in content.sources],
        "known_until": content.until or None,
        "updated_at": format_instant(calendar.updated_at),
    }


def _extent(content: Content) -> str:
    count = len(content.exclude)
    until = f"; imported days are known until {content.until}" if content.until else ""
    return f"{count} {'rule' if count == 1 else 'rules'}{until}"


def _shown(document: dict[str, Any]) -> None:
    rules = document["exclude"]
    more = [f"and {len(rules) - NAMED_MAX} more; --json shows them"] if len(rules) > NAMED_MAX else []
    values = {
        **document,
        "exclude": "; ".join([*rules[:NAMED_MAX], *more]),
        "jobs": ", ".join(document["jobs"]) or None,
    }
    values["sources"] = "; ".join(source["what"] for source in document["sources"]) or None
    values["behind"] = ", ".join(document["behind"]) or None
    table(("FIELD", "VALUE"), values.items(), empty="")


def _edited(change: CalendarChange) -> None:
    name, count = change.calendar.name, len(change.followed)
    words = f"edited, {_extent(change.calendar.content)}" if change.changed else "was so already"
    click.echo(f"calendar {name} {words}; {count} {'job follows' if count == 1 else 'jobs follow'}")
    for job, why in list(change.left.items())[:NAMED_MAX]:
        click.echo(f"job {job} was left as it is: {why}")
