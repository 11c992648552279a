"""Guards of runs: claim, start, settle, loss, and the wishes of people."""

from __future__ import annotations

from tests.guards.catalogue import POSTGRESQL, guard

_START = "races/test_starts_and_claims.py::"
_END = "races/test_ends.py::"
_CHANGE = "races/test_changes_and_plans.py::"
_CALENDAR = "races/test_named_calendars.py::"
_LOCAL = "races/test_local_deadlines.py::"
_INSTANCE = "races/test_instances.py::"
NAMED = "AND timeball_run.id = v.id AND timeball_run.attempt = v.attempt "
_ORPHAN = "AND timeball_run.id = v.id AND timeball_run.attempt = v.attempt AND timeball_run.fence = v.fence "
OURS = "ours = \"state = 'claimed' AND instance_id = :me\""
_GIVE_BACK = "AND state = 'claimed' AND instance_id = :me"
SETTLED = "f\"AND timeball_run.fence = v.fence AND timeball_run.state IN ('running', 'lost')\""

RUNS = (
    guard(
        "a start takes only its own claims",
        "I1 I4 I7",
        ("store/starts.py", OURS, "ours = \"state = 'claimed'\""),
        tests=_START + "test_a_start_that_comes_after_the_reclaim_starts_nothing",
    ),
    guard(
        "a start takes only what is claimed",
        "I1 I4",
        ("store/starts.py", OURS, 'ours = "instance_id = :me"'),
        tests=_START + "test_the_second_start_of_one_claim_starts_nothing",
    ),
    guard(
        "a start looks at the job",
        "I19",
        (
            "store/starts.py",
            "AND {JOB_UNCHANGED} AND {member_valid(d.now)} RETURNING",
            "AND {member_valid(d.now)} RETURNING",
        ),
        tests=_START + "test_a_start_that_comes_after_its_job_was_set_aside_starts_nothing",
    ),
    guard(
        "a start needs a valid membership",
        "I8 I14 I27",
        ("store/starts.py", "AND {JOB_UNCHANGED} AND {member_valid(d.now)} RETURNING", "AND {JOB_UNCHANGED} RETURNING"),
        tests=_START + "test_neither_claim_nor_take_nor_start_of_an_instance_whose_membership_ran_out_gets_anything",
    ),
    guard(
        "a claim needs a valid membership",
        "I14 I27",
        ("store/claims.py", "{_picked(database, '')} AND {member_valid(d.now)} ", "{_picked(database, '')} "),
        tests=_START + "test_neither_claim_nor_take_nor_start_of_an_instance_whose_membership_ran_out_gets_anything",
    ),
    guard(
        "claim-and-start needs a valid membership",
        "I14 I27",
        (
            "store/claims.py",
            "{_picked(database, ' AND exclusive = 0')} AND {member_valid(d.now)} ",
            "{_picked(database, ' AND exclusive = 0')} ",
        ),
        tests=_START + "test_neither_claim_nor_take_nor_start_of_an_instance_whose_membership_ran_out_gets_anything",
    ),
    guard(
        "a start is not later than the misfire policy allows",
        "I23",
        ("store/starts.py", "AND start_by >= {d.now} AND {JOB_UNCHANGED}", "AND {JOB_UNCHANGED}"),
        tests=_START + "test_a_start_after_the_last_instant_for_it_starts_nothing",
    ),
    guard(
        "a start by an outdated claim is rolled back",
        "I4 I24",
        ("store/starts.py", "    if outdated:\n", "    if False:\n"),
        tests=_START + "test_a_start_of_an_old_claim_leaves_the_run_to_the_newer_claim_of_the_same_instance",
    ),
    guard(
        "starts that compete are counted one after the other",
        "I24",
        ("store/starts.py", "ORDER BY job_id {d.lock}", "ORDER BY job_id"),
        tests=_START + "test_the_second_start_of_a_job_that_must_not_overlap_waits_its_turn",
        database=POSTGRESQL,
    ),
    guard(
        "claim-and-start leaves what competes",
        "I24",
        ("store/claims.py", "{_picked(database, ' AND exclusive = 0')}", "{_picked(database, '')}"),
        tests="store/test_conformance_fences.py::test_take_leaves_what_competes_with_other_runs",
    ),
    guard(
        "a claim lasts until its deadline",
        "I1",
        ("store/claims.py", "AND (state = 'planned' OR claimable_at <= {d.now}) ", ""),
        tests=_START + "test_a_claim_whose_deadline_is_near_is_not_taken_from_its_owner",
    ),
    guard(
        "no skip is committed before its start could be",
        "I22",
        (
            "store/starts.py",
            "AND ready_at <= {d.now} + :lead RETURNING timeball_run.id, job_version",
            "RETURNING timeball_run.id, job_version",
        ),
        tests=_INSTANCE + "test_no_skip_is_committed_before_the_lead_of_a_start",
    ),
    guard(
        "a claim has a local deadline",
        "I8 I27",
        ("engine/starter.py", "live = [c for c in claims if c.deadline_at > now]", "live = list(claims)"),
        tests=_LOCAL + "test_a_claim_is_not_started_after_its_deadline_though_nobody_has_taken_it_yet",
    ),
    guard(
        "who does not trust its membership starts nothing",
        "I8 I27",
        ("engine/starter.py", "if not live or not self._member.trusted:", "if not live:"),
        tests=_LOCAL + "test_an_instance_that_does_not_trust_its_membership_claims_and_starts_nothing",
    ),
    guard(
        "who does not trust its membership claims nothing",
        "I8 I27",
        ("engine/claimer.py", "if not self._member.trusted or self._member.draining:", "if self._member.draining:"),
        tests=_LOCAL + "test_an_instance_that_does_not_trust_its_membership_claims_and_starts_nothing",
    ),
    guard(
        "a start whose commit is unknown is looked up",
        "I30",
        ("engine/starter.py", "                self.doubtful = True\n", ""),
        tests=_INSTANCE + "test_a_start_that_fails_after_its_commit_for_any_reason_is_taken_up_again",
    ),
    guard(
        "a give-back names its owner",
        "I7",
        ("store/claims.py", _GIVE_BACK, "AND state = 'claimed'"),
        tests=_START + "test_a_give_back_that_comes_after_the_reclaim_takes_nothing_away",
    ),
    guard(
        "a give-back leaves what has started",
        "I1 I20",
        ("store/claims.py", _GIVE_BACK, "AND instance_id = :me"),
        tests=_START + "test_the_give_back_that_comes_after_the_start_leaves_the_run_running",
    ),
    guard(
        "a misfire leaves what has started",
        "I13 I23",
        ("store/reaps.py", "waiting = f\"id {ids} AND state IN ('planned', 'claimed')\"", 'waiting = f"id {ids}"'),
        tests=_START + "test_the_misfire_that_comes_after_the_start_misses_nothing",
        database=POSTGRESQL,
    ),
    guard(
        "a settle names its fence",
        "I7 I13 I15",
        ("store/settles.py", SETTLED, "f\"AND timeball_run.state IN ('running', 'lost')\""),
        tests=_END + "test_a_settle_that_names_another_attempt_or_another_fence_is_refused",
    ),
    guard(
        "a settle names its attempt",
        "I7 I13 I15",
        (
            "store/settles.py",
            f'f"timeball_run.id {{ids}} {NAMED}"',
            'f"timeball_run.id {ids} AND timeball_run.id = v.id "',
        ),
        tests=_END + "test_a_settle_that_names_another_attempt_or_another_fence_is_refused",
    ),
    guard(
        "a settle names its attempt or its fence",
        "I7 I15 I40",
        (
            "store/settles.py",
            f'f"timeball_run.id {{ids}} {NAMED}"',
            'f"timeball_run.id {ids} AND timeball_run.id = v.id "',
        ),
        ("store/settles.py", SETTLED, "f\"AND timeball_run.state IN ('running', 'lost')\""),
        tests=_END + "test_a_settle_that_comes_after_the_next_attempt_has_begun_elsewhere_is_refused_and_told",
    ),
    guard(
        "an attempt ends once",
        "I13",
        ("store/settles.py", SETTLED, 'f"AND timeball_run.fence = v.fence"'),
        tests=_END + "test_the_second_ending_of_an_attempt_is_refused",
    ),
    guard(
        "an ending after the loss is marked late",
        "I13 I15",
        ("store/settles.py", "CASE WHEN timeball_run.state = 'lost' THEN 1 ELSE 0 END", "0"),
        tests=_END + "test_a_settle_that_comes_after_the_reaper_is_marked_late",
    ),
    guard(
        "starts that share a limit are counted one after the other",
        "I24",
        ("store/permits.py", "ORDER BY limit_id {d.lock}", "ORDER BY limit_id"),
        tests="races/test_limits.py::test_the_second_start_under_a_limit_waits_though_its_job_is_another",
        database=POSTGRESQL,
    ),
    guard(
        "who waits long for a limit gives the claim back",
        "I24",
        ("policy/limits.py", "return waiting[permits.name] < permits.bound", "return True"),
        tests="store/test_limits.py::test_what_waits_for_a_limit_holds_up_no_other_work",
    ),
    guard(
        "a lower limit waits for starts in flight",
        "I24",
        ("store/limits.py", "tx.all(self._lock_permit, id=before.id)", "pass"),
        tests="races/test_limits.py::test_a_start_that_comes_after_a_limit_was_lowered_is_judged_by_the_new_one",
        database=POSTGRESQL,
    ),
    guard(
        "a limit that a job is saved with stays",
        "I24",
        ("store/holds.py", "ORDER BY id {database.dialect.lock_shared}", "ORDER BY id"),
        tests="races/test_limits.py::test_a_limit_that_is_deleted_after_a_job_was_saved_with_it_stays",
        database=POSTGRESQL,
    ),
    guard(
        "an ending told again is known",
        "I30",
        ("store/settles.py", "return frozenset(accepted | written)", "return frozenset(accepted)"),
        tests=_END + "test_the_same_ending_told_twice_is_accepted_once_and_repeated_harmlessly",
    ),
    guard(
        "a further attempt looks at the job",
        "I19",
        ("store/settles.py", "AND j.version = r.job_version AND (j.state = 'active' OR r.kind <> 'scheduled')", ""),
        tests=_END + "test_a_retry_that_comes_after_the_stop_is_not_planned",
    ),
    guard(
        "only what is running is lost",
        "I13",
        ("store/reaps.py", "AND timeball_run.state = 'running' AND {d.unheld", "AND {d.unheld"),
        tests=_END + "test_the_reaper_that_comes_after_the_settle_finds_nothing",
    ),
    guard(
        "a loss names its fence",
        "I13 I14",
        ("store/reaps.py", _ORPHAN, NAMED),
        tests=_END + "test_the_reaper_that_names_another_attempt_or_another_fence_finds_nothing",
    ),
    guard(
        "a loss names its attempt",
        "I13 I14",
        ("store/reaps.py", _ORPHAN, "AND timeball_run.id = v.id AND timeball_run.fence = v.fence "),
        tests=_END + "test_the_reaper_that_names_another_attempt_or_another_fence_finds_nothing",
    ),
    guard(
        "a loss names its attempt or its fence",
        "I13 I14",
        ("store/reaps.py", _ORPHAN, "AND timeball_run.id = v.id "),
        tests=_END + "test_the_reaper_that_comes_after_the_next_attempt_has_begun_leaves_it_alone",
    ),
    guard(
        "a rerun looks at the job",
        "I19",
        (
            "store/reaps.py",
            "AND (j.state = 'active' OR (timeball_run.kind <> 'scheduled' "
            "AND j.state IN ('stopped', 'paused')))) = job_version",
            ") IS NOT NULL",
        ),
        tests=_END + "test_a_rerun_that_comes_after_the_stop_stays_lost",
    ),
    guard(
        "a stop waits for starts in flight",
        "I19",
        (
            "store/changes.py",
            "AND state IN ('planned', 'claimed', 'running') ORDER BY id {d.lock}",
            "AND state IN ('planned', 'claimed', 'running') ORDER BY id",
        ),
        tests=_CHANGE + "test_the_stop_that_comes_after_the_start_lists_the_run_as_running",
        database=POSTGRESQL,
    ),
    guard(
        "a stop waits until an early start has begun",
        "I19",
        ("service/jobs.py", "        pause_us(min(begun - result.at, EARLY_START_MAX_US))\n", ""),
        tests=_LOCAL + "test_the_answer_of_a_stop_waits_for_a_start_that_was_committed_early",
    ),
    guard(
        "a change names the version it was made for",
        "I22",
        ("store/changes.py", "if expected_version is not None and job.version != expected_version:", "if False:"),
        tests=_CHANGE + "test_the_second_of_two_edits_of_one_version_is_a_conflict",
    ),
    guard(
        "changes to a job come one after the other",
        "I22",
        ("store/changes.py", "{by_name} {d.lock}", "{by_name}"),
        tests=_CHANGE + "test_the_second_of_two_edits_of_one_version_is_a_conflict",
        database=POSTGRESQL,
    ),
    guard(
        "an idempotency key is unique",
        "I5",
        (
            "store/migrations/versions/0001_core.py",
            '["job_id", "idempotency_key"],\n        unique=True,',
            '["job_id", "idempotency_key"],\n        unique=False,',
        ),
        tests=_CHANGE + "test_the_second_trigger_with_one_key_gets_the_run_of_the_first",
        database=POSTGRESQL,
    ),
    guard(
        "an idempotency key is looked up",
        "I5",
        (
            "store/jobs.py",
            "key=idempotency_key) if idempotency_key else None",
            "key=idempotency_key) if False else None",
        ),
        tests=_CHANGE + "test_the_second_trigger_with_one_key_gets_the_run_of_the_first",
    ),
    guard(
        "a new job has what its calendar says by then",
        "I22",
        ("store/jobs.py", "            self._holds.hold(tx, namespace, definition.calendar)\n", ""),
        tests=_CALENDAR + "test_a_job_that_is_created_after_the_edit_of_its_calendar_has_the_new_rules",
    ),
    guard(
        "a changed job has what its calendar says by then",
        "I22",
        ("store/changes.py", "self._holds.hold(tx, job.namespace, change.definition.calendar)", "pass"),
        tests=_CALENDAR + "test_a_job_that_is_edited_after_the_edit_of_its_calendar_has_the_new_rules",
    ),
    guard(
        "a calendar is not edited while a job is saved with it",
        "I22",
        ("store/holds.py", 'f"{database.dialect.lock_shared}"', '""'),
        tests=_CALENDAR + "test_the_edit_of_a_calendar_that_comes_after_a_new_job_takes_it_along",
        database=POSTGRESQL,
    ),
    guard(
        "edits of a calendar come one after the other",
        "I22",
        ("store/calendars.py", " {database.dialect.lock}", ""),
        tests=_CALENDAR + "test_the_second_of_two_edits_of_one_version_of_a_calendar_is_a_conflict",
        database=POSTGRESQL,
    ),
)
