"""`timeball jobs …`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from timeball.cli import past
from timeball.cli.context import Context, common, json_object, table, tick_table
from timeball.cli.views import change_json, job_json, short_instant, target_text
from timeball.clock import format_instant, local_instant
from timeball.errors import InvalidInput
from timeball.model.job import Definition, Job, JobState
from timeball.schedule import Schedule, resolve_zone
from timeball.store.changes import ChangeResult
from timeball.store.skips import TickChange

EXIT_NOTHING = 0
_PLAIN = (
    *("schedule", "timezone", "dialect", "dst", "start_at", "end_at", "jitter"),
    *("overlap", "misfire", "on_lost", "timeout"),
)
"""Options that are one field of the definition each."""


@click.group(name="jobs")
def command() -> None:
    """Make, list, show, start, stop, trigger and delete jobs."""


for part in (past.pause, past.resume, past.backfill):
    command.add_command(part)


def definition_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that make up a definition."""
    options = [
        click.option("--schedule", metavar="TEXT", help="Cron (5 or 6 fields), @every 90s, @at INSTANT, or none."),
        click.option("--timezone", metavar="ZONE", help="IANA time zone (default: UTC)."),
        click.option("--dialect", metavar="D", help="How cron text is read (default: standard)."),
        click.option("--dst", metavar="RULE", help="Daylight saving: vixie or literal (default: the dialect's)."),
        click.option("--overlap", metavar="P", help="skip (default), queue, replace or allow."),
        click.option("--misfire", metavar="P", help="run_once (default), run_all or skip."),
        click.option("--on-lost", metavar="P", help="fail (default), rerun or hold."),
        click.option("--timeout", metavar="S", type=float, help="Seconds an attempt may take."),
        click.option("--start-at", metavar="T", help="No tick before this instant; @every begins with it."),
        click.option("--end-at", metavar="T", help="No tick after this instant."),
        click.option("--jitter", metavar="S", type=float, help="Spread each run over so many seconds after its tick."),
        click.option("--calendar", metavar="NAME", help="Closed when that calendar says so; '' for never."),
        click.option("--exclude", metavar="RULE", multiple=True, help="Closed then: 12-25, sat,sun …; '' for never."),
        click.option("--roll", metavar="R", help="Ticks on closed days: skip (default), previous or next open day."),
        click.option(
            "--set",
            "settings",
            metavar="FIELD=VALUE",
            multiple=True,
            help="Any other field, also of the target (target.KEY, target.headers.NAME); repeatable.",
        ),
        click.option("--function", metavar="NAME", help="Run a registered function."),
        click.option("--celery", metavar="TASK", help="Hand a task over to Celery workers."),
        click.option("--queue", metavar="NAME", help="With --celery: the queue."),
        click.option("--once", is_flag=True, help="With --celery: the task has the base timeball.celery.Once."),
        click.option("--args", metavar="JSON", help="Arguments of the function or task: a JSON object."),
        click.option("--command", "is_command", is_flag=True, help="Run a command: --command -- ARGV…"),
        click.option("--http", "is_http", is_flag=True, help="Send a request: --http [METHOD] URL"),
        click.argument("argv", nargs=-1, metavar="[-- ARGV…]"),
    ]
    return functools.reduce(lambda f, option: option(f), reversed(options), function)


@command.command()
@click.argument("name")
@definition_options
@click.option("--stopped", is_flag=True, help="Create it stopped.")
@common
def add(context: Context, name: str, stopped: bool, **given: Any) -> None:
    """Create a job.

    \b
    timeball jobs add hello --schedule "*/10 * * * * *" --command -- /bin/echo hello
    timeball jobs add report --schedule "0 9 * * mon-fri" --timezone Europe/Paris --function report
    timeball jobs add ping --schedule "@every 5m" --http POST https://example.org/hook
    """
    if not (given["schedule"] or "").strip():
        raise InvalidInput("--schedule is missing", hint='"*/5 * * * *", "@every 90s", or none for manual runs only')
    context.creates = True
    service = context.jobs
    job = service.create(name, _definition(given), active=not stopped)
    context.notes(service)
    context.show(job_json(job), lambda: _created(job, service.schedule_of(job)))


@command.command()
@click.argument("name")
@definition_options
@click.option("--version", "expected", type=int, help="Only if the job is still at this version.")
@common
def edit(context: Context, name: str, expected: int | None, **given: Any) -> None:
    """Change a job's definition; what is not named stays. No tick of the old definition starts afterwards."""
    if not any(value not in (None, (), False) for value in given.values()):
        raise InvalidInput(
            f"nothing to change about job {name!r} was given",
            hint="for example --schedule, --timezone, --set FIELD=VALUE; timeball jobs edit --help lists them",
        )
    service = context.jobs
    base = service.get(name)
    version = base.version if expected is None else expected
    result = service.edit(name, _definition(given, base.definition), expected_version=version)
    context.notes(service)
    context.show(change_json(result), lambda: _changed(result, "edited"))


