"""`timeball runs …`."""

from __future__ import annotations

import click

from timeball.cli.context import RUN_ID, Context, common, instant_option, table
from timeball.cli.views import attempt_json, run_change_json, run_json, short_instant, short_ms
from timeball.errors import InvalidInput
from timeball.model.states import State
from timeball.store.runs import RunFilter


@click.group(name="runs")
def command() -> None:
    """List runs, show one, read its output; cancel one, run it again, settle a lost one."""


@command.command(name="list")
@click.option("--job", metavar="NAME", help="Only this job's runs.")
@click.option("--state", "states", metavar="S", multiple=True, help="Only runs in this state; repeatable.")
@click.option("--since", metavar="T", help="Due at or after: RFC 3339, or an age like 15m.")
@click.option("--until", metavar="T", help="Due before (default: now; with --state: any).")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@common
def list_(
    context: Context,
    job: str | None,
    states: tuple[str, ...],
    since: str | None,
    until: str | None,
    limit: int,
) -> None:
    """List runs, the latest due first. Runs that are planned ahead: --state planned."""
    known = [str(state) for state in State]
    for state in states:
        if state not in known:
            raise InvalidInput(f"there is no state {state!r}", hint=f"one of {', '.join(known)}", field="state")
    store, namespace = context.parts.store, context.settings.namespace
    clock = store.members.clock
    wanted = RunFilter(
        job=job,
        states=states,
        since=instant_option(since, "since", clock),
        until=clock() if until is None and not states else instant_option(until, "until", clock),
        limit=limit,
    )
    found = sorted(store.runs.list(namespace, wanted), key=lambda run: (run.due_at, run.id), reverse=True)
    documents = [run_json(run) for run in found]
    if job is not None and not documents:
        context.jobs.get(job)  # a deleted job's runs are listed; a name that nobody knows is told
    titles = ("ID", "JOB", "KIND", "DUE (UTC)", "STATE", "TRY", "INSTANCE", "LATE MS", "TOOK MS", "WHY")
    rows = [
        (
            d["id"],
            d["job"],
            d["kind"],
            str(d["due_at"])[:-4] + "Z",
            d["state"] + (f" x{d['ticks']}" if d["ticks"] > 1 else ""),
            d["attempt"],
            d["instance"],
            short_ms(d["lateness_ms"]),
            short_ms(d["duration_ms"]),
            _why(d["error"], d["reason"]),
        )
        for d in documents
    ]
    context.show(documents, lambda: table(titles, rows, empty="no runs"))


@command.command()
@click.argument("run_id", type=RUN_ID, metavar="ID")
@common
def show(context: Context, run_id: int) -> None:
    """Show one run and its earlier attempts."""
    store = context.parts.store
    run = store.runs.get(context.settings.namespace, run_id)
    attempts = store.runs.attempts(run_id)
    document = {**run_json(run), "attempts": [attempt_json(a) for a in attempts]}

    def people() -> None:
        table(("FIELD", "VALUE"), [(k, v) for k, v in document.items() if k != "attempts"], empty="")
        if attempts:
            click.echo("\nearlier attempts")
            rows = [
                (a.attempt, a.state, a.instance, short_instant(a.started_at), a.error or a.reason) for a in attempts
            ]
            table(("TRY", "STATE", "INSTANCE", "STARTED (UTC)", "WHY"), rows, empty="")

    context.show(document, people)


@command.command()
@click.argument("run_id", type=RUN_ID, metavar="ID")
@click.option("--attempt", type=int, help="An earlier attempt (default: the last).")
@common
def logs(context: Context, run_id: int, attempt: int | None) -> None:
    """Print what a run left: its output, its log."""
    store = context.parts.store
    run = store.runs.get(context.settings.namespace, run_id)
    outputs = store.runs.outputs(run_id, attempt or run.attempt)
    document = {
        "id": run_id,
        "attempt": attempt or run.attempt,
        "state": run.state,
        "outputs": [
            {"stream": o.stream, "text": o.text, "bytes_total": o.bytes_total, "bytes_cut": o.bytes_cut}
            for o in outputs
        ],
    }

    def people() -> None:
        for output in outputs:
            click.echo(click.style(f"--- {output.stream} ({output.bytes_total} bytes)", dim=True), err=True)
            click.echo(output.text, nl=not output.text.endswith("\n"))
        if not outputs:
            click.echo(f"run {run_id} ({run.state}) left no output", err=True)

    context.show(document, people)


@command.command()
@click.argument("run_id", type=RUN_ID, metavar="ID")
@click.option("--wait", "wait_seconds", metavar="S", type=click.FloatRange(0, 3600), default=5.0, show_default=True)
@common
def cancel(context: Context, run_id: int, wait_seconds: float) -> None:
    """End a run: at once while it waits; through its instance while it runs. Exit 1 if it runs on."""
    change = context.runs.cancel(run_id, wait_seconds=wait_seconds)
    name = f"run {run_id} of {change.job}"

    def people() -> None:
        if change.state is not State.RUNNING:
            click.echo(f"{name} is {change.state}{'' if change.changed else '; it had ended, nothing changed'}")
        elif change.owner_gone:
            click.echo(f"{name} is running by the ledger, but {change.owner} is gone and hears no wish")
            click.echo("hint: within seconds the leader gives it up, and the job's on_lost decides", err=True)
        else:
            click.echo(f"{name} is still running on {change.owner}, which has been asked to end it")

    context.show(run_change_json(change), people)
    if change.state is State.RUNNING:
        raise click.exceptions.Exit(1)


@command.command()
@click.argument("run_id", type=RUN_ID, metavar="ID")
@click.option("--attempt", type=click.IntRange(1), help="The one that you saw end: never two reruns of one end.")
@common
def rerun(context: Context, run_id: int, attempt: int | None) -> None:
    """Run again what failed, was cancelled or was lost: one more attempt of the same run."""
    change = context.runs.rerun(run_id, attempt=attempt)
    words = f"is due now as attempt {change.attempt}"
    if not change.changed:
        words = f"runs again already: attempt {change.attempt} is {change.state}"
    context.show(run_change_json(change), lambda: click.echo(f"run {run_id} of {change.job} {words}"))


@command.command()
@click.argument("run_id", type=RUN_ID, metavar="ID")
@click.option("--as", "verdict", metavar="S", required=True, help="succeeded, failed or cancelled.")
@click.option("--note", default="", help="Why, for the trail.")
@common
def settle(context: Context, run_id: int, verdict: str, note: str) -> None:
    """Say how a lost run really ended, once you know: nothing runs."""
    change = context.runs.settle(run_id, verdict, note=note)
    words = f"is {change.state}" + ("" if change.changed else " already; nothing changed")
    context.show(run_change_json(change), lambda: click.echo(f"run {run_id} of {change.job} {words}"))


def _why(error: str | None, reason: str | None) -> str:
    return (error or reason or "").replace("\n", " ")[:70]
