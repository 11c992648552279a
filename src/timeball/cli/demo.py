"""`timeball demo`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from timeball.app.demo import Demo, Picture
from timeball.cli.audit import show_report
from timeball.cli.views import short_instant

EXIT_VIOLATION = 1
LINE_EVERY_SECONDS = 5.0


@click.command(name="demo")
@click.option("--minutes", type=click.FloatRange(0.2, 600), default=1.0, show_default=True, help="How long.")
@click.option("--instances", type=click.IntRange(2, 20), default=3, show_default=True, help="How many instances.")
@click.option("--db", "database_url", metavar="URL", help="An empty database (default: a fresh SQLite file).")
def command(minutes: float, instances: int, database_url: str | None) -> None:
    """Watch real instances share one database while their leader is killed; ends with an audit.

    Ctrl-C ends it early, in order.
    """
    with tempfile.TemporaryDirectory(prefix="timeball-demo-") as folder:
        url = database_url or f"sqlite:///{folder}/demo.db"
        click.echo(
            f"{instances} instances on {'a fresh SQLite file' if database_url is None else 'the given database'}"
        )
        demo = Demo(database_url=url, folder=Path(folder), instances=instances, minutes=minutes, show=lambda _: None)
        if sys.stdout.isatty():
            with Live(console=Console(), refresh_per_second=4) as live:
                demo.show = lambda picture: live.update(_screen(picture))
                report = demo.run()
        else:
            demo.show = _Lines()
            report = demo.run()
        for line in demo.story:
            click.echo(line)
        click.echo()
        show_report(report)
    if not report.clean or report.duplicates or report.missed or report.without_fate:
        click.get_current_context().exit(EXIT_VIOLATION)


class _Lines:
    """For pipes and logs: one line now and then instead of a live picture."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, picture: Picture) -> None:
        if picture.elapsed_seconds < self._next:
            return
        self._next = picture.elapsed_seconds + LINE_EVERY_SECONDS
        leader = _marked(picture, picture.status.leader.name) if picture.status.leader else "nobody"
        up = ", ".join(_marked(picture, instance.name) for instance in picture.status.instances) or "nobody yet"
        last = picture.runs[0] if picture.runs else None
        ran = f"; last: {last.job} on {last.instance}" if last else ""
        click.echo(f"{picture.elapsed_seconds:6.1f} s  up: {up}; leader: {leader}{ran}")


def _marked(picture: Picture, name: str) -> str:
    return f"{name} (killed)" if name in picture.killed else name


def _screen(picture: Picture) -> Group:
    members = Table(
        "INSTANCE", "STATE", "LEADS", title=f"{picture.elapsed_seconds:.0f} s of {picture.minutes * 60:.0f}"
    )
    leader = picture.status.leader
    for instance in picture.status.instances:
        leads = f"yes, epoch {picture.status.lease.epoch}" if leader and instance.id == leader.id else ""
        members.add_row(_marked(picture, instance.name), instance.state.value, leads)
    runs = Table("JOB", "DUE (UTC)", "STATE", "INSTANCE", "LATE MS")
    for run in picture.runs:
        late = "" if run.started_at is None else f"{(run.started_at - run.ready_at) / 1000:.1f}"
        runs.add_row(run.job, short_instant(run.due_at), run.state, run.instance or "", late)
    return Group(members, runs, Text("\n".join(picture.story[-6:])))
