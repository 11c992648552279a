"""`timeball audit`."""

from __future__ import annotations

import click

from timeball.cli.context import Context, common, instant_option, table
from timeball.errors import InvalidInput
from timeball.service.audit import Report, audit

EXIT_VIOLATION = 1


@click.command(name="audit")
@click.option("--job", metavar="NAME", help="Only this job.")
@click.option("--since", metavar="T", help="From this instant: RFC 3339, or an age like 15m (default: all there is).")
@click.option("--until", metavar="T", help="Up to this instant (default: now).")
@common
def command(context: Context, job: str | None, since: str | None, until: str | None) -> None:
    """Recompute every tick of a period and compare it with the ledger. Exit status 1 when a promise was broken."""
    store = context.parts.store
    clock = store.members.clock
    first, last = instant_option(since, "since", clock), instant_option(until, "until", clock)
    if first is not None and (clock() if last is None else last) <= first:
        raise InvalidInput("the period is empty: --since must lie before --until", field="since")
    report = audit(store, context.settings.namespace, job=job, since=first, until=last)
    context.show(report.to_json(), lambda: show_report(report))
    if not report.clean:
        click.get_current_context().exit(EXIT_VIOLATION)


def show_report(report: Report) -> None:
    """The verdict, then the figures, then each violation."""
    document = report.to_json()
    late = document["late"]
    assert isinstance(late, dict)
    verdict = "every tick has exactly one fate" if report.clean else "VIOLATIONS"
    click.echo(click.style(verdict, fg="green" if report.clean else "red", bold=True))
    names = ("jobs", "ticks", "runs", "duplicates", "missed", "skipped", "open", "without_fate", "extra")
    rows = [(name.replace("_", " "), document[name]) for name in names]
    rows += [(f"late {key[:-3]}", "-" if value is None else f"{value:.1f} ms") for key, value in late.items()]
    job = f" ({report.worst_gap_job})" if report.worst_gap_job is not None else ""
    rows.append(("worst gap between starts of one job", f"{report.worst_gap_us / 1000:.1f} ms{job}"))
    table(("WHAT", "HOW MANY"), rows, empty="")
    if not report.led and report.open:
        click.echo("nobody leads, or has led for long enough: open ticks get their fate from the next leader")
    for violation in report.violations:
        click.echo(f"{violation.kind}: {violation.job} {violation.to_json()['due_at']}: {violation.detail}")
    if report.more_violations:
        click.echo(f"and {report.more_violations} more")
