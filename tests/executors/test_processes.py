"""Functions in processes of their own: real ones, which crash, hang, are killed, and leave nothing behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.instances import eventually
from tests.executors import apart
from tests.executors.bench_of_work import FunctionTable, Outcomes, make_work, output_of
from timeball.app.worker import worker_command
from timeball.clock import monotonic_us
from timeball.errors import InvalidInput, TargetError
from timeball.executors.function.executor import FunctionExecutor, ProcessLimits
from timeball.executors.places import Place
from timeball.model.run import Outcome
from timeball.model.states import State

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., FunctionExecutor]


class Bench:
    """An executor with the functions of `apart`, and what it was asked."""

    def __init__(self, **limits: Any) -> None:
        self.table = FunctionTable()
        for name, function in vars(apart).items():
            if getattr(function, "__module__", "") == apart.__name__:
                self.table.register(name, function, isolation="process")
        chosen = {"processes_max": 2, "grace_seconds": 0.5, **limits}
        self.executor = FunctionExecutor(
            self.table,
            output_bytes_max=10_000,
            threads_max=1,
            processes=ProcessLimits(command=worker_command("sqlite"), **chosen),
        )
        self.outcomes = Outcomes()

    def submit(self, name: str, *, timeout: float | None = None, **args: Any) -> Any:
        work = make_work("function", {"name": name}, args=args, timeout=timeout)
        self.executor.submit([work], self.outcomes)
        return work

    def run(self, name: str, *, timeout: float | None = None, **args: Any) -> Outcome:
        return self.outcomes.wait(self.submit(name, timeout=timeout, **args))[0]

    def pids(self) -> list[int]:
        assert self.executor._processes is not None
        return self.executor._processes.pids()

    def begun(self, work: Any) -> bool:
        assert self.executor._processes is not None
        workers = self.executor._processes._workers
        return any(w.ready and w.call is not None and w.call.work is work for w in workers)


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(**getattr(request, "param", {}))
    yield made
    made.executor.close(0)
    eventually(lambda: not made.pids())


def limits(**values: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("bench", [values], indirect=True)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_its_arguments_its_context_and_what_it_says_go_through(bench: Bench) -> None:
    outcome = bench.run("typed", day="2026-12-01", count=2)
    assert (outcome.state, outcome.result) == (State.SUCCEEDED, '"date 2026-12-01 2 a job"')
    assert output_of(outcome, "log") == "attempt 1, fence 42\n"
    assert output_of(outcome, "stdout") == "on stdout\n"
    assert output_of(outcome, "stderr") == "on stderr\n"
    assert bench.run("asynchronous", seconds=0.01).result == '"slept"'


@limits(processes_max=1, runs_max=3)
def test_a_worker_stays_warm_and_is_replaced_after_so_many_runs(bench: Bench) -> None:
    pids = [int(bench.run("whoami").result or 0) for _ in range(6)]
    assert len(set(pids[:3])) == len(set(pids[3:])) == 1
    assert pids[0] != pids[3]
    assert os.getpid() not in pids
    eventually(lambda: gone(pids[0]))


@pytest.mark.parametrize(
    ("what", "state", "reason", "error"),
    [
        ("value", State.FAILED, "exception", "ValueError: bad"),
        ("exit", State.FAILED, "exception", "SystemExit: 3"),
        ("skip", State.SKIPPED, "nothing to do", None),
        ("retry", State.FAILED, "retry", "later"),
    ],
)
def test_what_it_raises_is_told_as_in_a_thread(
    bench: Bench, what: str, state: State, reason: str, error: str | None
) -> None:
    outcome = bench.run("raises", what=what)
    assert (outcome.state, outcome.reason, outcome.error) == (state, reason, error)
    assert ("apart.py" in output_of(outcome, "traceback")) is (what != "skip")
    assert outcome.retry_after_us == (7_000_000 if what == "retry" else None)


@pytest.mark.parametrize(
    ("how", "reason", "words"),
    [
        ("exit", "exit-code", "the function ended its process with exit code 3"),
        ("segv", "signal", "killed by SIGSEGV (signal 11)"),
        ("kill", "signal", "killed by SIGKILL (signal 9)"),
    ],
)
def test_a_crash_of_the_interpreter_is_a_failed_run_that_names_it(
    bench: Bench, how: str, reason: str, words: str
) -> None:
    outcome = bench.run("dies", how=how)
    assert (outcome.state, outcome.reason, outcome.error) == (State.FAILED, reason, words)
    if how == "segv":
        assert "apart.py" in output_of(outcome, "stderr")  # where, by the fault handler
    assert bench.run("whoami").state is State.SUCCEEDED


@pytest.mark.parametrize("name", ["loops", "holds_the_interpreter"])
@limits(processes_max=1)
def test_a_time_out_really_ends_it(bench: Bench, name: str) -> None:
    work = bench.submit(name, timeout=0.3)
    eventually(lambda: bench.begun(work))
    (pid,) = bench.pids()
    outcome = bench.outcomes.wait(work)[0]
    assert (outcome.state, outcome.reason) == (State.TIMED_OUT, "timeout")
    eventually(lambda: gone(pid))


@pytest.mark.parametrize("name", ["loops", "holds_the_interpreter"])
@limits(grace_seconds=60)
def test_a_cancel_with_a_shorter_grace_really_ends_it(bench: Bench, name: str) -> None:
    work = bench.submit(name)
    eventually(lambda: bench.begun(work))
    assert bench.executor.cancel(work.run_id, "by anna")
    assert bench.executor.cancel(work.run_id, "isolated", grace_seconds=0.1)
    outcome = bench.outcomes.wait(work)[0]
    assert (outcome.state, outcome.error) == (State.CANCELLED, "by anna")


@limits(grace_seconds=60, processes_max=1)
def test_a_function_that_looks_ends_by_itself_and_its_worker_stays(bench: Bench, tmp_path: Path) -> None:
    work = bench.submit("cleans_up_when_asked", file=str(tmp_path / "marks"))
    eventually(lambda: bench.begun(work))
    (pid,) = bench.pids()
    bench.executor.cancel(work.run_id, "by anna")
    assert bench.outcomes.wait(work)[0].state is State.CANCELLED
    assert (tmp_path / "marks").read_text() == "by anna"
    slow = bench.submit("asynchronous", seconds=60)
    eventually(lambda: bench.begun(slow))
    bench.executor.cancel(slow.run_id, "by anna")
    assert bench.outcomes.wait(slow)[0].state is State.CANCELLED
    assert bench.run("whoami").result == str(pid)


@limits(processes_max=1)
def test_what_waits_for_a_worker_is_cancelled_at_once(bench: Bench) -> None:
    first = bench.submit("polite")
    eventually(lambda: bench.begun(first))
    second = bench.submit("whoami")
    bench.executor.cancel(second.run_id, "by anna")
    assert bench.outcomes.wait(second)[0].state is State.CANCELLED
    bench.executor.cancel(first.run_id, "by anna")
    assert bench.outcomes.wait(first)[0].state is State.CANCELLED
    assert bench.run("whoami").state is State.SUCCEEDED


@limits(memory_bytes_max=1_000_000_000)
def test_its_memory_is_bounded(bench: Bench) -> None:
    outcome = bench.run("eats", megabytes=2000)
    assert (outcome.state, outcome.error) == (State.FAILED, "MemoryError")
    assert bench.run("eats", megabytes=10).result == "10000000"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_it_forks_ends_where_its_function_ends(bench: Bench) -> None:
    assert bench.run("forks", code=7).result == "7"
    assert bench.run("forks", code=0).result == "0"


def test_its_progress_is_told_and_the_last_word_always(bench: Bench) -> None:
    work = bench.submit("progresses")
    bench.outcomes.wait(work)
    said = {p.run_id: (p.fence, p.fraction, p.text) for p in bench.executor.progress()}
    assert said == {work.run_id: (42, 1.0, "step 4")}
    assert bench.executor.progress() == []


def test_after_a_crash_a_worker_is_there_before_the_next_call(bench: Bench) -> None:
    assert bench.run("dies", how="kill").state is State.FAILED
    eventually(lambda: idle(bench) == 1)
    ready = bench.pids()
    assert bench.run("whoami").result == str(ready[0])


def test_workers_that_cannot_come_up_are_not_started_again_and_again(bench: Bench) -> None:
    assert bench.run("whoami").state is State.SUCCEEDED
    bench.table.register("later", len)
    bench.table._isolated["later"] = Place("no_such_module", "far")
    assert bench.run("later").reason == "start"
    started = started_by(bench)
    assert [bench.run("later").reason for _ in range(3)] == ["start"] * 3
    assert started_by(bench) - started <= 6


def idle(bench: Bench) -> int:
    assert bench.executor._processes is not None
    return sum(worker.ready and worker.call is None for worker in bench.executor._processes._workers)


def started_by(bench: Bench) -> int:
    assert bench.executor._processes is not None
    return bench.executor._processes.started


def test_a_storm_of_output_stays_within_its_bound(bench: Bench) -> None:
    output = bench.run("floods").outputs[0]
    assert output.bytes_total > 1_000_000
    assert len(output.text) < 11_000
    assert output.text.endswith("line 199999\n")


def test_a_function_that_closes_its_streams_still_ends(bench: Bench) -> None:
    assert bench.run("closes_its_streams").result == '"done"'


def test_a_function_that_talks_into_our_socket_hurts_only_itself(bench: Bench) -> None:
    outcome = bench.run("speaks_nonsense")
    assert (outcome.state, outcome.reason) == (State.FAILED, "signal")
    assert "what is no message" in str(outcome.error)
    assert bench.run("whoami").state is State.SUCCEEDED


def test_a_module_that_cannot_be_imported_again_is_a_failed_run_that_says_so(bench: Bench) -> None:
    def far() -> None:
        """Registered under a place where it is not."""

    bench.table.register("far", far)
    bench.table._isolated["far"] = Place("no_such_module", "far")
    outcome = bench.run("far")
    assert (outcome.state, outcome.reason) == (State.FAILED, "start")
    assert "ModuleNotFoundError: No module named 'no_such_module'" in str(outcome.error)


def test_a_worker_starts_no_instance_when_it_imports_the_program(bench: Bench) -> None:
    bench.table.register("starter", len)
    bench.table._isolated["starter"] = Place("tests.executors.starts_at_import", "work")
    outcome = bench.run("starter")
    assert outcome.reason == "start", outcome
    assert "this is a worker process" in str(outcome.error)


def test_a_function_that_came_later_gets_a_worker_that_knows_it(bench: Bench) -> None:
    before = bench.run("whoami").result
    bench.table.register("later", os.getpid, isolation="")
    bench.table._isolated["later"] = Place("os", "getpid")
    assert bench.run("later").result not in (before, str(os.getpid()))


def test_a_function_without_a_place_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidInput, match="at the top of a module"):
        bench.table.register("nowhere", lambda: None, isolation="process")
    with pytest.raises(InvalidInput, match="isolation cannot be 'thread'"):
        bench.table.register("wrong", len, isolation="thread")
    without = FunctionExecutor(bench.table, output_bytes_max=1, threads_max=1)
    with pytest.raises(TargetError, match="process of its own"):
        without.check({"name": "whoami"}, {})


def open_here() -> tuple[int, int, int]:
    """Descriptors, threads, and children of this process, zombies too."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), len(children(os.getpid()))


