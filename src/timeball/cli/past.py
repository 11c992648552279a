"""`timeball jobs pause`, `resume` and `backfill`: what becomes of ticks that have passed."""

from __future__ import annotations

from typing import Any

import click

from timeball.cli.context import Context, common, instant_option
from timeball.cli.views import change_json
from timeball.clock import format_instant, seconds_to_us
from timeball.errors import InvalidInput
from timeball.store.changes import ChangeResult


@click.command()
@click.argument("name")
@click.option("--reason", default="", help="Why, for whoever wonders.")
@click.option("--until", metavar="T", help="Resume by itself at this instant (RFC 3339).")
@click.option("--for", "seconds", type=float, metavar="S", help="Resume by itself after so many seconds.")
@click.option("--cancel-running", is_flag=True, help="Also ask the owners of what still runs to cancel it.")
@common
def pause(
    context: Context, name: str, reason: str, until: str | None, seconds: float | None, cancel_running: bool
) -> None:
    """Stop a job for a reason, until it is resumed or its hour has come."""
    if until is not None and seconds is not None:
        raise InvalidInput("--until and --for exclude each other", field="until")
    clock = context.parts.store.members.clock
    resume_at = clock() + seconds_to_us(seconds) if seconds is not None else instant_option(until, "until", clock)
    result = context.backfills.pause(name, reason=reason, resume_at=resume_at, cancel_running=cancel_running)
    context.show({**change_json(result)}, lambda: _told(result, "paused"))


@click.command()
@click.argument("name")
@click.option(
    "--make-up",
    metavar="WHAT",
    default="none",
    show_default=True,
    help="Of the ticks that passed: none, latest, all, N.",
)
@click.option("--at-once", type=int, metavar="N", default=1, show_default=True, help="So many of those at a time.")
@click.option("--dry-run", is_flag=True, help="Only say how many ticks have passed.")
@common
def resume(context: Context, name: str, make_up: str, at_once: int, dry_run: bool) -> None:
    """Make a paused job active again; say what becomes of the ticks that have passed."""
    passed = context.backfills.passed(name)
    document: dict[str, Any] = {
        "passed": passed.count,
        "first_passed": format_instant(passed.first),
        "last_passed": format_instant(passed.last),
    }
    if dry_run:
        span = f", from {document['first_passed']} to {document['last_passed']}" if passed.count else ""
        context.show({"name": name, **document}, lambda: click.echo(f"{passed.count} ticks have passed{span}"))
        return
    result = context.backfills.resume(name, make_up=make_up, at_once=at_once)
    context.show(
        {**change_json(result), **document}, lambda: _told(result, f"resumed; {passed.count} ticks had passed")
    )


@click.command()
@click.argument("name")
@click.option("--since", metavar="T", required=True, help="From this instant: RFC 3339, or an age like 7d.")
@click.option("--until", metavar="T", help="Up to this instant (default: now).")
@click.option("--at-once", type=int, metavar="N", default=1, show_default=True, help="So many at a time.")
@click.option("--again", is_flag=True, help="Also ticks that have succeeded.")
@click.option("--dry-run", is_flag=True, help="Only say how many ticks the range has.")
@common
def backfill(
    context: Context, name: str, since: str, until: str | None, at_once: int, again: bool, dry_run: bool
) -> None:
    """Make runs for the ticks of a past range, oldest first, by the job's definition as it is now."""
    clock = context.parts.store.members.clock
    first, last = instant_option(since, "since", clock), instant_option(until, "until", clock)
    assert first is not None
    if dry_run:
        ticks = context.backfills.preview(name, since=first, until=last)
        document = {"job": name, "ticks": [format_instant(tick) for tick in ticks]}
        context.show(document, lambda: click.echo(f"{len(ticks)} ticks{_span(ticks)}"))
        return
    made = context.backfills.backfill(name, since=first, until=last, at_once=at_once, again=again)
    document = {
        "id": made.id,
        "job": name,
        "ticks": [format_instant(tick) for tick in made.ticks],
        "at_once": made.at_once,
    }
    words = f"{len(made.ticks)} runs{_span(list(made.ticks))}, {made.at_once} at a time"
    context.show(document, lambda: click.echo(words if made.ticks else "nothing to do: every tick has run, or will"))


def _span(ticks: list[int]) -> str:
    return f", from {format_instant(ticks[0])} to {format_instant(ticks[-1])}" if ticks else ""


def _told(result: ChangeResult, words: str) -> None:
    name = result.job.name
    click.echo(f"{name} {words}" if result.changed else f"{name} is {result.job.state.value}; nothing changed")
    for run in result.still_running:
        click.echo(f"still running: run {run.run_id} on {run.instance} since {format_instant(run.started_at)}")
