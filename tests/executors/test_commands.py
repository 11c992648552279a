"""Commands: real processes, each ending with a record that says so in words."""

from __future__ import annotations

import json
import re
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.instances import eventually
from tests.executors.bench_of_work import Outcomes, make_work, output_of
from tests.executors.processes import alive, below, launcher_of, names_below, zombies
from timeball.executors.command.executor import CommandExecutor
from timeball.executors.command.link import CAN_ADOPT, Link
from timeball.model.run import Outcome
from timeball.model.states import State


@pytest.fixture(params=[False, True] if CAN_ADOPT else [True], ids=lambda plain: "plain" if plain else "adopting")
def link(request: pytest.FixtureRequest) -> Link:
    """Both ways of keeping commands: with a subreaper, and as it is where there is none."""
    return Link(plain=request.param)


@pytest.fixture
def executor(link: Link) -> Iterator[CommandExecutor]:
    made = CommandExecutor(("*",), 65_536, 0.3, link=link)
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
    outcome = shell(executor, "sleep 60 & echo $!; wait", timeout=1)
    assert (outcome.state, outcome.reason) == (State.TIMED_OUT, "timeout")
    assert str(outcome.error).startswith("timed out after 1 s")
    assert not alive(int(output_of(outcome, "stdout")))


def test_a_command_that_ignores_term_is_killed_after_the_grace(executor: CommandExecutor) -> None:
    outcome = shell(executor, "trap '' TERM; echo ready; while :; do sleep 0.1; done", timeout=1)
    assert outcome.state is State.TIMED_OUT
    assert re.fullmatch(r"timed out after 1 s; ignored TERM for \d\.\d s, killed", outcome.error or "")
    assert outcome.ended_at - outcome.begun_at >= 1_250_000


def test_a_cancelled_command_says_by_whom(executor: CommandExecutor, link: Link) -> None:
    outcomes = Outcomes()
    work = make_work("command", {"argv": ["/bin/sleep", "60"]})
    executor.submit([work], outcomes)
    eventually(lambda: names_below(link.pid()).count("sleep") == 1)
    assert executor.cancel(work.run_id, "cancelled by anna")
    outcome = outcomes.wait(work)[0]
    assert (outcome.state, outcome.error) == (State.CANCELLED, "cancelled by anna")
    eventually(lambda: not executor.running())  # it is forgotten a moment after its report
    assert not executor.cancel(work.run_id, "again")


def test_a_command_that_is_cancelled_before_its_launcher_is_there_never_begins(
    executor: CommandExecutor, tmp_path: Path
) -> None:
    outcomes = Outcomes()
    work = make_work("command", {"argv": ["/bin/sh", "-c", f"touch {tmp_path}/begun; sleep 60"]})
    executor.submit([work], outcomes)
    executor.cancel(work.run_id, "cancelled by anna")
    outcome = outcomes.wait(work)[0]
    assert outcome.state is State.CANCELLED
    assert outcome.error == (
        "cancelled by anna; it had not begun" if not list(tmp_path.iterdir()) else "cancelled by anna"
    )


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
    assert (outcome.state, outcome.reason) == (State.SUCCEEDED, "left-behind")
    assert str(outcome.error).startswith("left 1 process behind, ")
    assert not alive(int(output_of(outcome, "stdout")))


def test_a_command_that_closes_its_output_and_lives_on_is_waited_for(executor: CommandExecutor) -> None:
    outcome = shell(executor, "exec >&- 2>&-; sleep 0.3; exit 7")
    assert outcome.error == "exit code 7"


def test_binary_output_becomes_harmless_text(executor: CommandExecutor) -> None:
    outcome = shell(executor, r"printf '\377\000\033[31mred'")
    assert output_of(outcome, "stdout") == "\ufffd\\x00\\x1b[31mred"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"argv": ["/no/such/program"]}, "'/no/such/program' is not there"),
        ({"argv": ["no-such-program"]}, "'no-such-program' is not there, in no folder of its PATH"),
        ({"argv": ["{folder}/not-executable"]}, "is not executable: permission denied"),
        (
            {"argv": ["not-executable"], "env": {"PATH": "{folder}"}},
            "'not-executable' is not executable: permission denied for '{folder}/not-executable'",
        ),
        ({"argv": ["{folder}/no-program"]}, "neither a program nor a script"),
        ({"argv": ["{folder}/no-interpreter"]}, "is there, but not the interpreter that its first line names"),
        ({"argv": ["{folder}"]}, "is not executable: permission denied"),
        ({"argv": ["/bin/true"], "cwd": "/no/such/folder"}, "its working directory '/no/such/folder' is not there"),
        ({"argv": ["/bin/true"], "cwd": "/bin/true"}, "its working directory '/bin/true' is no folder"),
        ({"argv": ["/bin/true"], "user": "nobody-of-that-name"}, "no user 'nobody-of-that-name'"),
    ],
)
def test_what_cannot_be_started_fails_in_words(
    executor: CommandExecutor, tmp_path: Path, target: dict[str, object], words: str
) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    for name, text in (("no-program", "echo\n"), ("no-interpreter", "#!/no/such/shell\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    target = json.loads(json.dumps(target).replace("{folder}", str(tmp_path)))
    outcomes = Outcomes()
    work = make_work("command", target)
    executor.submit([work], outcomes)
    outcome = outcomes.wait(work)[0]
    assert (outcome.state, outcome.reason) == (State.FAILED, "start")
    assert words.replace("{folder}", str(tmp_path)) in (outcome.error or "")


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


def test_two_hundred_commands_at_once_leave_nothing_behind(executor: CommandExecutor, link: Link) -> None:
    shell(executor, "true")
    launcher = launcher_of(link)
    eventually(lambda: not below(launcher) and not zombies(launcher))
    before = descriptors(), threading.active_count(), descriptors(launcher)
    outcomes = Outcomes()
    works = [make_work("command", {"argv": ["/bin/sleep", "0.2"]}) for _ in range(200)]
    executor.submit(works, outcomes)
    assert {outcome.state for outcome in outcomes.wait(*works)} == {State.SUCCEEDED}
    shell(executor, "true")
    assert (descriptors(), threading.active_count()) == before[:2]
    eventually(lambda: not below(launcher) and descriptors(launcher) <= before[2])
    assert zombies() == []
    eventually(lambda: zombies(launcher) == [])


def test_a_command_holds_its_three_streams_and_nothing_of_ours(executor: CommandExecutor) -> None:
    lines = output_of(shell(executor, "for each in /proc/self/fd/*; do readlink $each; done"), "stdout").splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("pipe:") or line == "/dev/null" for line in lines), lines


def test_the_end_of_an_executor_ends_its_launcher(link: Link) -> None:
    executor = CommandExecutor(("*",), 1000, 0.3, link=link)
    shell(executor, "true")
    launcher = launcher_of(link)
    assert executor.close(1) == ()
    eventually(lambda: not alive(launcher))
    assert zombies() == []


def descriptors(pid: int | str = "self") -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
