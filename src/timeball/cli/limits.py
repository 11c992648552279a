"""`timeball limits …`."""

from __future__ import annotations

from typing import Any

import click

from timeball.cli.context import Context, common, table
from timeball.clock import format_instant
from timeball.errors import InvalidInput
from timeball.model.limit import Limit, LimitRule
from timeball.store.limits import LimitUse


@click.group(name="limits")
def command() -> None:
    """Set, list, show and delete limits that jobs share."""


@command.command(name="list")
@common
def list_(context: Context) -> None:
    """List the limits."""
    service = context.limits
    found = [(limit, service.use(limit)) for limit in service.list()]
    rows = [
        (limit.name, use.running, _bounds(limit.rule), len(use.jobs), limit.rule.description) for limit, use in found
    ]
    titles = ("NAME", "RUNNING", "BOUND", "JOBS", "DESCRIPTION")
    empty = "no limits; timeball limits set makes one"
    context.show([limit_json(*pair) for pair in found], lambda: table(titles, rows, empty=empty))


@command.command()
@click.argument("name")
@common
def show(context: Context, name: str) -> None:
    """Show one limit, how many runs hold a permit, and the jobs that name it."""
    limit = context.limits.get(name)
    document = limit_json(limit, context.limits.use(limit))
    values = {**document, "jobs": ", ".join(document["jobs"]) or None}
    context.show(document, lambda: table(("FIELD", "VALUE"), values.items(), empty=""))


@command.command(name="set")
@click.argument("name")
@click.option("--running", "running_max", type=int, metavar="N", help="So many runs at once.")
@click.option(
    "--started", "started_max", type=int, metavar="N", help="So many starts within --per, wherever it begins."
)
@click.option("--per", "window_seconds", type=float, metavar="S", help="The window of --started, in seconds.")
@click.option("--description", metavar="TEXT", default="", help="For people.")
@click.option("--version", "expected", type=int, help="Only if the limit is still at this version; 0: only if new.")
@common
def set_(
    context: Context,
    name: str,
    running_max: int | None,
    started_max: int | None,
    window_seconds: float | None,
    description: str,
    expected: int | None,
) -> None:
    """Make a limit, or change one. What is running goes on.

    \b
    timeball limits set mail-server --running 5
    timeball limits set partner-api --started 100 --per 60
    timeball jobs edit mails --set limits=mail-server,partner-api
    """
    if running_max is None and started_max is None:
        raise InvalidInput("say what is limited", hint="--running N, or --started N --per SECONDS", field="running_max")
    context.creates = True
    rule = LimitRule(
        running_max=running_max, started_max=started_max, window_seconds=window_seconds, description=description
    )
    limit, changed = context.limits.set(name, rule, expected_version=expected)
    document = {**limit_json(limit, context.limits.use(limit)), "changed": changed}
    words = f"{_bounds(rule)}" if changed else "was so already"
    context.show(document, lambda: click.echo(f"limit {name}: {words}"))


@command.command()
@click.argument("name")
@common
def delete(context: Context, name: str) -> None:
    """Delete a limit that no job names."""
    context.limits.delete(name)
    context.show({"name": name, "state": "deleted"}, lambda: click.echo(f"limit {name} deleted"))


def limit_json(limit: Limit, use: LimitUse) -> dict[str, Any]:
    """A limit and its use as JSON."""
    return {
        "name": limit.name,
        "version": limit.version,
        "running_max": limit.rule.running_max,
        "started_max": limit.rule.started_max,
        "window_seconds": limit.rule.window_seconds,
        "description": limit.rule.description,
        "running": use.running,
        "jobs": list(use.jobs),
        "updated_at": format_instant(limit.updated_at),
    }


def _bounds(rule: LimitRule) -> str:
    bounds: list[str] = []
    if rule.running_max is not None:
        bounds.append(f"{rule.running_max} at once")
    if rule.started_max is not None:
        bounds.append(f"{rule.started_max} within {rule.window_seconds:g} s")
    return ", ".join(bounds)
