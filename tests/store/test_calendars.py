"""A job with a calendar on whole instances: what runs, and that the audit recomputes it from the versions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import HostClock
from tests.store.stepped import Bench
from timeball.clock import parse_instant
from timeball.service.audit import audit

MINUTE = 60_000_000


@pytest.fixture
def bench(with_schema: None, database_url: str, host_clock: HostClock) -> Iterator[Bench]:
    made = Bench(database_url, host_clock)
    yield made
    made.close()


def test_closed_ticks_get_no_run_and_the_audit_is_clean_across_a_change_of_the_calendar(bench: Bench) -> None:
    bench.set_clock("2031-03-03T11:58:30Z")
    bench.jobs.create("job", bench.define("* * * * *", calendar={"exclude": ["12:00-12:03"]}))
    one = bench.instance("one")

    def go_to(text: str) -> None:
        while bench.now() < parse_instant(text):
            bench.move_clock(10_000_000)
            bench.round(one)

    go_to("2031-03-03T12:04:30Z")
    bench.jobs.edit("job", bench.define("* * * * *", calendar={"exclude": ["12:06-12:08"]}))
    go_to("2031-03-03T12:09:30Z")
    start = parse_instant("2031-03-03T12:00:00Z")
    minutes = sorted({(run.due_at - start) // MINUTE for run in bench.runs("job") if run.due_at < start + 9 * MINUTE})
    assert minutes == [-1, 3, 4, 5, 8]
    report = audit(bench.store, "default", until=start + 8 * MINUTE)
    assert (report.clean, report.ticks) == (True, 5)


def test_without_the_calendar_of_its_version_the_audit_would_miss_the_closed_ticks(bench: Bench) -> None:
    bench.set_clock("2031-03-03T11:58:30Z")
    definition = bench.define("* * * * *", calendar={"exclude": ["12:00-12:03"]})
    bench.jobs.create("job", definition)
    one = bench.instance("one")
    while bench.now() < parse_instant("2031-03-03T12:05:30Z"):
        bench.move_clock(10_000_000)
        bench.round(one)
    bench.administer("UPDATE timeball_job_version SET definition = REPLACE(definition, '12:00-12:03', '23:00-23:03')")
    report = audit(bench.store, "default")
    assert [violation.kind for violation in report.violations] == ["without-fate"] * 3
