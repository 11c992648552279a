"""What may stand in a command's target, what the operator lets run, and what a command finds itself in."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executors.bench_of_work import Outcomes, make_work, output_of
from timeball.errors import TargetError
from timeball.executors.command.account import NoSuchAccount, user_of
from timeball.executors.command.executor import CommandExecutor
from timeball.executors.command.target import read_target
from timeball.model.run import Outcome
from timeball.model.states import State

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


@pytest.fixture
def executor() -> Iterator[CommandExecutor]:
    made = CommandExecutor(("*",), 65_536, 0.3, shell=True)
    yield made
    assert made.close(2) == ()


def run(executor: CommandExecutor, script: str, **target: object) -> Outcome:
    outcomes, work = Outcomes(), make_work("command", {"argv": ["/bin/sh", "-c", script], **target})
    executor.submit([work], outcomes)
    return outcomes.wait(work)[0]


def says(executor: CommandExecutor, script: str, **target: object) -> str:
    outcome = run(executor, script, **target)
    assert outcome.state is State.SUCCEEDED, outcome
    return output_of(outcome, "stdout").strip()


@pytest.mark.parametrize(
    ("target", "field", "words"),
    [
        ({}, "argv", "needs argv"),
        ({"argv": []}, "argv", "a list with at least the executable"),
        ({"argv": "echo"}, "argv", "a list with at least the executable"),
        ({"argv": ["echo", 1]}, "argv", "must be text"),
        ({"argv": [" "]}, "argv", "empty executable"),
        ({"argv": ["echo", "a\x00b"]}, "argv", "NUL"),
        ({"argv": ["echo", "b"], "shell": True}, "argv", "one text"),
        ({"argv": ["echo"], "shell": "yes"}, "shell", "true or false"),
        ({"argv": ["echo"], "comand": 1}, "comand", "no 'comand'"),
        ({"argv": ["echo"], "cwd": "here"}, "cwd", "absolute path"),
        ({"argv": ["echo"], "env": {"A=B": "c"}}, "env", "not a name"),
        ({"argv": ["echo"], "env": {"VERSION": 1.10}}, "env", "quotes"),
        ({"argv": ["echo"], "env": {"TIMEBALL_FENCE": "1"}}, "env", "Timeball sets"),
        ({"argv": ["echo"], "umask": 27}, "umask", "octal"),
        ({"argv": ["echo"], "umask": "999"}, "umask", "octal"),
        ({"argv": ["echo"], "nice": 20}, "nice", "from -20 to 19"),
        ({"argv": ["echo"], "nice": 1.5}, "nice", "whole number"),
        ({"argv": ["echo"], "limits": {"cpu": 1}}, "limits.cpu", "cpu_seconds"),
        ({"argv": ["echo"], "limits": {"cpu_seconds": 0}}, "limits.cpu_seconds", "from 1"),
        ({"argv": ["echo"], "limits": {"memory_bytes": 1000}}, "limits.memory_bytes", "from 1048576"),
        ({"argv": ["echo"], "user": 0}, "user", "must be text"),
        ({"argv": ["echo"], "success_codes": [256]}, "success_codes", "from 0 to 255"),
        ({"argv": ["echo"], "success_codes": []}, "success_codes", "exit codes"),
    ],
)
def test_a_malformed_target_is_refused_with_its_field(
    executor: CommandExecutor, target: dict[str, object], field: str, words: str
) -> None:
    with pytest.raises(TargetError) as refusal:
        executor.check(target, {})
    assert refusal.value.field == f"target.{field}"
    assert words in str(refusal.value)


def test_commands_are_off_until_some_are_allowed() -> None:
    executor = CommandExecutor((), 1000, 1)
    assert executor.handlers() == ()
    with pytest.raises(TargetError, match="command_allow"):
        executor.check({"argv": ["/bin/true"]}, {})


def test_only_what_a_pattern_allows_may_run() -> None:
    executor = CommandExecutor(("/usr/bin/e*", "/bin/e*"), 1000, 1)
    executor.check({"argv": ["echo"]}, {})
    for name in ("sleep", "/bin/../bin/sleep", "/opt/echo"):
        with pytest.raises(TargetError, match="may not run here"):
            executor.check({"argv": [name]}, {})


def test_a_bare_name_allows_what_the_default_path_finds_and_no_other_file_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "echo").write_text("#!/bin/sh\necho other\n")
    (tmp_path / "echo").chmod(0o755)
    executor = CommandExecutor(("echo",), 1000, 1)
    executor.check({"argv": ["echo"]}, {})
    for target in ({"argv": ["echo"], "env": {"PATH": str(tmp_path)}}, {"argv": [f"{tmp_path}/echo"]}):
        with pytest.raises(TargetError, match="may not run here"):
            executor.check(target, {})


def test_where_not_all_may_run_no_variable_makes_one_executable_run_another() -> None:
    executor = CommandExecutor(("echo",), 1000, 1)
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV"):
        with pytest.raises(TargetError, match=name):
            executor.check({"argv": ["echo"], "env": {name: "/tmp/x"}}, {})


def test_what_may_run_is_checked_again_when_it_runs() -> None:
    executor, outcomes = CommandExecutor(("echo",), 1000, 1), Outcomes()
    work = make_work("command", {"argv": ["/bin/sleep", "0"]})
    executor.submit([work], outcomes)
    outcome = outcomes.wait(work)[0]
    assert (outcome.state, outcome.reason) == (State.FAILED, "target")
    assert "may not run here" in str(outcome.error)
    executor.close(1)


def test_what_runs_is_what_the_pattern_allowed_not_the_link_that_led_there(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("#!/bin/sh\necho $0\n")
    real.chmod(0o755)
    link.symlink_to(real)
    executor, outcomes = CommandExecutor((str(real),), 1000, 1), Outcomes()
    work = make_work("command", {"argv": [str(link)]})
    executor.submit([work], outcomes)
    assert output_of(outcomes.wait(work)[0], "stdout") == f"{real}\n"
    executor.close(1)


def test_a_text_for_the_shell_needs_the_operators_leave(executor: CommandExecutor) -> None:
    target = {"argv": ["echo a b | wc -w"], "shell": True}
    with pytest.raises(TargetError, match="command_shell_allow") as refusal:
        CommandExecutor(("*",), 1000, 1).check(target, {})
    assert refusal.value.field == "target.shell"
    outcomes, work = Outcomes(), make_work("command", target)
    executor.submit([work], outcomes)
    assert output_of(outcomes.wait(work)[0], "stdout").strip() == "2"


def test_leave_for_the_shell_alone_allows_no_list() -> None:
    executor = CommandExecutor((), 1000, 1, shell=True)
    assert executor.handlers() == ("command",)
    executor.check({"argv": ["date | wc"], "shell": True}, {})
    with pytest.raises(TargetError, match="may not run here"):
        executor.check({"argv": ["/bin/true"]}, {})


def test_an_argument_is_never_read_by_a_shell(executor: CommandExecutor, tmp_path: Path) -> None:
    outcomes, work = Outcomes(), make_work("command", {"argv": ["/bin/echo", "$HOME; `id`", f"> {tmp_path}/x"]})
    executor.submit([work], outcomes)
    assert output_of(outcomes.wait(work)[0], "stdout") == f"$HOME; `id` > {tmp_path}/x\n"
    assert list(tmp_path.iterdir()) == []


def test_folder_umask_and_niceness_are_those_of_the_target(executor: CommandExecutor, tmp_path: Path) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    said = says(executor, "touch made; pwd; umask; nice", cwd=str(tmp_path), umask="027", nice=5)
    assert said.split() == [str(tmp_path), "0027", str(min(own + 5, 19))]
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o640


def test_numbers_in_the_environment_are_their_digits(executor: CommandExecutor) -> None:
    assert says(executor, "echo $PORT", env={"PORT": 8080}) == "8080"


def test_signals_are_at_their_defaults(executor: CommandExecutor) -> None:
    said = says(executor, "grep -E 'Sig(Blk|Ign)' /proc/self/status")
    assert [int(word, 16) for word in said.split()[1::2]] == [0, 0]


def test_a_command_over_its_cpu_seconds_says_so(executor: CommandExecutor) -> None:
    outcome = run(executor, "while :; do :; done", limits={"cpu_seconds": 1})
    assert (outcome.state, outcome.reason) == (State.FAILED, "signal")
    assert "SIGXCPU" in str(outcome.error)
    assert "used more than its limit cpu_seconds of 1" in str(outcome.error)


def test_a_command_over_its_file_size_says_so(executor: CommandExecutor, tmp_path: Path) -> None:
    target = {"argv": ["/bin/dd", "if=/dev/zero", f"of={tmp_path}/x", "bs=1000", "count=9"]}
    outcomes, work = Outcomes(), make_work("command", {**target, "limits": {"file_size_bytes": 5000}})
    executor.submit([work], outcomes)
    outcome = outcomes.wait(work)[0]
    assert "wrote a file larger than its limit file_size_bytes of 5000" in str(outcome.error)
    assert (tmp_path / "x").stat().st_size == 5000


def test_a_command_gets_no_more_memory_than_its_limit(executor: CommandExecutor) -> None:
    script = "head -c 100000000 /dev/zero | tail -c 90000000 > /dev/null"
    assert says(executor, f"{script} && echo done", limits={"memory_bytes": 500_000_000}) == "done"
    outcome = run(executor, script, limits={"memory_bytes": 50_000_000})
    assert outcome.state is State.FAILED
    assert "memory" in output_of(outcome, "stderr")


@as_root
def test_another_user_is_whole_ids_groups_and_environment(executor: CommandExecutor) -> None:
    account = pwd.getpwnam("nobody")
    said = says(executor, "id -u; id -g; id -G; echo $HOME $USER; grep CapEff /proc/self/status", user="nobody")
    groups = " ".join(str(group) for group in os.getgrouplist("nobody", account.pw_gid))
    lines = said.splitlines()
    assert lines[:3] == [str(account.pw_uid), str(account.pw_gid), groups]
    assert lines[3] == f"{account.pw_dir} nobody"
    assert int(lines[4].split()[1], 16) == 0


@as_root
def test_a_folder_that_the_user_may_not_enter_is_told(executor: CommandExecutor, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    outcome = run(executor, "true", user="nobody", cwd=str(tmp_path))
    assert (outcome.state, outcome.reason) == (State.FAILED, "start")
    assert "may not be entered: permission denied" in str(outcome.error)


@as_root
def test_who_is_not_root_becomes_nobody_else() -> None:
    """As an instance that runs as `nobody` would."""
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        with pytest.raises(NoSuchAccount, match="does not run as root"):
            user_of(read_target({"argv": ["/bin/true"], "user": "daemon"}))
        assert user_of(read_target({"argv": ["/bin/true"], "user": "nobody"})) is None
    finally:
        os.seteuid(0)