@command.command(name="list")
@click.option("--state", type=click.Choice(["active", "paused", "stopped", "broken"]), help="Only jobs in this state.")
@common
def list_(context: Context, state: str | None) -> None:
    """List the jobs."""
    service = context.jobs
    jobs = service.with_next_tick(service.list(state=state or ""))
    rows = [
        (j.name, j.state.value, j.definition.schedule, j.definition.timezone, _next(j), target_text(j)) for j in jobs
    ]
    titles = ("NAME", "STATE", "SCHEDULE", "ZONE", "NEXT DUE (UTC)", "RUNS")
    context.show([job_json(j) for j in jobs], lambda: table(titles, rows, empty="no jobs; timeball jobs add makes one"))


@command.command()
@click.argument("name")
@common
def show(context: Context, name: str) -> None:
    """Show one job: its definition, in words, and its state."""
    service = context.jobs
    (job,) = service.with_next_tick([service.get(name)])
    document = job_json(job)
    if job.state is not JobState.BROKEN:
        document["text"] = service.schedule_of(job).describe()
    context.show(document, lambda: table(("FIELD", "VALUE"), document.items(), empty=""))


@command.command()
@click.argument("name")
@common
def start(context: Context, name: str) -> None:
    """Make a job active from its next tick on. The time it was stopped is not replayed."""
    result = context.jobs.start(name)
    context.show(change_json(result), lambda: _changed(result, "started"))


@command.command()
@click.argument("name")
@click.option("--cancel-running", is_flag=True, help="Also ask the owners of what still runs to cancel it.")
@common
def stop(context: Context, name: str, cancel_running: bool) -> None:
    """Stop a job: when this answers, no later tick starts, on any instance; what still runs is listed."""
    result = context.jobs.stop(name, cancel_running=cancel_running)
    context.show(change_json(result), lambda: _changed(result, "stopped"))


@command.command()
@click.argument("name")
@click.option("--cancel-running", is_flag=True, help="Also ask the owners of what still runs to cancel it.")
@common
def delete(context: Context, name: str, cancel_running: bool) -> None:
    """Delete a job; its name is free, its history stays until retention removes it."""
    result = context.jobs.delete(name, cancel_running=cancel_running)
    document = {**change_json(result), "state": "deleted"}
    context.show(document, lambda: _changed(result, "deleted"))


@command.command()
@click.argument("name")
@click.option("--args", metavar="JSON", help="Arguments for this run: a JSON object.")
@click.option("--key", metavar="KEY", help="Idempotency key: the same key again gives the same run.")
@common
def trigger(context: Context, name: str, args: str | None, key: str | None) -> None:
    """Run a job now, once, by hand. The schedule is not touched."""
    run_id = context.jobs.trigger(name, args=json_object(args, "args"), idempotency_key=key)
    context.show({"job": name, "run": run_id}, lambda: click.echo(f"run {run_id} of {name} is due now"))


@command.command()
@click.argument("name")
@click.argument("tick", required=False)
@common
def skip(context: Context, name: str, tick: str | None) -> None:
    """Take one coming tick out: the one at TICK, or the next. It stays in the ledger as skipped.

    \b
    timeball jobs skip report "2026-12-24 09:00"        (the job's zone)
    timeball jobs skip report 2026-12-24T08:00:00Z
    """
    change, due_at = context.ticks.skip(name, tick)
    words = "is out" if change.changed else "was out already; nothing changed"
    _tick_changed(context, change, due_at, words)


@command.command()
@click.argument("name")
@click.argument("tick")
@common
def unskip(context: Context, name: str, tick: str) -> None:
    """Put a tick back that was taken out."""
    change, due_at = context.ticks.unskip(name, tick)
    _tick_changed(context, change, due_at, "is back")


def _tick_changed(context: Context, change: TickChange, due_at: int, words: str) -> None:
    moment = local_instant(due_at, resolve_zone(change.job.definition.timezone)).isoformat(" ")
    document = {"job": change.job.name, "tick": format_instant(due_at), "changed": change.changed, "run": change.run_id}
    context.show(document, lambda: click.echo(f"the tick of {change.job.name} at {moment} {words}"))


@command.command(name="next")
@click.argument("name")
@click.option("--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many ticks.")
@common
def next_(context: Context, name: str, count: int) -> None:
    """Show a job's next ticks, in its zone and in UTC."""
    job, ticks = context.jobs.next_ticks(name, count)
    zone, out = resolve_zone(job.definition.timezone), context.ticks.skipped(job)
    document = {
        "name": job.name,
        "state": job.state.value,
        "ticks": [local_instant(t, zone).isoformat() for t in ticks],
        "skipped": [local_instant(t, zone).isoformat() for t in ticks if t in out],
    }
    empty = (
        f"{name} is {job.state.value}: no tick is coming" if job.state is not JobState.ACTIVE else "no tick is coming"
    )
    context.show(document, lambda: tick_table(ticks, job.definition.timezone, zone, empty=empty, remarks=out))


