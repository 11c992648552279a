"""The commands and where they live. Modules load when their command is used, so that help is instant."""

from __future__ import annotations

import importlib
import json
import os
import sys

import click

from timeball.errors import Conflict, InvalidInput, NotFound, ScheduleError, TimeballError
from timeball.model.fields import check_storable
from timeball.version import VERSION

_COMMANDS: dict[str, tuple[str, str]] = {
    "serve": (
        "timeball.cli.serve",
        "Run an instance: it plans, claims, runs and answers on /healthz and /readyz.",
    ),
    "demo": ("timeball.cli.demo", "Watch three real instances share the work while their leader is killed."),
    "jobs": ("timeball.cli.jobs", "Make, list, show, start, stop, trigger and delete jobs."),
    "calendars": ("timeball.cli.calendars", "Make, list, show, edit and delete named calendars."),
    "limits": ("timeball.cli.limits", "Set, list, show and delete limits that jobs share."),
    "runs": ("timeball.cli.runs", "List runs, show one, read its output."),
    "cluster": ("timeball.cli.cluster", "Who takes part and who leads."),
    "why": ("timeball.cli.why", "Say what became of a job at a time, and why."),
    "explain": ("timeball.cli.explain", "Say in words what a schedule means, and its next ticks."),
    "audit": ("timeball.cli.audit", "Recompute every tick of a period and compare it with the ledger."),
    "selftest": ("timeball.cli.selftest", "Torture real instances on your database, and check what they did."),
    "apply": ("timeball.cli.apply", "Make the jobs be what a file says."),
    "import": ("timeball.cli.importing", "Take over the jobs of another system."),
    "doctor": ("timeball.cli.doctor", "Check that the database is what the promises need."),
    "db": ("timeball.cli.db", "Bring the database's schema up to date, or check it."),
}


SHOWN_BEFORE, SHOWN_BEHIND = 60, 40


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of use."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module; its attribute `command` is the command."""
        if cmd_name not in _COMMANDS:
            return None
        return importlib.import_module(_COMMANDS[cmd_name][0]).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; an unknown name gets a suggestion."""
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, prog_name="timeball")
def cli() -> None:
    """Timeball runs scheduled jobs from a shared database: any number of instances, each tick fires once.

    Every command works straight on the database: --db URL, or TIMEBALL_DATABASE_URL, or timeball.toml;
    by default sqlite:///timeball.db in the current folder.
    """


def main() -> None:
    """The program `timeball`."""
    try:
        for argument in sys.argv[1:]:
            check_storable("an argument", argument)
        status = cli.main(standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(2 if isinstance(error, click.UsageError) else 1)
    except TimeballError as error:
        _show(error)
        sys.exit(exit_status(error))
    except OSError as error:
        _cannot_write(error)
        sys.exit(1)


def _cannot_write(error: OSError) -> None:
    """The reader has gone, or the disk is full: say so, and let the interpreter not try it once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        where = f"{error.filename}: " if error.filename else "cannot write: "
        click.echo(_printable(f"error: {where}{error.strerror or error}"), err=True)


def exit_status(error: TimeballError) -> int:
    """The exit status of an error's class."""
    for kind, status in ((InvalidInput, 2), (NotFound, 3), (Conflict, 4)):
        if isinstance(error, kind):
            return status
    return 1


def _show(error: TimeballError) -> None:
    position = error.position if isinstance(error, ScheduleError) else None
    if "--json" in sys.argv:
        body = {"code": error.code, "message": error.message, "position": position, "hint": error.hint}
        click.echo(json.dumps({"error": {**body, "field": error.field}}))
        return
    click.echo(_printable(f"error: {error.message}"), err=True)
    if isinstance(error, ScheduleError) and error.text is not None and position is not None:
        click.echo(_printable(pointed(error.text, position)), err=True)
    if error.hint:
        click.echo(_printable(f"hint:  {error.hint}"), err=True)


def pointed(text: str, position: int) -> str:
    """A schedule with a caret under the place where the trouble begins; of a long one the part around it."""
    begin = max(0, position - SHOWN_BEFORE)
    shown = text[begin : position + SHOWN_BEHIND].replace("\n", " ").replace("\t", " ")
    return f"       {shown}\n       {' ' * (position - begin)}^"


def _printable(text: str) -> str:
    """What was given may hold bytes that are no characters."""
    return text.encode("utf-8", "backslashreplace").decode()
