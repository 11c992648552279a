"""Commands: real processes, each ending with a record that says so in words."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.cluster.instances import eventually
from tests.executors.bench_of_work import Outcomes, make_work, output_of
from timeball.errors import TargetError
from timeball.executors.command.executor import CommandExecutor
from timeball.model.run import Outcome
from timeball.model.states import State


@pytest.fixture
def executor() -> Iterator[CommandExecutor]:
    made = CommandExecutor(("*",), 65_536, 0.3)
    yield made
    assert made.close(2) == ()


def run(executor: CommandExecutor, *argv: str, timeout: float | None = None, **target: object) -> Outcome:
    outcomes = Outcomes()
    work = make_work("command", {"argv": list(argv), **target}, timeout=timeout)
    executor.submit([work], outcomes)
    return outcomes.wait(work)[0]


def shell(executor: CommandExecutor, script: str, timeout: float | None = None, **target: object) -> Outcome:
    return run(executor, "/bin/sh", "-c", script, timeout=timeout, **target)


def test_a_command_that_succeeds_leaves_its_output(executor: CommandExecutor) -> None:
    outcome = shell(executor, "echo out; echo err >&2")
    assert (outcome.state, outcome.reason) == (State.SUCCEEDED, None)
    assert (output_of(outcome, "stdout"), output_of(outcome, "stderr")) == ("out\n", "err\n")


def test_an_exit_code_fails_unless_it_counts_as_success(executor: CommandExecutor) -> None:
    outcome = shell(executor, "exit 3")
    assert (outcome.state, outcome.reason, outcome.error) == (State.FAILED, "exit-code", "exit code 3")
    assert shell(executor, "exit 3", success_codes=[0, 3]).state is State.SUCCEEDED


def test_a_command_that_dies_by_a_signal_says_which(executor: CommandExecutor) -> None:
    outcome = shell(executor, "kill -SEGV $$")
    assert (outcome.state, outcome.reason) == (State.FAILED, "signal")
    assert "SIGSEGV" in (outcome.error or "")


def test_a_time_out_ends_the_whole_group(executor: CommandExecutor) -> None:
    outcome = shell(executor, "sleep 60 & echo $!; wait", timeout=0.3)
    assert (outcome.state, outcome.reason) == (State.TIMED_OUT, "timeout")
    eventually(lambda: not alive(int(output_of(outcome, "stdout"))))


def test_a_command_that_ignores_term_is_killed_after_the_grace(executor: CommandExecutor) -> None:
    outcome = shell(executor, "trap '' TERM; echo ready; while :; do sleep 0.1; done", timeout=0.3)
    assert outcome.state is State.TIMED_OUT
    assert outcome.ended_at - outcome.begun_at >= 600_000


def test_a_cancelled_command_says_by_whom(executor: CommandExecutor) -> None:
    outcomes = Outcomes()
    work = make_work("command", {"argv": ["/bin/sleep", "60"]})
    executor.submit([work], outcomes)
    assert executor.cancel(work.run_id, "cancelled by anna")
    outcome = outcomes.wait(work)[0]
    assert (outcome.state, outcome.error) == (State.CANCELLED, "cancelled by anna")
    assert not executor.cancel(work.run_id, "again")


def test_two_hundred_megabytes_of_output_stay_within_the_bound(executor: CommandExecutor) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = shell(executor, "head -c 200000000 /dev/zero | tr '\\0' x; echo the end")
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    output = outcome.outputs[0]
    assert outcome.state is State.SUCCEEDED
    assert output.bytes_total == 200_000_008
    assert len(output.text) < 66_000
    assert output.text.endswith("the end\n")
    assert grown_kib < 50_000


def test_a_child_in_the_background_does_not_hold_the_run_open(executor: CommandExecutor) -> None:
    outcome = shell(executor, "sleep 60 & echo $!")
    assert outcome.state is State.SUCCEEDED
    eventually(lambda: not alive(int(output_of(outcome, "stdout"))))


def test_a_command_that_closes_its_output_and_lives_on_is_waited_for(executor: CommandExecutor) -> None:
    outcome = shell(executor, "exec >&- 2>&-; sleep 0.3; exit 7")
    assert outcome.error == "exit code 7"


def test_binary_output_becomes_harmless_text(executor: CommandExecutor) -> None:
    outcome = shell(executor, r"printf '\377\000\033[31mred'")
    assert output_of(outcome, "stdout") == "\ufffd\\x00\\x1b[31mred"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"argv": ["/no/such/program"]}, "is not there"),
        ({"argv": ["{folder}/not-executable"]}, "permission denied"),
        ({"argv": ["/bin/true"], "cwd": "/no/such/folder"}, "working directory '/no/such/folder' is not there"),
        ({"argv": ["/bin/true"], "user": "nobody-of-that-name"}, "no user 'nobody-of-that-name'"),
    ],
)
def test_what_cannot_be_started_fails_in_words(
    executor: CommandExecutor, tmp_path: Path, target: dict[str, object], words: str
) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    argv = [str(part).replace("{folder}", str(tmp_path)) for part in cast("list[str]", target["argv"])]
    outcomes = Outcomes()
    work = make_work("command", {**target, "argv": argv})
    executor.submit([work], outcomes)
    outcome = outcomes.wait(work)[0]
    assert (outcome.state, outcome.reason) == (State.FAILED, "start")
    assert words in (outcome.error or "")


def test_the_environment_is_clean_and_carries_the_run(
    executor: CommandExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_SECRET", "hidden")
    outcome = shell(executor, "env", env={"GREETING": "hello"})
    lines = output_of(outcome, "stdout").splitlines()
    assert not any("hidden" in line for line in lines)
    assert {"GREETING=hello", "TIMEBALL_JOB=a job", "TIMEBALL_FENCE=42", "TIMEBALL_ATTEMPT=1"} <= set(lines)
    assert "TIMEBALL_DUE_AT=2023-11-14T22:13:20.000000Z" in lines


def test_standard_input_is_given(executor: CommandExecutor) -> None:
    assert output_of(run(executor, "/bin/cat", stdin="from the crontab"), "stdout") == "from the crontab"


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


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"argv": []},
        {"argv": "echo"},
        {"argv": ["echo", 1]},
        {"argv": ["echo", "a\x00b"]},
        {"argv": ["echo"], "shell": True},
        {"argv": ["echo"], "env": {"A=B": "c"}},
        {"argv": ["echo"], "success_codes": [256]},
    ],
)
def test_a_malformed_target_is_refused(executor: CommandExecutor, target: dict[str, object]) -> None:
    with pytest.raises(TargetError):
        executor.check(target, {})


def test_two_hundred_commands_at_once_leave_nothing_behind(executor: CommandExecutor) -> None:
    shell(executor, "true")
    before = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    outcomes = Outcomes()
    works = [make_work("command", {"argv": ["/bin/sleep", "0.2"]}) for _ in range(200)]
    executor.submit(works, outcomes)
    assert {outcome.state for outcome in outcomes.wait(*works)} == {State.SUCCEEDED}
    shell(executor, "true")
    assert (len(list(Path("/proc/self/fd").iterdir())), threading.active_count()) == before
    assert zombies() == []


def zombies() -> list[str]:
    """Children of this process that ended and were not reaped."""
    found: list[str] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[:2]
            if state == "Z" and int(parent) == os.getpid():
                found.append(stat.parent.name)
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has reaped yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}
