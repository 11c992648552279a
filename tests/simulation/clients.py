"""The people: they make, change, stop and delete jobs through JobService while everything goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

from timeball.errors import Conflict, NotFound
from timeball.model.job import Definition, JobState
from timeball.model.states import LIVE, RERUNNABLE, State
from timeball.service.jobs import JobService
from timeball.service.runs import RunService
from timeball.store import Store

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster


class Clients:
    """Requests drawn from the world's seed, one at a time, and what the checker has to know of their answers."""

    def __init__(self, world: Cluster, store: Store, jobs: JobService) -> None:
        self._world = world
        self.jobs = jobs
        self.runs = RunService(store, jobs, namespace="default", actor="somebody")
        self.busy = False
        self._marks = 0

    def act(self) -> None:
        """One request about one job, unless another is being answered."""
        with self._asking() as free:
            if not free:
                return
            name = f"job-{self._world.rng.randrange(6)}"
            if name not in {job.name for job in self.jobs.list()}:
                self._create(name)
            else:
                kinds = ("stop", "start", "edit", "trigger", "delete", "stop-hard", "run")
                kind = self._world.rng.choices(kinds, weights=(3, 5, 4, 3, 1, 1, 5))[0]
                self._rule() if kind == "run" else self.change(kind, name)

    def edit_one(self) -> None:
        """Edit some job, unless another request is being answered."""
        with self._asking() as free:
            if free and (jobs := self.jobs.list()):
                self.change("edit", self._world.rng.choice(jobs).name)

    @contextlib.contextmanager
    def _asking(self) -> Generator[bool]:
        free, self.busy = not self.busy, True
        try:
            yield free
        finally:
            self.busy = not free

    def _definition(self) -> tuple[Definition, int]:
        self._marks += 1
        pick = self._world.rng.choice
        definition = Definition(
            schedule=pick(
                ("* * * * * *", "*/2 * * * * *", "*/5 * * * * *", "@every 3s", "@every 7s", "* * * * *", "@reboot")
            ),
            executor="function",
            target={"name": "work"},
            args={"mark": self._marks},
            misfire=pick(("run_once", "run_all", "skip")),
            misfire_after_seconds=pick((2, 5, 20)),
            overlap=pick(("skip", "skip", "queue", "replace", "allow", "allow")),
            attempts_max=pick((1, 1, 3)),
            backoff="fixed",
            backoff_seconds=pick((0, 1, 4)),
            on_lost=pick(("fail", "rerun", "rerun", "hold")),
            lost_max=20,
            priority=pick((0, 0, 5)),
        )
        self._world.checker.definitions[self._marks] = definition
        return definition, self._marks

    def _create(self, name: str) -> None:
        definition, mark = self._definition()
        job = self.jobs.create(name, definition)
        self._world.did["create"] += 1
        self._world.note(f"create {name} ({job.id}) mark {mark}: {definition.schedule} {definition.overlap}")
        self._world.checker.answered(job.id, mark, [])

    def _rule(self) -> None:
        """Cancel some run, run one again that ended badly, or settle one that is lost."""
        runs, pick = self._world.checker.runs.values(), self._world.rng.choice
        fit = {
            "cancel": [run for run in runs if State(run.state) in LIVE],
            "rerun": [run for run in runs if State(run.state) in RERUNNABLE],
            "settle": [run for run in runs if run.state == State.LOST],
        }
        verb = pick([name for name, some in fit.items() if some] or ["cancel"])
        if not fit[verb]:
            return
        run = pick(sorted(fit[verb], key=lambda entry: entry.run_id))
        self._world.note(f"{verb} run {run.run_id}.{run.attempt} ({run.state}) is asked")
        if verb != "cancel":
            self._world.checker.wanted(run)
        with contextlib.suppress(Conflict, NotFound):  # whatever it was, it has changed, or its job has
            if verb == "cancel":
                answer = self.runs.cancel(run.run_id)
            elif verb == "rerun":
                answer = self.runs.rerun(run.run_id, attempt=pick((None, run.attempt)))
            else:
                answer = self.runs.settle(run.run_id, pick(("succeeded", "failed", "cancelled")))
            self._world.did[verb] += answer.changed
            self._world.note(f"{verb} run {run.run_id} is answered: {answer.state}, changed {answer.changed}")

    def change(self, kind: str, name: str) -> None:
        """Ask for a change of a job, and tell the checker what was answered."""
        self._world.note(f"{kind} {name} is asked")
        job = self.jobs.get(name)
        mark = int(job.definition.args["mark"])
        if kind == "trigger":
            self.jobs.trigger(name)
            return
        if kind == "edit":
            definition, mark = self._definition()
            result = self.jobs.edit(name, definition)
        elif kind == "start":
            result = self.jobs.start(name)
        else:
            verb = self.jobs.delete if kind == "delete" else self.jobs.stop
            result = verb(name, cancel_running=kind == "stop-hard")
        self._world.did[kind] += 1
        listed = [run.run_id for run in result.still_running]
        self._world.note(f"{kind} {name} ({job.id}) mark {mark} is answered, still running {listed}")
        stopped = kind in ("stop", "stop-hard", "delete")
        active = not stopped and result.job.state is JobState.ACTIVE
        self._world.checker.answered(
            job.id, mark if active else -1, listed, stopped_at=result.at if stopped and result.changed else None
        )
