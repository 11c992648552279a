"""Work whose end is forced sooner than its executor's own grace, and work that nobody can force."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tests.cluster.instances import eventually
from tests.executors.bench_of_work import Outcomes, make_work
from timeball.executors.command.executor import CommandExecutor
from timeball.executors.function.executor import FunctionExecutor
from timeball.executors.registry import FunctionTable
from timeball.model.states import State


def stubborn(sign: Path) -> dict[str, Any]:
    """A target that ignores TERM from when its sign is there."""
    return {"argv": ["/bin/sh", "-c", f"trap '' TERM; touch {sign}; while :; do sleep 0.05; done"]}


def test_a_shorter_grace_counts_also_for_what_was_asked_to_end_before(tmp_path: Path) -> None:
    executor, outcomes = CommandExecutor(("*",), 65_536, grace_seconds=60), Outcomes()
    signs = [tmp_path / "first", tmp_path / "second"]
    works = [make_work("command", stubborn(sign)) for sign in signs]
    executor.submit(works, outcomes)
    eventually(lambda: all(sign.exists() for sign in signs))
    assert executor.cancel(works[0].run_id, "by anna")
    assert executor.cancel(works[0].run_id, "isolated", grace_seconds=0.3)
    assert executor.cancel(works[1].run_id, "isolated", grace_seconds=0)
    ended = [outcomes.wait(work)[0] for work in works]
    assert {outcome.state for outcome in ended} == {State.CANCELLED}
    assert [str(outcome.error).partition(";")[0] for outcome in ended] == ["by anna", "isolated"]
    assert all(str(outcome.error).endswith("killed") for outcome in ended)
    assert ended[0].ended_at - ended[0].begun_at >= 250_000
    assert executor.close(1) == ()


def test_a_function_in_a_thread_finds_its_flag_and_the_reason_and_ends_by_itself() -> None:
    table, outcomes, seen, begun = FunctionTable(), Outcomes(), [], threading.Event()

    def patient(run: Any) -> None:
        begun.set()
        run.wait_cancelled(20)
        seen.append((run.cancelled, run.cancel_reason))

    table.register("patient", patient)
    executor = FunctionExecutor(table, output_bytes_max=65_536, threads_max=2)
    work = make_work("function", {"name": "patient"})
    executor.submit([work], outcomes)
    eventually(begun.is_set)
    assert executor.cancel(work.run_id, "isolated: cut off", grace_seconds=0)
    assert outcomes.wait(work)[0].state is State.CANCELLED
    assert seen == [(True, "isolated: cut off")]
    assert executor.close(1) == ()
