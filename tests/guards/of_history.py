"""Guards against a clock that goes back, of what retention must keep, of isolation, and of joining anew."""

from __future__ import annotations

from tests.guards.catalogue import ANY, guard

_CLOCK = "store/test_clock_goes_back.py::"
_FENCES = "store/test_conformance_fences.py::"
_ROWS = "store/test_retention_rows.py::"
_ISOLATION = "store/test_isolation.py::"
_ALONE = "if isolated or item.owner != self._member.id"
_GONE_STATES = 'f"DELETE FROM timeball_run WHERE id {ids} AND state IN {_FATES}"'

CLOCKS = (
    guard(
        "a lease of a future that is no more is followed",
        "I28",
        ("store/leases.py", "abandoned = dead is not None and same_lease(lease, dead)", "abandoned = False"),
        tests=_CLOCK + "test_a_leader_that_died_while_the_clock_was_ahead_is_followed_and_its_run_is_lost",
    ),
    guard(
        "a lease that was renewed after the last look is not abandoned",
        "I6 I28",
        ("store/leases.py", "dead is not None and same_lease(lease, dead)", "dead is not None"),
        tests=_CLOCK + "test_a_lease_that_was_renewed_after_the_last_look_is_not_abandoned",
    ),
    guard(
        "a lease that ends far ahead is watched before it is taken",
        "I6 I28",
        ("engine/lease.py", "< WATCHED_LIFETIMES * self._lifetime_us", "< 0"),
        tests=_CLOCK + "test_a_leader_with_a_longer_lease_than_ours_is_not_taken_for_dead_until_it_is",
    ),
    guard(
        "cursors follow the clock back",
        "I28",
        ("engine/planner.py", "            self._rewinder.run(term)\n", ""),
        tests=_CLOCK + "test_clock_004_jobs_go_on_at_their_real_times_and_nothing_is_repeated",
    ),
    guard(
        "a step back of the clock is seen by who leads on",
        "I28",
        ("clock.py", "self.steps_back += offset - old < -STEP_BACK_US", "self.steps_back += 0"),
        tests=_CLOCK + "test_clock_004_jobs_go_on_at_their_real_times_and_nothing_is_repeated",
    ),
    guard(
        "memberships follow the clock back",
        "I14 I28",
        ("store/reaps.py", "            tx.count(self._mend, namespace=term.namespace, tolerance=STEP_BACK_US)\n", ""),
        tests=_CLOCK + "test_a_leader_that_died_while_the_clock_was_ahead_is_followed_and_its_run_is_lost",
    ),
    guard(
        "what was missed in a future that is no more is taken back",
        "I2 I28",
        ("store/rewinds.py", "        tx.count(self._unmiss, job_id=job_id, at=at)\n", ""),
        tests=_CLOCK + "test_clock_004_jobs_go_on_at_their_real_times_and_nothing_is_repeated",
    ),
)

RETENTION = (
    guard(
        "retention by age leaves what has not ended (both looks)",
        "I36",
        ("store/purges.py", "r[2] is not None and r[2] < before", "(r[2] or 0) < before"),
        ("store/purges.py", _GONE_STATES, 'f"DELETE FROM timeball_run WHERE id {ids}"'),
        tests=_ROWS + "test_ret_004_what_has_not_ended_is_kept_however_old_it_is",
    ),
    guard(
        "retention by age leaves ticks that could be planned again",
        "I1 I36",
        ("store/purges.py", "r[3] < min(before, r[4])", "r[3] < before"),
        tests=_FENCES + "test_retention_by_age_keeps_a_tick_that_its_job_could_plan_again",
    ),
    guard(
        "retention by number leaves what is young",
        "I1 I36",
        ("store/purges.py", "AND due_at <= :until ORDER BY", "AND :until > 0 ORDER BY"),
        tests=_FENCES + "test_retention_by_count_leaves_what_is_younger_than_any_catch_up",
    ),
    guard(
        "retention by number keeps the newest",
        "I36",
        (
            "store/purges.py",
            "ORDER BY due_at DESC LIMIT :limit OFFSET :keep",
            "ORDER BY due_at LIMIT :limit OFFSET :keep",
        ),
        tests=_FENCES + "test_retention_by_count_keeps_the_newest_and_what_lives",
    ),
    guard(
        "failures are counted apart",
        "I36",
        ("store/purges.py", "for states in (_FAILURES, _OTHERS)", "for states in (_FATES,)"),
        tests=_ROWS + "test_ret_001_many_successes_do_not_push_out_the_failures",
    ),
    guard(
        "how far a history is gone is noted",
        "I2 I36",
        ("store/purges.py", "AND timeball_job.purged_until < v.until", "AND timeball_job.purged_until > v.until"),
        tests=_FENCES + "test_retention_by_count_keeps_the_newest_and_what_lives",
    ),
    guard(
        "an instance with runs in hand is not forgotten",
        "I14 I36",
        ("store/purges.py", "r.state IN ('planned', 'claimed', 'running'))", "r.state = '')"),
        tests=_FENCES + "test_retention_forgets_no_instance_that_has_a_run_in_hand",
    ),
    guard(
        "only instances that are gone are forgotten",
        "I14 I36",
        ("store/purges.py", "state IN ('expired', 'stopped') ", "state <> '' "),
        tests=_FENCES + "test_retention_forgets_no_instance_that_has_a_run_in_hand",
    ),
)

