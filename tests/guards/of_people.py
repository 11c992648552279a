"""Guards of what people decide about runs: cancel, rerun, settle."""

from __future__ import annotations

from tests.guards.catalogue import POSTGRESQL, guard

_END = "races/test_ends.py::"
_RULING = "store/test_rulings.py::"

PEOPLE = (
    guard(
        "people who decide about one run come one after the other",
        "I13 I16",
        ("store/rulings.py", "FROM timeball_run WHERE id = :id {d.lock}", "FROM timeball_run WHERE id = :id"),
        tests=_END + "test_the_second_of_two_people_who_rerun_a_run_changes_nothing",
        database=POSTGRESQL,
    ),
    guard(
        "a rerun by hand waits for who changes the job",
        "I19",
        ("store/rulings.py", "FROM timeball_job WHERE id = :id {d.lock_shared}", "FROM timeball_job WHERE id = :id"),
        tests=_END + "test_a_rerun_by_hand_that_comes_after_the_stop_is_refused",
        database=POSTGRESQL,
    ),
    guard(
        "a rerun names the attempt that was seen to end",
        "I1 I16",
        (
            "store/rulings.py",
            "followed = attempt is not None and attempt < run.attempt",
            "followed = False",
        ),
        tests=_RULING + "test_orph_015_a_rerun_by_hand_and_the_clusters_own_make_one_new_attempt",
    ),
    guard(
        "only what has ended is run again by hand",
        "I1",
        ("store/rulings.py", "            self._must_have_ended(tx, job, run)\n", ""),
        tests=_END + "test_who_reruns_by_hand_after_a_late_outcome_was_taken_is_refused",
    ),
    guard(
        "a rerun by hand looks at the job",
        "I19",
        (
            "store/rulings.py",
            'if job.state in (JobState.STOPPED, JobState.PAUSED) and run.kind == "scheduled":',
            "if False:",
        ),
        tests=_END + "test_a_rerun_by_hand_that_comes_after_the_stop_is_refused",
    ),
    guard(
        "a person's word is only about what is lost",
        "I13",
        ("store/rulings.py", "if run.state is not State.LOST:", "if False:"),
        tests=_RULING + "test_only_what_is_lost_is_settled_by_hand",
    ),
    guard(
        "a person's word is none of the owner's writes",
        "I13 I30",
        (
            "store/settles.py",
            "(e.run_id, e.attempt, e.fence, e.state, e.begun_at) in found",
            "(e.run_id, e.attempt, e.fence, e.state) in {row[:4] for row in found}",
        ),
        tests=_RULING + "test_a_person_says_how_a_lost_run_ended_and_its_instance_has_no_further_word",
    ),
    guard(
        "people who backfill one range come one after the other",
        "I5",
        ("store/backfills.py", "AND live_name = :name {d.lock}", "AND live_name = :name"),
        tests="races/test_pauses.py::test_the_second_of_two_people_who_backfill_one_range_makes_no_run",
        database=POSTGRESQL,
    ),
    guard(
        "an edit lets no run of a backfill go",
        "I24",
        ("store/changes.py", "CASE WHEN claimable_at IS NULL THEN NULL ELSE ready_at END", "ready_at"),
        tests="store/test_backfills.py::test_a_stop_ends_a_backfill_and_an_edit_takes_it_along",
    ),
)