def test_an_executor_that_is_closed_leaves_no_process_no_descriptor_and_no_thread() -> None:
    before = open_here()
    bench = Bench()
    works = [bench.submit(name) for name in ("loops", "polite", "whoami", "loops")]
    eventually(lambda: len(bench.pids()) == 2 and bench.begun(works[0]))
    pids = bench.pids()
    assert bench.executor.close(0.2) == ()
    assert all(gone(pid) for pid in pids)
    assert {o.state for o in bench.outcomes.wait(*works)} <= {State.CANCELLED, State.SUCCEEDED}
    eventually(lambda: all(now <= then for now, then in zip(open_here(), before, strict=True)))


@pytest.mark.parametrize("seed", range(3))
def test_in_every_race_of_end_time_out_and_cancel_one_outcome_is_told(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    works = [
        bench.submit("asynchronous", timeout=0.02, seconds=chance.choice([0, 0.015, 0.02, 0.03])) for _ in range(60)
    ]
    for work in chance.sample(works, 20):
        bench.executor.cancel(work.run_id, "race")
    bench.outcomes.wait(*works)
    assert bench.executor.running() == ()


INSTANCE = """
import sys
from tests.executors.test_processes import Bench
bench = Bench(grace_seconds=60)
bench.submit(sys.argv[1], **({"file": sys.argv[2]} if sys.argv[1] == "leaves_a_child" else {}))
bench.outcomes._changed.acquire()
bench.outcomes._changed.wait(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's word is asked for on Linux")
@pytest.mark.parametrize("name", ["holds_the_interpreter", "leaves_a_child"])
def test_when_the_instance_is_killed_nothing_of_its_workers_survives_a_second(name: str, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    instance = subprocess.Popen([sys.executable, "-c", INSTANCE, name, str(marks)], cwd=ROOT)
    try:
        eventually(lambda: len(children(instance.pid)) == 2)  # a worker, and who minds it
        if name == "leaves_a_child":
            eventually(lambda: marks.exists() and len(marks.read_text().split()) == 2)
            pids = [int(pid) for pid in marks.read_text().split()]
        else:
            eventually(lambda: any("sleep" in where(pid) for pid in children(instance.pid)))
            pids = children(instance.pid)
    finally:
        instance.send_signal(signal.SIGKILL)
        killed_at = monotonic_us()
    instance.wait()
    eventually(lambda: all(gone(pid) for pid in pids))
    print(f"gone {(monotonic_us() - killed_at) / 1e6:.3f} s after the kill")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task").glob("*/children") for child in child.read_text().split()]


def where(pid: int) -> str:
    """What a process waits for, as the kernel says."""
    return Path(f"/proc/{pid}/wchan").read_text() + Path(f"/proc/{pid}/syscall").read_text().replace("230 ", "sleep ")


PROGRAM = """
import os
from tests.executors.bench_of_work import FunctionTable, Outcomes, make_work
from timeball.app.worker import worker_command
from timeball.executors.function.executor import FunctionExecutor, ProcessLimits

def work():
    return __name__

if __name__ == "__main__":
    table = FunctionTable()
    table.register("work", work, isolation="process")
    limits = ProcessLimits(command=worker_command("sqlite"))
    executor = FunctionExecutor(table, output_bytes_max=1000, threads_max=1, processes=limits)
    outcomes, item = Outcomes(), make_work("function", {"name": "work"})
    executor.submit([item], outcomes)
    print(outcomes.wait(item)[0].result)
    executor.close(1)
"""


@pytest.mark.parametrize("how", ["file", "module"])
def test_functions_of_the_programs_main_module_are_found(how: str, tmp_path: Path) -> None:
    Path(tmp_path, "program.py").write_text(PROGRAM)
    given = ["program.py"] if how == "file" else ["-m", "program"]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    done = subprocess.run(
        [sys.executable, *given], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100
    )
    assert (done.stdout, done.returncode) == ('"__mp_main__"\n', 0), done.stderr
