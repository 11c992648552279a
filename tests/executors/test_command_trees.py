"""A command and all that comes from it end together, wherever its processes have put themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.instances import eventually
from tests.executors.bench_of_work import Outcomes, make_work, output_of
from tests.executors.processes import alive, below, children, launcher_of, names_below, written
from timeball.executors.command.executor import CommandExecutor
from timeball.executors.command.link import CAN_ADOPT, UNTAKEN_MAX, Link
from timeball.executors.command.tree import DescendantTree, name_of
from timeball.model.run import Outcome, Work
from timeball.model.states import State

pytestmark = pytest.mark.skipif(not CAN_ADOPT, reason="only Linux lets a process adopt orphans")
ROOT = Path(__file__).resolve().parents[2]
GRACE_SECONDS = 0.3
# An orphan in a session of its own, without the environment that it was given, that holds no stream of the command.
STRAY = "setsid env -i /bin/sh -c '{} echo $$ >> {}; while :; do /bin/sleep 0.1; done' </dev/null >/dev/null 2>&1 &"
WAITS = "; while [ ! -s {} ]; do sleep 0.05; done; "


@pytest.fixture
def link() -> Link:
    return Link()


@pytest.fixture
def executor(link: Link) -> Iterator[CommandExecutor]:
    made = CommandExecutor(("*",), 65_536, GRACE_SECONDS, link=link)
    yield made
    made.close(2)


def stray(pids: Path, *, stubborn: bool = False) -> str:
    """A script that leaves a stray process and goes on when that has written its process id."""
    return f"({STRAY.format('trap : TERM;' if stubborn else '', pids)}){WAITS.format(pids)}"


def work_of(script: str, timeout: float | None = None) -> Work:
    return make_work("command", {"argv": ["/bin/sh", "-c", script]}, timeout=timeout)


def run(executor: CommandExecutor, script: str, timeout: float | None = None) -> Outcome:
    outcomes, work = Outcomes(), work_of(script, timeout)
    executor.submit([work], outcomes)
    return outcomes.wait(work)[0]


def test_shell_001_a_time_out_ends_children_in_sessions_of_their_own_before_it_is_told(
    executor: CommandExecutor, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    outcome = run(executor, stray(pids) + "sleep 9999 & echo $!; wait", timeout=1)
    assert (outcome.state, outcome.reason, outcome.error) == (State.TIMED_OUT, "timeout", "timed out after 1 s")
    assert not [pid for pid in (*written(pids), int(output_of(outcome, "stdout"))) if alive(pid)]


def test_what_ignores_term_in_a_session_of_its_own_is_killed_before_it_is_told(
    executor: CommandExecutor, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    outcome = run(executor, stray(pids, stubborn=True) + "sleep 9999", timeout=1)
    assert outcome.state is State.TIMED_OUT
    assert str(outcome.error).startswith("timed out after 1 s; ")
    assert str(outcome.error).endswith(" of it ignored TERM, killed")
    assert not alive(written(pids)[0])


def test_what_a_command_leaves_behind_is_ended_and_told(executor: CommandExecutor, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    outcome = run(executor, stray(pids) + "exit 3")
    assert (outcome.state, outcome.reason) == (State.FAILED, "exit-code")
    assert outcome.error is not None
    assert outcome.error.startswith("exit code 3; left ")
    assert outcome.error.endswith(" behind, ended")
    assert not alive(written(pids)[0])


def test_a_success_that_leaves_what_ignores_term_says_so(executor: CommandExecutor, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    outcome = run(executor, stray(pids, stubborn=True))
    assert (outcome.state, outcome.reason) == (State.SUCCEEDED, "left-behind")
    assert str(outcome.error).endswith(" behind, which ignored TERM, killed")
    assert not alive(written(pids)[0])


def test_the_end_of_one_run_leaves_the_processes_of_another_alone(executor: CommandExecutor, tmp_path: Path) -> None:
    pids, outcomes = tmp_path / "pids", Outcomes()
    other = work_of(stray(pids) + "sleep 9999")
    executor.submit([other], outcomes)
    eventually(lambda: len(written(pids)) == 1)
    assert run(executor, "sleep 9999", timeout=0.2).state is State.TIMED_OUT
    assert alive(written(pids)[0])
    assert executor.cancel(other.run_id, "cancelled by anna")
    assert outcomes.wait(other)[0].error == "cancelled by anna"
    assert not alive(written(pids)[0])


def test_a_stopped_command_is_ended_all_the_same(executor: CommandExecutor) -> None:
    outcome = run(executor, "kill -STOP $$", timeout=0.5)
    assert (outcome.state, outcome.error) == (State.TIMED_OUT, "timed out after 0.5 s")


def test_what_forks_and_forks_is_ended(executor: CommandExecutor, tmp_path: Path) -> None:
    script, exhausted = tmp_path / "hop", tmp_path / "exhausted"
    script.write_text(
        f"#!/bin/sh\ntrap '' TERM\necho $$ >> {tmp_path}/pids\n"
        f"[ $1 -gt 0 ] || exec touch {exhausted}\nsetsid {script} $(($1 - 1)) &\n"
    )
    script.chmod(0o755)
    outcome = run(executor, f"{script} 400 & " * 16 + "sleep 9999", timeout=0.5)
    assert outcome.state is State.TIMED_OUT
    told = written(tmp_path / "pids")
    assert len(told) > 16
    assert not [pid for pid in told if alive(pid)]
    assert written(tmp_path / "pids") == told
    assert not exhausted.exists()


def test_a_keeper_that_is_killed_fails_its_run_and_leaves_nothing(
    executor: CommandExecutor, link: Link, tmp_path: Path
) -> None:
    pids, outcomes = tmp_path / "pids", Outcomes()
    work, other = work_of(stray(pids) + "echo $$ >> " + f"{pids}; sleep 9999"), work_of("sleep 9999")
    executor.submit([work], outcomes)
    eventually(lambda: len(written(pids)) == 2)
    (keeper,) = children(launcher_of(link))
    executor.submit([other], outcomes)
    eventually(lambda: len(names_below(link.pid())) > len(below(keeper)) + 2)
    os.kill(keeper, signal.SIGKILL)
    outcome = outcomes.wait(work)[0]
    assert outcome.state is State.FAILED
    assert outcome.error == "its keeper was killed, and with it the command and all that it had started"
    assert not [pid for pid in written(pids) if alive(pid)]
    assert executor.running() == (other.run_id,)
    executor.cancel(other.run_id, "cancelled by anna")
    assert outcomes.wait(other)[0].state is State.CANCELLED


def test_a_launcher_that_is_killed_costs_no_running_command_and_is_replaced(
    executor: CommandExecutor, link: Link, tmp_path: Path
) -> None:
    pids, outcomes = tmp_path / "pids", Outcomes()
    work = work_of(stray(pids) + "sleep 9999")
    executor.submit([work], outcomes)
    eventually(lambda: len(written(pids)) == 1)
    first = link.pid()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    eventually(lambda: not alive(first))
    assert run(executor, "exit 4").error == "exit code 4"
    assert link.pid() != first
    assert executor.running() == (work.run_id,)
    executor.cancel(work.run_id, "cancelled by anna")
    assert outcomes.wait(work)[0].state is State.CANCELLED
    assert not alive(written(pids)[0])


def test_a_command_dies_when_its_launcher_and_then_its_keeper_is_killed(
    executor: CommandExecutor, link: Link, tmp_path: Path
) -> None:
    pids, outcomes = tmp_path / "pids", Outcomes()
    work = work_of(f"trap '' TERM; echo $$ >> {pids}; while :; do sleep 0.1; done")
    executor.submit([work], outcomes)
    eventually(lambda: len(written(pids)) == 1)
    launcher = launcher_of(link)
    (keeper,) = children(launcher)
    for pid in (launcher, keeper):
        os.kill(pid, signal.SIGKILL)
    assert outcomes.wait(work)[0].state is State.FAILED
    eventually(lambda: not alive(written(pids)[0]), 5)


def test_a_launcher_that_is_behind_is_waited_for_with_few_descriptors_on_their_way(
    executor: CommandExecutor, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timeball.executors.command.link.STUCK_US", 10**9)  # a slow host is no stuck launcher
    assert run(executor, "true").state is State.SUCCEEDED
    launcher, outcomes = launcher_of(link), Outcomes()
    before = len(list(Path("/proc/self/fd").iterdir()))
    works = [work_of("true") for _ in range(3 * UNTAKEN_MAX)]
    os.kill(launcher, signal.SIGSTOP)
    try:
        executor.submit(works, outcomes)
        eventually(lambda: len(list(Path("/proc/self/fd").iterdir())) - before >= 3 * UNTAKEN_MAX)
        assert len(list(Path("/proc/self/fd").iterdir())) - before < 4 * UNTAKEN_MAX
        last = works.pop()
        executor.cancel(last.run_id, "cancelled by anna")
        outcome = outcomes.wait(last)[0]
        assert (outcome.state, outcome.error) == (State.CANCELLED, "cancelled by anna; it had not begun")
    finally:
        os.kill(launcher, signal.SIGCONT)
    assert {outcome.state for outcome in outcomes.wait(*works)} == {State.SUCCEEDED}
    assert link.pid() == launcher


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not")
def test_what_may_not_be_signalled_is_told_by_number_and_name() -> None:
    read, write = os.pipe()
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        asker = os.fork()
        if not asker:
            try:
                os.setgroups([])
                os.setresuid(65534, 65534, 65534)
                told = DescendantTree(os.getppid())
                told._children = lambda pid: [process.pid] if pid == os.getppid() else []  # type: ignore[method-assign]
                os.write(write, ";".join(told.signal(signal.SIGURG)).encode())
            finally:
                os._exit(0)
        os.close(write)
        os.waitpid(asker, 0)
        assert os.read(read, 100).decode() == f"{process.pid} (sleep)"
        process.kill()
    os.close(read)


def test_launcher_and_keepers_load_nothing_that_makes_a_fork_dear() -> None:
    program = (
        "import sys; sys.path.append(sys.argv[1]); from timeball.executors.command import launcher; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program, str(ROOT / "src")], stdout=subprocess.PIPE)
    loaded = done.stdout.decode().split()
    assert "timeball.executors.command.keeper" in loaded
    assert not {"threading", "logging", "asyncio", "sqlalchemy", "dataclasses"} & set(loaded)


def test_what_is_spared_lives_when_all_else_below_a_process_is_killed() -> None:
    with subprocess.Popen(
        ["/bin/sh", "-c", "sleep 60 & sleep 60 & wait"]
    ) as root:  # never our own: servers are below it
        eventually(lambda: names_below(root.pid) == ["sleep", "sleep"])
        spared, killed = below(root.pid)
        try:
            assert DescendantTree(root.pid).signal(signal.SIGKILL, spare=[spared]) == []
            eventually(lambda: not alive(killed))
            assert alive(spared)
        finally:
            for pid in (spared, root.pid):
                os.kill(pid, signal.SIGKILL)


def test_a_process_that_took_the_number_of_another_is_not_signalled() -> None:
    ours, theirs = (subprocess.Popen(["/bin/sleep", "60"]) for _ in range(2))
    tree = DescendantTree(ours.pid)
    tree._children = lambda pid: [theirs.pid] if pid == ours.pid else []  # type: ignore[method-assign] - read before it
    try:
        assert tree.signal(signal.SIGKILL) == []
        assert alive(theirs.pid)
    finally:
        for process in (ours, theirs):
            process.kill()
            process.wait()


def test_without_lists_of_children_all_processes_are_looked_through() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "sleep 60 & wait"]) as process:
        eventually(lambda: [name_of(pid) for pid in below(process.pid)] == ["sleep"])
        listed, looked = below(process.pid), DescendantTree(process.pid)
        looked._has_lists = False
        try:
            assert looked.alive() == listed
        finally:
            for pid in (process.pid, *listed):
                os.kill(pid, signal.SIGKILL)


def test_signals_to_the_whole_group_leave_launcher_and_keepers_to_the_instance(
    executor: CommandExecutor, link: Link
) -> None:
    outcomes, work = Outcomes(), work_of("trap '' TERM INT HUP; echo ready; while :; do sleep 0.05; done")
    executor.submit([work], outcomes)
    eventually(lambda: len(names_below(link.pid())) >= 2)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for pid in (launcher_of(link), *children(launcher_of(link))):
            os.kill(pid, number)
    assert run(executor, "exit 4").error == "exit code 4"
    executor.cancel(work.run_id, "cancelled by anna")
    assert outcomes.wait(work)[0].state is State.CANCELLED


def instance(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.executors.instance_of_commands", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def gone(pids: list[int], seconds: float = 5) -> None:
    eventually(lambda: not [pid for pid in pids if alive(pid)], seconds)


@pytest.mark.parametrize("copied", [False, True], ids=["alone", "copied"])
def test_nothing_survives_an_instance_that_is_killed(tmp_path: Path, copied: bool) -> None:
    """Copied: while a fork of it holds all its sockets."""
    pids = tmp_path / "pids"
    script = stray(pids, stubborn=True) + f"trap '' TERM; echo $$ >> {pids}; sleep 9999 & echo $! >> {pids}; wait"
    with instance(*["--fork"] * copied, json.dumps({"argv": ["/bin/sh", "-c", script]})) as process:
        copy = copy_of(process) if copied else 0
        eventually(lambda: len(written(pids)) == 3)
        all_of_it = [pid for pid in below(process.pid) if pid != copy]
        assert len(all_of_it) >= 5
        process.kill()
        process.wait()
        try:
            gone(all_of_it)
        finally:
            if copy:
                os.kill(copy, signal.SIGKILL)


def test_where_no_process_can_adopt_the_group_dies_with_the_instance(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM; echo $$ >> {pids}; sleep 9999 & echo $! >> {pids}; wait"
    with instance("--plain", json.dumps({"argv": ["/bin/sh", "-c", script]})) as process:
        eventually(lambda: len(written(pids)) == 2)
        all_of_it = below(process.pid)
        process.kill()
        process.wait()
        gone(all_of_it)


def test_the_end_of_an_executor_ends_its_launcher_though_a_fork_holds_its_sockets() -> None:
    with instance("--fork") as process:
        copy = copy_of(process)
        launcher = [pid for pid in children(process.pid) if pid != copy]
        assert len(launcher) == 1
        assert process.stdin is not None
        process.stdin.close()
        try:
            gone(launcher)
        finally:
            os.kill(copy, signal.SIGKILL)


def copy_of(process: subprocess.Popen[str]) -> int:
    """The fork of an instance that was asked to make one, after its first command."""
    assert process.stdout is not None
    process.stdout.readline()
    return json.loads(process.stdout.readline())["copy"]


def test_shell_003_an_instance_that_was_paused_sees_the_end_of_a_command_whose_child_holds_the_pipe(
    tmp_path: Path,
) -> None:
    ended = tmp_path / "ended"
    script = f"echo before; (trap '' TERM; sleep 9999) & sleep 1; echo $$ > {ended}"
    with instance(json.dumps({"argv": ["/bin/sh", "-c", script]})) as process:
        assert process.stdout is not None
        eventually(lambda: len(below(process.pid)) >= 4)
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: len(written(ended)) == 1 and not alive(written(ended)[0]))
        process.send_signal(signal.SIGCONT)
        outcome = json.loads(process.stdout.readline())
        assert outcome["state"] == "succeeded"
        assert outcome["outputs"] == ["before\n"]
        assert outcome["error"].startswith("left ")
        process.kill()
