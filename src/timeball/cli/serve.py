"""`timeball serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from timeball.app.load import load_scheduler
from timeball.app.scheduler import Scheduler
from timeball.app.serve import serve
from timeball.errors import InvalidInput


@click.command(name="serve")
@click.option("--app", metavar="MODULE:SCHEDULER", help="Whose functions and jobs this instance has.")
@click.option("--db", "database_url", metavar="URL", help="The database; sqlite:///FILE or postgresql://…")
@click.option("--namespace", metavar="NAME", help="The namespace of the jobs.")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings file (timeball.toml).")
@click.option("--host", metavar="H", help="Address to listen on (default: 127.0.0.1).")
@click.option("--port", type=int, metavar="N", help="Port to listen on (default: 8390; 0 for any free one).")
@click.option("--no-http", is_flag=True, help="Do not listen at all.")
@click.option("--name", metavar="NAME", help="The instance's name for people (default: host and process).")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="A label that jobs can require; repeatable.")
@click.option("--execute", type=click.Choice(["any", "leader", "none"]), help="Which runs this instance claims.")
@click.option("--no-migrate", is_flag=True, help="Never touch the schema.")
def command(app: str | None, config: Path | None, no_http: bool, no_migrate: bool, **flags: Any) -> None:
    """Run an instance until SIGTERM: start as many as you like, at any time, on any host.

    On SIGTERM it claims no more, hands over, and lets running work end for up to drain_seconds.
    """
    labels = flags.pop("labels")
    flags["labels"] = _labels(labels) if labels else None
    flags["migrate"] = False if no_migrate else None
    scheduler = load_scheduler(app) if app is not None else Scheduler()
    scheduler.configure(flags, config=config)
    serve(scheduler, http=not no_http)


def _labels(given: tuple[str, ...]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise InvalidInput(f"--label {text!r} has no =", hint="--label KEY=VALUE")
        labels[key] = value
    return labels
