"""Guards of the fence in the job's own hands."""

from __future__ import annotations

from tests.guards.catalogue import POSTGRESQL, guard

_RACE = "races/test_fences.py::"
_CHECK = "store/fences.py"

FENCES = (
    guard(
        "a loss leaves what its own transaction holds",
        "I15",
        (
            "store/reaps.py",
            "AND timeball_run.state = 'running' AND {d.unheld('timeball_run.id')} ",
            "AND timeball_run.state = 'running' ",
        ),
        tests=_RACE + "test_the_reaper_waits_until_the_transaction_that_has_checked_its_fence_ends",
        database=POSTGRESQL,
    ),
    guard(
        "a check holds its run",
        "I15",
        (_CHECK, '            run(dialect.hold(f"{run_id:d}"))\n', ""),
        tests=_RACE + "test_the_reaper_waits_until_the_transaction_that_has_checked_its_fence_ends",
        database=POSTGRESQL,
    ),
    guard(
        "a check names its attempt and its fence",
        "I15",
        (_CHECK, 'if found != ("running", attempt, fence):', 'if found is None or found[0] != "running":'),
        tests=_RACE + "test_a_check_names_its_attempt_and_its_fence",
    ),
    guard(
        "a check wants its attempt running",
        "I15",
        (_CHECK, 'if found != ("running", attempt, fence):', "if found is None or found[1:] != (attempt, fence):"),
        tests=_RACE + "test_a_check_after_the_loss_is_refused",
    ),
    guard(
        "a check by an old snapshot fails",
        "I15",
        (_CHECK, "WHERE id = {run_id:d} {dialect.lock_shared}", "WHERE id = {run_id:d}"),
        tests=_RACE + "test_a_transaction_whose_snapshot_is_older_than_the_loss_is_refused",
        database=POSTGRESQL,
    ),
    guard(
        "a check waits for nobody's end",
        "I15",
        (_CHECK, '            run(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")\n', ""),
        tests=_RACE + "test_a_transaction_that_is_left_open_holds_up_no_stop_no_cancel_and_no_end",
        database=POSTGRESQL,
    ),
    guard(
        "a check on SQLite wants a transaction",
        "I15",
        (_CHECK, "            _demand_transaction(connection)\n", ""),
        tests="store/test_fences.py::test_a_sqlite_connection_without_a_transaction_is_refused",
    ),
    guard(
        "a word on progress names its fence",
        "I15",
        ("store/progresses.py", "ON r.id = v.id AND r.fence = v.fence WHERE", "ON r.id = v.id WHERE"),
        tests="store/test_progress.py::test_the_word_of_another_attempt_is_not_kept",
    ),
)
