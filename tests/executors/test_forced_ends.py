"""Work whose end is forced sooner than its executor's own grace, and work that nobody can force."""

from __future__ import annotations

import threading
from typing import Any

from tests.cluster.instances import eventually
from tests.executors.bench_of_work import Outcomes, make_work
from timeball.executors.command.executor import CommandExecutor
from timeball.executors.function.executor import FunctionExecutor
from timeball.executors.registry import FunctionTable
from timeball.model.states import State

STUBBORN = {"argv": ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]}


def test_a_shorter_grace_counts_also_for_what_was_asked_to_end_before() -> None:
    executor, outcomes = CommandExecutor(("*",), 65_536, grace_seconds=60), Outcomes()
    works = [make_work("command", STUBBORN), make_work("command", STUBBORN)]
    executor.submit(works, outcomes)
    assert executor.cancel(works[0].run_id, "by anna")
    assert executor.cancel(works[0].run_id, "isolated", grace_seconds=0.3)
    assert executor.cancel(works[1].run_id, "isolated", grace_seconds=0)
    ended = [outcomes.wait(work)[0] for work in works]
    assert [(o.state, o.error) for o in ended] == [(State.CANCELLED, "by anna"), (State.CANCELLED, "isolated")]
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
