"""`@reboot`: one run at each start of the cluster, and none because of an outage, a pause, or another instance."""

from __future__ import annotations

from typing import Any

from tests.store.stepped import Bench
from timeball.engine.engine import Engine
from timeball.model.job import JobState
from timeball.service.audit import audit
from timeball.store.database import sql

SECOND = 1_000_000
MEMBERSHIP = 10 * SECOND


def make(bench: Bench, name: str = "boot", **policies: Any) -> None:
    bench.jobs.create(name, bench.define("@reboot", **policies))


def live(bench: Bench, seconds: int, *engines: Engine) -> None:
    for _ in range(seconds):
        bench.round(*engines)
        bench.move_clock(SECOND)
    bench.round(*engines)


def leave(engine: Engine) -> None:
    engine.lease.resign("draining")
    engine.member.leave()


def starts(bench: Bench) -> int:
    return len(bench.store.reboots.counted("default", after=0, until=1 << 62))


def clean(bench: Bench) -> None:
    report = audit(bench.store, "default")
    assert report.violations == []
    assert (report.extra, report.duplicates, report.without_fate) == (0, 0, 0)


def test_the_first_instance_runs_it_at_once_and_the_next_ones_do_not(bench: Bench) -> None:
    make(bench)
    one = bench.instance("one")
    live(bench, 2, one)
    assert [run.state for run in bench.runs("boot")] == ["succeeded"]
    two = bench.instance("two")
    live(bench, 15, one, two)
    assert (len(bench.calls), starts(bench)) == (1, 1)
    assert not bench.store.reboots.asked("default")
    clean(bench)


def test_two_that_start_at_the_same_moment_run_it_once(bench: Bench) -> None:
    make(bench)
    engines = [bench.instance(name) for name in ("one", "two", "three")]
    live(bench, 15, *engines)
    assert (len(bench.calls), starts(bench)) == (1, 1)
    clean(bench)


def test_a_rolling_restart_is_no_start_of_the_cluster(bench: Bench) -> None:
    one, two = bench.instance("one"), bench.instance("two")
    live(bench, 5, one, two)
    make(bench)
    leave(one)
    three = bench.instance("three")
    live(bench, 3, two, three)
    leave(two)
    four = bench.instance("four")
    live(bench, 15, three, four)
    assert bench.calls == []
    clean(bench)


