"""Guards of leadership, membership and planning."""

from __future__ import annotations

from tests.guards.catalogue import ANY, POSTGRESQL, guard

_LEAD = "races/test_leadership.py::"
_PLAN = "races/test_changes_and_plans.py::"
_BOOT = "store/test_reboot.py::"
_LOCAL = "races/test_local_deadlines.py::"
_SCHEMA = "store/test_schema_changes.py::"

LEADERS = (
    guard(
        "a heartbeat looks at the schema",
        "I35",
        ("store/members.py", "            prove_revision(tx)\n", ""),
        tests=_SCHEMA
        + "test_an_instance_that_meets_a_schema_it_cannot_work_on_stands_still_says_so_once_and_goes_on_after",
    ),
    guard(
        "nothing is written into a schema that is refused",
        "I35",
        ("store/database.py", "if self.refusal is not None and not any_schema:", "if any_schema and not any_schema:"),
        tests=_SCHEMA + "test_no_verb_of_an_instances_store_writes_into_a_schema_of_another_version",
    ),
    guard(
        "a leader's transaction proves its term",
        "I7",
        ("store/leases.py", "epoch=term.epoch) is None:", "epoch=term.epoch) == ():"),
        tests=_LEAD + "test_a_leader_who_comes_after_the_takeover_does_no_leaders_work",
    ),
    guard(
        "the proof asks for the lease's end",
        "I6 I7",
        ("store/leases.py", "AND expires_at > {d.now} {d.lock_shared}", "{d.lock_shared}"),
        tests="store/test_conformance_fences.py::test_a_lease_that_ran_out_proves_nothing_even_when_nobody_took_it",
    ),
    guard(
        "the proof locks the lease against a change of hands",
        "I6 I7",
        ("store/leases.py", "AND expires_at > {d.now} {d.lock_shared}", "AND expires_at > {d.now}"),
        tests=_LEAD + "test_a_change_of_hands_during_a_leaders_transaction_waits_for_its_end",
        database=POSTGRESQL,
    ),
    guard(
        "the lease row is locked before the clock is read",
        "I6",
        ("store/leases.py", "WHERE namespace = :namespace {d.lock}", "WHERE namespace = :namespace"),
        tests=_LEAD + "test_a_renewal_that_waited_for_the_row_has_its_whole_lifetime_from_then_on",
        database=POSTGRESQL,
    ),
    guard(
        "the clock moves inside a transaction",
        "I6 I40",
        ("store/postgresql.py", "EXTRACT(EPOCH FROM clock_timestamp())", "EXTRACT(EPOCH FROM now())"),
        tests=_LEAD + "test_a_renewal_that_waited_for_the_row_has_its_whole_lifetime_from_then_on",
        database=POSTGRESQL,
    ),
    guard(
        "a lease that is valid is nobody else's",
        "I6",
        (
            "store/leases.py",
            "((lease.valid and not abandoned) or not self._is_member(tx, holder))",
            "not self._is_member(tx, holder)",
        ),
        tests=_LEAD + "test_the_second_of_two_takeovers_gets_no_term",
    ),
    guard(
        "only a member takes the lease",
        "I6 I9",
        (
            "store/leases.py",
            "((lease.valid and not abandoned) or not self._is_member(tx, holder))",
            "(lease.valid and not abandoned)",
        ),
        tests="store/test_conformance.py::test_an_instance_that_was_given_up_cannot_lead",
    ),
    guard(
        "a release names holder and epoch",
        "I7",
        (
            "store/leases.py",
            'SET holder = NULL, expires_at = :at "\n            "WHERE namespace = :namespace AND holder = :holder '
            "AND epoch = :epoch",
            'SET holder = NULL, expires_at = :at "\n            "WHERE namespace = :namespace',
        ),
        tests=_LEAD + "test_a_release_that_comes_after_the_takeover_frees_nothing",
    ),
    guard(
        "the lease has a local deadline",
        "I8 I27",
        ("engine/lease.py", " or self._clock.monotonic() >= self._trusted_until", ""),
        tests=_LOCAL + "test_a_leader_that_hears_nothing_stops_leading_before_its_lease_ends",
    ),
    guard(
        "the lease's local deadline counts from when the renewal was sent",
        "I8",
        (
            "engine/lease.py",
            "self._trusted_until = sent + self._lifetime_us",
            "self._trusted_until = self._clock.monotonic() + self._lifetime_us",
        ),
        tests=_LOCAL + "test_a_leader_that_hears_nothing_stops_leading_before_its_lease_ends",
    ),
    guard(
        "the lease's local deadline keeps a margin",
        "I8",
        ("engine/lease.py", "sent + self._lifetime_us - self._margin_us", "sent + self._lifetime_us"),
        tests=_LOCAL + "test_a_leader_that_hears_nothing_stops_leading_before_its_lease_ends",
    ),
    guard(
        "a membership has a local deadline",
        "I8 I27",
        (
            "engine/member.py",
            "return self.joined and self._clock.monotonic() < self._trusted_until",
            "return self.joined",
        ),
        tests=_LOCAL + "test_a_member_that_hears_nothing_believes_in_itself_no_longer_than_the_others_do",
    ),
    guard(
        "three renewals fit into a lease",
        "I10",
        ("settings.py", "s.lease_renew_seconds * 3 <= s.lease_seconds", "s.lease_renew_seconds > 0"),
        tests="unit/test_values.py::test_lease_006_a_setting_that_breaks_a_guarantee_is_refused",
        database=ANY,
    ),
    guard(
        "an instance's id is random",
        "I9 I40",
        ("engine/member.py", "id=uuid.uuid4().hex", 'id=uuid.uuid5(uuid.NAMESPACE_DNS, self._settings.name or "").hex'),
        tests="store/test_behaviour_rows.py"
        "::test_lease_002_instances_of_one_host_and_name_are_different_holders_and_run_a_tick_once",
    ),
    guard(
        "a heartbeat after the expiry is refused",
        "I9 I14",
        (
            "store/members.py",
            "handlers = :handlers WHERE id = :id AND state IN ('active', 'draining')",
            "handlers = :handlers WHERE id = :id",
        ),
        tests=_LEAD + "test_a_heartbeat_that_comes_after_the_expiry_is_refused",
    ),
    guard(
        "only members whose time has run out are given up (both looks)",
        "I14",
        ("store/reaps.py", "AND expires_at < {d.now} ORDER BY", "ORDER BY"),
        ("store/reaps.py", "AND expires_at < {d.now} RETURNING id", "RETURNING id"),
        tests=_LEAD + "test_a_member_whose_time_has_not_come_is_not_given_up",
    ),
    guard(
        "after an outage all members get another lifetime",
        "I14 I29",
        ("store/leases.py", "if vacant or outage:", "if False:"),
        tests="store/test_outages.py::test_a_lease_that_lay_vacant_shows_an_outage_and_a_freed_one_does_not",
    ),
    guard(
        "a leader that could not ask gives nobody up",
        "I14 I29",
        ("engine/reaper.py", " or not self._lease.reaching()", ""),
        tests="store/test_outages.py"
        "::test_a_leader_that_could_not_ask_gives_nobody_up_until_it_has_asked_and_all_had_time",
    ),
    guard(
        "a tick is unique",
        "I1 I40",
        ("store/plans.py", "ON CONFLICT (job_id, due_at, salt) DO NOTHING", ""),
        (
            "store/migrations/versions/0001_core.py",
            'sa.UniqueConstraint("job_id", "due_at", "salt", name="timeball_run_tick"),',
            "",
        ),
        tests=_PLAN + "test_a_tick_that_is_a_run_already_is_no_second_run_though_the_cursor_was_set_back",
    ),
    guard(
        "a tick that is a run already does not stop the plan",
        "I1 I5",
        ("store/plans.py", "ON CONFLICT (job_id, due_at, salt) DO NOTHING", ""),
        tests=_PLAN + "test_a_plan_that_comes_after_the_skip_of_its_tick_leaves_the_tick_skipped",
    ),
    guard(
        "a plan names the cursor it began at",
        "I3 I4",
        (
            "store/plans.py",
            "timeball_job.version = v.version AND timeball_job.cursor_at = v.before",
            "timeball_job.version = v.version",
        ),
        tests=_PLAN + "test_the_second_plan_from_one_cursor_neither_adds_ticks_nor_moves_the_cursor_back",
    ),
    guard(
        "a plan names the version it was made for",
        "I19 I22",
        (
            "store/plans.py",
            "timeball_job.version = v.version AND timeball_job.cursor_at = v.before",
            "timeball_job.cursor_at = v.before",
        ),
        tests=_PLAN + "test_a_plan_that_comes_after_the_edit_writes_nothing",
    ),
    guard(
        "only active jobs are planned",
        "I19",
        ("store/plans.py", "AND timeball_job.state = 'active' RETURNING", "RETURNING"),
        tests=_PLAN + "test_a_plan_that_comes_after_its_job_was_set_aside_writes_nothing",
    ),
    guard(
        "the boundary of an edit lies after what was decided early",
        "I1 I22",
        ("store/changes.py", "boundary = at if early is None else early[0]", "boundary = at"),
        tests="races/test_instances.py::test_an_edit_does_not_plan_a_tick_again_that_was_skipped_a_moment_before_it",
    ),
    guard(
        "a start of the cluster waits for the dead to be given up",
        "I29",
        ("store/reboots.py", "if tx.one(self._unburied, **seen) is not None:", "if False:"),
        tests=_BOOT + "test_an_outage_is_no_start_although_an_instance_joins_when_it_ends",
    ),
    guard(
        "a sign of life from before is no start of the cluster",
        "I34",
        ("store/reboots.py", "if tx.one(self._alive_since, **seen) is not None:", "if False:"),
        tests=_BOOT + "test_who_leaves_after_the_other_has_joined_was_there",
    ),
    guard(
        "who comes back is no start of the cluster",
        "I34",
        ("engine/member.py", "first=not self._has_joined", "first=True"),
        tests=_BOOT + "test_a_pause_of_the_only_instance_is_no_start",
    ),
    guard(
        "a start of the cluster counts once",
        "I1",
        ("store/reboots.py", "SET counted_at = :at WHERE", "SET counted_at = NULL WHERE"),
        tests=_BOOT + "test_the_first_instance_runs_it_at_once_and_the_next_ones_do_not",
    ),
)
