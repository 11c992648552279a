"""`timeball doctor`."""

from __future__ import annotations

import click

from timeball.cli.context import Context, common, table
from timeball.service.doctor import Verdict, examine
from timeball.store import open_store

EXIT_FAIL = 1


@click.command(name="doctor")
@common
def command(context: Context) -> None:
    """Check that the database is what the promises need. Leaves nothing behind. Exit status 1 when a check fails."""
    settings = context.settings
    store = open_store(settings.database_url, coordination_timeout_seconds=settings.coordination_timeout_seconds)
    try:
        store.database.must_exist()
        findings = examine(store, settings)
        url = store.database.safe_url
    finally:
        store.close()
    failed = any(finding.verdict is Verdict.FAIL for finding in findings)
    document = {"database": url, "ok": not failed, "checks": [finding.to_json() for finding in findings]}
    rows = [(f.check, f.verdict.value, f.found, f.right) for f in findings]
    context.show(document, lambda: table(("CHECK", "VERDICT", "FOUND", "RIGHT WOULD BE"), rows, empty=""))
    if failed:
        click.get_current_context().exit(EXIT_FAIL)
