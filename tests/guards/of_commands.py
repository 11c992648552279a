"""Guards of commands: what of them is ended, when that is told, and what becomes of them without their instance."""

from __future__ import annotations

from tests.guards.catalogue import ANY, guard

_TREE = "executors/test_command_trees.py::"
_KEEPER = "executors/command/keeper.py"
_LAUNCHER = "executors/command/launcher.py"

COMMANDS = (
    guard(
        "a keeper adopts the orphans of its command",
        "I18",
        (_KEEPER, "            prctl(PR_SET_CHILD_SUBREAPER, 1)\n", ""),
        tests=_TREE + "test_shell_001_a_time_out_ends_children_in_sessions_of_their_own_before_it_is_told",
        database=ANY,
    ),
    guard(
        "a command has ended when nothing that came from it is left",
        "I18",
        (
            _KEEPER,
            "            if not pid:\n                return False",
            "            if not pid:\n                return self._exited_at is not None",
        ),
        tests=_TREE + "test_a_success_that_leaves_what_ignores_term_says_so",
        database=ANY,
    ),
    guard(
        "what a command leaves behind is asked to end",
        "I18",
        ("executors/command/process.py", "        if count:\n            self._terminate()\n", ""),
        tests=_TREE + "test_what_a_command_leaves_behind_is_ended_and_told",
        database=ANY,
    ),
    guard(
        "what forks while it is killed is killed again",
        "I18",
        (
            _KEEPER,
            "            if self._killing:\n                self._kill()",
            "            if self._killing and self._pause_ms <= 2 * KILL_PAUSE_MS:\n                self._kill()",
        ),
        tests=_TREE + "test_what_forks_and_forks_is_ended",
        database=ANY,
    ),
    guard(
        "a stopped command is woken so that it can end",
        "I18",
        (_KEEPER, "                self._signal(signal.SIGCONT)", "                pass"),
        tests=_TREE + "test_a_stopped_command_is_ended_all_the_same",
        database=ANY,
    ),
    guard(
        "a signal goes only to what still descends from the command",
        "I18",
        ("executors/command/tree.py", "if parent in known and state not in", "if state not in"),
        tests=_TREE + "test_a_process_that_took_the_number_of_another_is_not_signalled",
        database=ANY,
    ),
    guard(
        "keepers see the death of the instance itself",
        "I18",
        (_LAUNCHER, "self._instance = os.pidfd_open(instance)", "self._instance = None"),
        tests=_TREE + "test_nothing_survives_an_instance_that_is_killed[copied]",
        database=ANY,
    ),
    guard(
        "keepers see that the instance lets go, where they cannot see its death",
        "I18",
        (_KEEPER, "        if not orders:\n            self._abandon()\n", ""),
        tests=_TREE + "test_where_no_process_can_adopt_the_group_dies_with_the_instance",
        database=ANY,
    ),
    guard(
        "the kernel kills a command whose keeper is killed",
        "I18",
        ("executors/command/child.py", "        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)", "        pass"),
        tests=_TREE + "test_a_command_dies_when_its_launcher_and_then_its_keeper_is_killed",
        database=ANY,
    ),
    guard(
        "the launcher ends what a killed keeper leaves, before that is told",
        "I18",
        (_LAUNCHER, "self._bereaved.append(control)", "control.close()"),
        tests=_TREE + "test_a_keeper_that_is_killed_fails_its_run_and_leaves_nothing",
        database=ANY,
    ),
    guard(
        "launcher and keepers outlive a signal to all processes",
        "I18",
        (
            "executors/command/child.py",
            "frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE})",
            "frozenset({signal.SIGPIPE})",
        ),
        tests=_TREE + "test_signals_to_the_whole_group_leave_launcher_and_keepers_to_the_instance",
        database=ANY,
    ),
    guard(
        "a command that was cancelled before it began never begins",
        "I18",
        (_KEEPER, "if not self._asked_to_end() else", "if True else"),
        tests="executors/test_commands.py::test_a_command_that_is_cancelled_before_its_launcher_is_there_never_begins",
        database=ANY,
    ),
)