def _definition(given: dict[str, Any], base: Definition | None = None) -> Definition:
    values: dict[str, Any] = base.to_dict() if base is not None else {}
    names = {"timeout": "timeout_seconds", "jitter": "jitter_seconds"}
    for option in _PLAIN:
        if given[option] is not None:
            values[names.get(option, option)] = given[option]
    values |= _calendar(given, values.get("calendar", {})) | _target(given, base)
    definition = Definition.from_dict(values)
    for text in given["settings"]:
        field, equals, value = text.partition("=")
        if not equals:
            raise InvalidInput(f"--set {text!r} has no =", hint="--set FIELD=VALUE")
        definition = definition.with_text(field, value)
    return definition


def _calendar(given: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """New rules or a new name take the place of all that was there; an empty one takes the calendar off."""
    rules, roll, name = [rule for rule in given["exclude"] if rule.strip()], given["roll"], given["calendar"]
    calendar = dict(before)
    if name is not None and given["exclude"]:
        raise InvalidInput("--calendar and --exclude exclude each other", field="calendar")
    if name is not None:
        kept = {"roll": before["roll"]} if "roll" in before else {}
        calendar = {"name": name, **kept} if name else {}
    if given["exclude"]:
        calendar = {key: calendar[key] for key in ("timezone", "roll") if key in calendar} | {"exclude": rules}
    if given["exclude"] and not rules:
        calendar = {}
    if roll is not None and not calendar:
        raise InvalidInput(
            "--roll needs a calendar", hint="--calendar NAME or --exclude RULE says what is closed", field="calendar"
        )
    return {"calendar": calendar if roll is None else {**calendar, "roll": roll}}


def _target(given: dict[str, Any], base: Definition | None) -> dict[str, Any]:
    argv, args = list(given["argv"]), json_object(given["args"], "args")
    chosen = [f"--{kind}" for kind in ("function", "celery") if given[kind] is not None]
    chosen += [f"--{kind}" for kind in ("command", "http") if given[f"is_{kind}"]]
    if len(chosen) > 1:
        raise InvalidInput(f"{' and '.join(chosen)} exclude each other")
    values: dict[str, Any] = {} if args is None else {"args": args}
    if given["is_http"]:
        return {**values, "executor": "http", "target": _http_target(argv)}
    if given["is_command"]:
        return {**values, "executor": "command", "target": _command_target(argv, base)}
    if argv:
        raise InvalidInput(f"unexpected {argv[0]!r}", hint="a command is given as --command -- ARGV…")
    if given["function"] is not None:
        return {**values, "executor": "function", "target": {"name": given["function"]}}
    if given["celery"] is not None:
        return {**values, "executor": "celery", "target": _celery_target(given)}
    if base is None:
        hint = "--function NAME, --http [METHOD] URL, --celery TASK, or --command -- ARGV…"
        raise InvalidInput("say what to run", hint=hint)
    return values


def _command_target(argv: list[str], base: Definition | None) -> dict[str, Any]:
    """Another command; what else the target says stays."""
    if not argv:
        raise InvalidInput("--command needs the command behind --", hint="NAME … --command -- /bin/echo hello")
    kept = base.target if base is not None and base.executor == "command" else {}
    return {**kept, "argv": argv}


def _celery_target(given: dict[str, Any]) -> dict[str, Any]:
    extra = {"queue": given["queue"], "once": given["once"] or None}
    return {"task": given["celery"], **{key: value for key, value in extra.items() if value is not None}}


def _http_target(words: Sequence[str]) -> dict[str, Any]:
    if not 1 <= len(words) <= 2:
        raise InvalidInput("--http needs a URL, and before it a method or none", hint="--http POST https://…")
    return {"url": words[-1]} if len(words) == 1 else {"method": words[0], "url": words[1]}


def _created(job: Job, schedule: Schedule) -> None:
    click.echo(f"{job.name} created, {job.state.value}: {schedule.describe()}")
    if job.next_due_at is not None:
        click.echo(f"next due {format_instant(job.next_due_at)}")
    elif job.state is JobState.ACTIVE and job.definition.schedule != "none":
        click.echo("no tick is coming: its instants have all passed")


def _changed(result: ChangeResult, word: str) -> None:
    if not result.changed:
        click.echo(f"{result.job.name} was {result.job.state.value} already; nothing changed")
    else:
        removed = f"; {result.removed_runs} planned runs removed" if result.removed_runs else ""
        click.echo(f"{result.job.name} {word}{removed}")
    _still_running(result.still_running)


def _still_running(runs: Sequence[Any]) -> None:
    for run in runs:
        click.echo(f"still running: run {run.run_id} on {run.instance} since {format_instant(run.started_at)}")


def _next(job: Job) -> str | None:
    return short_instant(job.next_due_at)