def test_who_leaves_after_the_other_has_joined_was_there(bench: Bench) -> None:
    one = bench.instance("one")
    live(bench, 5, one)
    make(bench)
    two = bench.instance("two")
    bench.move_clock(SECOND // 10)
    leave(one)
    live(bench, 15, two)
    assert bench.calls == []


def test_all_leave_and_one_starts_again(bench: Bench) -> None:
    make(bench)
    one, two = bench.instance("one"), bench.instance("two")
    live(bench, 3, one, two)
    leave(one)
    leave(two)
    bench.move_clock(60 * SECOND)
    live(bench, 2, bench.instance("three"))
    assert (len(bench.calls), starts(bench)) == (2, 2)
    clean(bench)


def test_after_a_crash_of_all_it_waits_until_the_dead_are_given_up(bench: Bench) -> None:
    make(bench)
    one, two = bench.instance("one"), bench.instance("two")
    live(bench, 3, one, two)
    three = bench.instance("three")  # at once: the dead look alive
    live(bench, 5, three)
    assert len(bench.calls) == 1
    live(bench, 30, three)
    assert (len(bench.calls), starts(bench)) == (2, 2)
    bench.move_clock(60 * SECOND)
    live(bench, 30, bench.instance("four"))  # much later: they have run out, but nobody has said so yet
    assert (len(bench.calls), starts(bench)) == (3, 3)
    clean(bench)


def test_an_outage_is_no_start_although_an_instance_joins_when_it_ends(bench: Bench) -> None:
    one, two = bench.instance("one"), bench.instance("two")
    live(bench, 5, one, two)
    make(bench)
    bench.move_clock(60 * SECOND)  # nobody could send a heartbeat, and a third was started meanwhile
    three = bench.instance("three")
    live(bench, 2, three)
    live(bench, 30, three, one, two)
    assert bench.calls == []
    assert not bench.store.reboots.asked("default")
    clean(bench)


def test_a_pause_of_the_only_instance_is_no_start(bench: Bench) -> None:
    one = bench.instance("one")
    live(bench, 5, one)
    make(bench)
    before = one.member.id
    bench.store.reaps.expire_members(one.lease.term())  # pyright: ignore[reportArgumentType]
    bench.move_clock(3 * MEMBERSHIP)
    with bench.store.database.transaction() as tx:
        tx.count(_given_up(), id=before)
    live(bench, 20, one)
    assert one.member.id != before
    assert bench.calls == []


def test_a_takeover_is_no_start(bench: Bench) -> None:
    one, two = bench.instance("one"), bench.instance("two")
    live(bench, 5, one, two)
    make(bench)
    leader, other = (one, two) if one.lease.term() is not None else (two, one)
    live(bench, 30, other)
    assert leader.member.id not in {i.id for i in bench.store.members.live("default")}
    assert bench.calls == []


def test_stopped_jobs_and_those_outside_of_their_bounds_do_not_run(bench: Bench) -> None:
    bench.set_clock("2030-06-01T12:00:00Z")
    for name, policies in (
        ("boot", {}),
        ("stopped", {}),
        ("later", {"start_at": "2031-01-01 00:00"}),
        ("now", {"start_at": "2030-01-01 00:00", "end_at": "2031-01-01 00:00"}),
    ):
        make(bench, name, **policies)
    bench.jobs.create("says-so", bench.define("0 0 1 1 *", description="like @reboot"))
    bench.jobs.stop("stopped")
    one = bench.instance("one")
    live(bench, 2, one)
    assert sorted(job for job, _ in bench.calls) == ["boot", "now"]
    bench.jobs.start("stopped")
    live(bench, 2, one)
    assert len(bench.calls) == 2
    clean(bench)


def test_an_edit_before_the_start_counts_and_one_after_it_runs_nothing_again(bench: Bench) -> None:
    bench.jobs.create("boot", bench.define("0 0 1 1 *"))
    bench.jobs.edit("boot", bench.define("@reboot"))
    one = bench.instance("one")
    live(bench, 2, one)
    bench.jobs.edit("boot", bench.define("@reboot", description="changed"))
    bench.jobs.stop("boot")
    bench.jobs.start("boot")
    live(bench, 15, one)
    assert len(bench.calls) == 1
    clean(bench)


def test_a_job_that_cannot_be_read_is_set_aside_and_the_others_run(bench: Bench) -> None:
    make(bench)
    make(bench, "broken")
    with bench.store.database.transaction() as tx:
        tx.count(_broken())
    live(bench, 2, bench.instance("one"))
    assert [job for job, _ in bench.calls] == ["boot"]
    assert bench.jobs.get("broken").state is JobState.BROKEN


def test_it_says_what_it_waits_for_and_foretells_nothing(bench: Bench) -> None:
    make(bench)
    job, ticks = bench.jobs.next_ticks("boot", 3)
    assert ticks == []
    schedule = bench.jobs.schedule_of(job)
    assert schedule.describe() == "once at each start of the cluster"
    assert schedule.describe("zh") == "集群每次启动时运行一次"


def test_the_audit_misses_a_run_that_a_start_should_have_had_and_one_that_is_too_much(bench: Bench) -> None:
    make(bench)
    one = bench.instance("one")
    live(bench, 2, one)
    with bench.store.database.transaction() as tx:
        tx.count(_sql("UPDATE timeball_run SET due_at = due_at + 1"))
    live(bench, 20, one)
    assert sorted(v.kind for v in audit(bench.store, "default").violations) == ["extra", "without-fate"]


def _sql(statement: str) -> Any:

    return sql(statement)


def _given_up() -> Any:
    return _sql("UPDATE timeball_instance SET state = 'expired' WHERE id = :id")


def _broken() -> Any:
    return _sql(
        'UPDATE timeball_job SET definition = \'{"schedule": "@reboot", "executor": 5}\' WHERE name = \'broken\''
    )
