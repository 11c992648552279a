"""`timeball explain`: needs no database, unless a named calendar is to be looked up."""

from __future__ import annotations

from typing import Any

import click

from timeball.cli.context import Context, clock_changes, common, instant_option, tick_table
from timeball.clock import local_instant, wall_us
from timeball.errors import InvalidInput
from timeball.model.calendar import check_calendar
from timeball.schedule import apply_calendar, languages, parse, resolve_zone


@click.command(name="explain")
@click.argument("text")
@click.option("--timezone", metavar="Z", default="UTC", show_default=True, help="IANA time zone.")
@click.option("--dialect", metavar="D", default="standard", show_default=True, help="How cron text is read.")
@click.option("--dst", metavar="RULE", help="Daylight saving: vixie or literal (default: the dialect's).")
@click.option("--exclude", metavar="RULE", multiple=True, help="Closed: 12-25, sat,sun, …; repeatable.")
@click.option("--calendar", metavar="NAME", help="Closed when that calendar of the database says so.")
@click.option("--roll", metavar="R", default="skip", show_default=True, help="Closed ticks: skip, previous or next.")
@click.option("--from", "start", metavar="T", help="Ticks after this instant (default: now).")
@click.option("--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many ticks.")
@click.option("--previous", is_flag=True, help="The ticks before it instead, the latest first.")
@click.option("--language", type=click.Choice(languages()), default="en", show_default=True, help="Of the words.")
@common
def command(
    context: Context,
    text: str,
    timezone: str,
    dialect: str,
    dst: str | None,
    exclude: tuple[str, ...],
    calendar: str | None,
    roll: str,
    start: str | None,
    count: int,
    previous: bool,
    language: str,
) -> None:
    """Say in words what a schedule means, and its next ticks.

    \b
    timeball explain "*/15 9-17 * * mon-fri" --timezone Europe/Paris
    """
    instant = instant_option(start, "from", wall_us) if start else wall_us()
    assert instant is not None
    schedule = parse(text, timezone=timezone, dialect=dialect, dst=dst, anchor=instant)
    closed = _closed(context, exclude, calendar, roll)
    if closed:
        schedule = apply_calendar(schedule, closed)
    zone = resolve_zone(schedule.timezone)
    step = schedule.previous_before if previous else schedule.next_after
    ticks: list[int] = []
    while len(ticks) < count and (tick := step(ticks[-1] if ticks else instant)) is not None:
        ticks.append(tick)
    words = schedule.describe(language)
    moments = [local_instant(t, zone) for t in ticks]
    document = {"text": words, "ticks": [m.isoformat() for m in moments], "clock_changes": clock_changes(moments)}

    def people() -> None:
        click.echo(words)
        tick_table(ticks, schedule.timezone, zone, empty="no tick that can be foretold")

    context.show(document, people)


def _closed(context: Context, exclude: tuple[str, ...], name: str | None, roll: str) -> dict[str, Any]:
    if name is not None and exclude:
        raise InvalidInput("--calendar and --exclude exclude each other", field="calendar")
    if name is None and not exclude:
        return {}
    calendar: dict[str, Any] = {"exclude": list(exclude), "roll": roll}
    if name is not None:
        calendar = context.calendars.get(name).content.copy_in({"name": name, "roll": roll})
    check_calendar(calendar)
    return calendar
