"""`timeball selftest`."""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import Callable
from types import FrameType

import click

from timeball.cli.context import Context, common, table
from timeball.clock import format_instant
from timeball.errors import InvalidInput
from timeball.selftest.checker import story_of
from timeball.selftest.faults import KILL, KINDS, PARTITION, PAUSE, ROLLING, SKEW, SLOW, read_kinds
from timeball.selftest.means import OPTIONS, read_means
from timeball.selftest.place import is_sqlite
from timeball.selftest.play import Play, Progress, Wish
from timeball.selftest.skew import find_library
from timeball.selftest.verdict import Verdict

EXIT_VIOLATION = 1
SEEDS = 2**31
LINE_EVERY_SECONDS = 10.0
KIND_SECONDS = 6.0
"""What one kind of fault needs at least, to be applied once."""
FAULTS_SERVER = ",".join((KILL, PAUSE, PARTITION, SLOW, ROLLING))
FAULTS_SQLITE = ",".join((KILL, PAUSE, ROLLING))


@click.command(name="selftest")
@click.option("--instances", type=click.IntRange(2, 50), default=5, show_default=True, help="How many instances.")
@click.option("--minutes", type=click.FloatRange(0.3, 10_000), default=10.0, show_default=True, help="How long.")
@click.option(
    "--faults",
    metavar="LIST",
    help=f"With commas: {', '.join(KINDS)} (default: those that need no command and no missing library).",
)
@click.option("--seed", type=click.IntRange(0), help="Plays the same faults at the same instants (default: random).")
@click.option("--restart-db", metavar="COMMAND", help="Restarts your server, for db-restart; no shell is used.")
@click.option("--failover-db", metavar="COMMAND", help="Ends your server and promotes its replica, for db-failover.")
@click.option("--failover-to", metavar="HOST:PORT", help="Where the replica is, for db-failover.")
@click.option("--fill-db", metavar="COMMAND", help="Fills your server's disk, for disk-full.")
@click.option("--free-db", metavar="COMMAND", help="Frees it, and starts the server if it fell; for disk-full.")
@click.option("--faketime", metavar="PATH", help="The library libfaketimeMT.so.1, for skew (default: searched for).")
@click.option("--keep", is_flag=True, help="Leave the schema or file, the evidence and the logs.")
@common
def command(
    context: Context,
    instances: int,
    minutes: float,
    faults: str | None,
    seed: int | None,
    keep: bool,
    **given: str | None,
) -> None:
    """Torture real instances on your own database, and check from outside what they did. Exit status 1: it failed.

    Works in a schema (or an SQLite file) of its own, which is removed at the end; your jobs are not touched.
    """
    url = context.settings.database_url
    sqlite = is_sqlite(url)
    kinds = read_kinds(faults or _default_faults(sqlite=sqlite), sqlite=sqlite)
    if minutes * 60 < len(kinds) * KIND_SECONDS:
        raise InvalidInput(
            f"{len(kinds)} kinds of faults do not fit into {minutes:g} minutes",
            hint=f"--minutes {len(kinds) * KIND_SECONDS / 60:g}, or fewer --faults",
            field="minutes",
        )
    wish = Wish(
        database_url=url,
        instances=instances,
        minutes=minutes,
        faults=kinds,
        seed=secrets.randbelow(SEEDS) if seed is None else seed,
        means=read_means(kinds, {option: given[option.replace("-", "_")] for option in OPTIONS}),
        keep=keep,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    click.echo(f"seed {wish.seed}: {instances} instances, {minutes:g} minutes, faults: {', '.join(kinds)}", err=True)
    verdict = Play(wish, _Line() if sys.stderr.isatty() else _Lines()).run()
    context.show(verdict.to_json(), lambda: _show(verdict))
    if not verdict.passed:
        click.get_current_context().exit(EXIT_VIOLATION)


def _default_faults(*, sqlite: bool) -> str:
    """All that can be done here without being told how."""
    if sqlite:
        return FAULTS_SQLITE
    try:
        find_library()
    except InvalidInput:
        return FAULTS_SERVER
    return f"{FAULTS_SERVER},{SKEW}"


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM ends it as Ctrl-C does: nothing is left behind."""
    raise KeyboardInterrupt


class _Line:
    """For a terminal: one line that is written over."""

    def __call__(self, progress: Progress) -> None:
        for text in progress.said:
            click.echo(f"\r\x1b[K{progress.elapsed_seconds:7.1f} s  {text}", err=True)
        click.echo(f"\r\x1b[K{_words(progress)}", nl=False, err=True)
        if progress.elapsed_seconds >= progress.length_seconds - 0.2:
            click.echo("\r\x1b[K", nl=False, err=True)


class _Lines:
    """For pipes and logs: what happens, and a line now and then."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        for text in progress.said:
            click.echo(f"{progress.elapsed_seconds:7.1f} s  {text}", err=True)
        if progress.elapsed_seconds >= self._next:
            self._next = progress.elapsed_seconds + LINE_EVERY_SECONDS
            click.echo(_words(progress), err=True)


def _words(progress: Progress) -> str:
    applied = ", ".join(f"{count} {kind}" for kind, count in sorted(progress.applied.items())) or "none yet"
    return (
        f"{progress.elapsed_seconds:7.1f} s of {progress.length_seconds:.0f}  leader {progress.leader}; "
        f"faults: {applied}; {progress.active_faults} now"
    )


def _show(verdict: Verdict) -> None:
    """The verdict, the figures, then the history of each violation."""
    word, colour = ("PASSED", "green") if verdict.passed else ("FAILED", "red")
    click.echo(f"{click.style(word, fg=colour, bold=True)}  seed {verdict.seed}")
    figures = verdict.figures_json()
    late = figures.pop("late")
    gap, job, hands = (figures.pop(name) for name in ("worst_gap_ms", "worst_gap_job", "lease_hands"))
    changes, triggers = figures.pop("changes"), figures.pop("triggers")
    assert isinstance(late, dict)
    rows: list[tuple[str, object]] = [(name.replace("_", " "), value) for name, value in figures.items()]
    rows += [(f"late {name[:-3]}", "-" if value is None else f"{value:.1f} ms") for name, value in late.items()]
    rows.append((f"worst gap between begins ({job})", f"{gap:.1f} ms"))
    rows += [("hands of the lease", hands), ("stops, starts and edits", changes), ("keys triggered by hand", triggers)]
    rows += [(f"fault {kind}", count) for kind, count in sorted(verdict.faults.items())]
    table(("WHAT", "HOW MANY"), rows, empty="")
    _each(verdict, click.echo)


def _each(verdict: Verdict, say: Callable[[str], object]) -> None:
    if verdict.violations:
        say("violations: " + ", ".join(f"{count} {rule}" for rule, count in verdict.by_rule.items()))
    for violation in verdict.told:
        where = " ".join(part for part in (violation.job, format_instant(violation.due_at)) if part)
        say(f"{violation.rule}: {where + ': ' if where else ''}{violation.detail}")
        for line in story_of(verdict.history, violation):
            say(f"    {line}")
    if len(verdict.violations) > len(verdict.told):
        say(f"and {len(verdict.violations) - len(verdict.told)} more")
