"""`timeball why`."""

from __future__ import annotations

import click

from timeball.cli.context import Context, common
from timeball.clock import format_instant
from timeball.service.why import why


@click.command(name="why")
@click.argument("job")
@click.argument("time")
@common
def command(context: Context, job: str, time: str) -> None:
    """Say what became of a job at a time, and why.

    \b
    timeball why backup 09:00                      in the job's time zone, the whole minute
    timeball why backup "2026-12-01 09:00"
    timeball why backup 2026-12-01T08:00:00Z
    """
    parts = context.parts
    found = why(
        parts.store,
        context.settings.namespace,
        job,
        time,
        handler_of=lambda d: parts.registry.handler_of(d.executor, d.target),
    )
    document = [
        {
            "job": job,
            "due_at": format_instant(because.due_at),
            "run": because.run_id,
            "state": because.state,
            "version": because.version,
            "why": because.sentence,
        }
        for because in found
    ]
    context.show(document, lambda: click.echo("\n".join(because.sentence for because in found)))