ISOLATION = (
    guard(
        "who is cut off ends its work before its membership does",
        "I1 I8",
        ("engine/isolation.py", "isolated = now >= ask_at", "isolated = False"),
        tests=_ISOLATION + "test_work_that_may_not_live_beside_another_attempt_ends_before_the_membership",
    ),
    guard(
        "work is asked to end a grace before the membership's end",
        "I8",
        ("engine/isolation.py", "self._member.trusted_until - self._grace_us", "self._member.trusted_until"),
        tests=_ISOLATION + "test_work_that_may_not_live_beside_another_attempt_ends_before_the_membership",
    ),
    guard(
        "work of an older membership ends",
        "I1 I27",
        ("engine/isolation.py", _ALONE, "if isolated"),
        tests=_ISOLATION + "test_work_of_an_older_membership_ends_though_the_present_one_is_trusted",
    ),
    guard(
        "only work that may not go on beside another attempt is ended",
        "I16",
        (
            "engine/runner.py",
            "if key not in self._isolated and item.definition.stops_when_isolated",
            "if key not in self._isolated",
        ),
        tests=_ISOLATION + "test_work_that_may_not_live_beside_another_attempt_ends_before_the_membership",
    ),
    guard(
        "what is due after the membership's end does not begin",
        "I8 I27",
        ("engine/runner.py", "elif wish is not None or not self._believes(item.owner):", "elif wish is not None:"),
        tests=_ISOLATION + "test_a_start_that_was_answered_after_the_membership_had_ended_begins_nothing",
    ),
    guard(
        "what was asked to end before its instant does not begin",
        "I1 I8",
        (
            "engine/runner.py",
            "elif wish is not None or not self._believes(item.owner):",
            "elif not self._believes(item.owner):",
        ),
        tests=_ISOLATION
        + "test_what_was_asked_to_end_while_it_waited_for_its_instant_does_not_begin_in_a_renewed_membership",
    ),
    guard(
        "a wish that comes while work is handed over is told again",
        "I8 I19",
        ("engine/runner.py", "            self._ask_again(ours)\n", ""),
        tests=_ISOLATION + "test_a_wish_that_comes_while_work_is_handed_over_is_told_once_more",
    ),
    guard(
        "the end of a membership counts for what was asked to end before",
        "I1 I8",
        ("engine/runner.py", "if key in self._isolated or", "if key in self._asked or"),
        tests=_ISOLATION + "test_what_a_person_has_asked_to_end_is_ended_by_the_end_of_the_membership_all_the_same",
    ),
    guard(
        "who was given up ends its work before it joins anew",
        "I1 I27",
        (
            "engine/engine.py",
            "        self.held.clear()\n        self.isolation.step()\n",
            "        self.held.clear()\n",
        ),
        tests=_ISOLATION + "test_who_wakes_under_a_new_id_has_ended_the_work_of_the_old_one_before_he_joins",
    ),
    guard(
        "isolated work of a job that does not rerun is not run again",
        "I16",
        (
            "policy/isolation.py",
            "(reason == ISOLATED and definition.on_lost == OnLost.RERUN)",
            "(reason == ISOLATED)",
        ),
        tests=_ISOLATION + "test_isolated_work_of_a_job_that_does_not_rerun_is_cancelled_and_says_why",
    ),
)

JOINING = (
    guard(
        "an instance whose join was never answered joins anew",
        "I9 I30",
        ("engine/member.py", "        except Duplicate:", "        except ZeroDivisionError:"),
        tests="races/test_instances.py"
        "::test_an_instance_whose_join_was_never_answered_joins_under_another_id_when_that_one_has_expired",
    ),
)

CALENDARS = (
    guard(
        "a stretch of a calendar ends where the zone's offset does",
        "I21",
        ("schedule/excluded.py", "            end = min(end, table.starts[index + 1])\n", "            pass\n"),
        tests=(
            "schedule/test_calendars.py::test_closed_ticks_are_left_out_as_a_walk_over_all_ticks_says",
            "schedule/test_calendars.py::test_rolled_ticks_move_as_a_plain_walk_moves_them",
        ),
        database=ANY,
    ),
)
HISTORY = (*CLOCKS, *RETENTION, *ISOLATION, *JOINING, *CALENDARS)
