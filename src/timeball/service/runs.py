"""Use-cases about runs: cancel one, run one again, say how a lost one ended."""

from __future__ import annotations

import dataclasses

from timeball.clock import monotonic_us, pause_us, seconds_to_us
from timeball.errors import InvalidInput
from timeball.model.job import Job
from timeball.model.states import State
from timeball.schedule import schedule_of
from timeball.service.jobs import JobService
from timeball.store import Store
from timeball.store.rulings import Again, RunChange

VERDICTS = (State.SUCCEEDED, State.FAILED, State.CANCELLED)
"""What a person can say of a lost run."""
NOTE_CHARS_MAX = 100
POLL_US = 50_000


class RunService:
    """Runs of one namespace, for one actor (who is asking; it goes into the trail)."""

    def __init__(self, store: Store, jobs: JobService, *, namespace: str, actor: str) -> None:
        self._store = store
        self._jobs = jobs
        self._namespace = namespace
        self._actor = actor

    def cancel(self, run_id: int, *, wait_seconds: float = 0) -> RunChange:
        """End a run. One that waits is cancelled when this returns; one that runs is asked to end by its owner.

        `wait_seconds`: how long to wait for that end. The answer tells the run as it is: still `running` means that
        the wish is on its way, and `owner_gone` that nobody is there to hear it. Raises NotFound, Conflict.
        """
        answer = self._store.rulings.cancel(self._namespace, run_id, actor=self._actor)
        deadline = monotonic_us() + seconds_to_us(wait_seconds)
        while answer.state is State.RUNNING and not answer.owner_gone and monotonic_us() < deadline:
            pause_us(POLL_US)
            run = self._store.runs.get(self._namespace, run_id)
            answer = dataclasses.replace(answer, state=State(run.state), attempt=run.attempt)
        return answer

    def rerun(self, run_id: int, *, attempt: int | None = None) -> RunChange:
        """Run it again, as its next attempt, by the job's definition as it is now: for what failed or was lost.

        `attempt`: the one that you saw end. When another attempt has followed it, nothing changes: so the cluster's
        own rerun and yours make one new attempt. Raises NotFound, Conflict, TargetError (the job cannot run).
        """
        return self._store.rulings.rerun(
            self._namespace, run_id, plan=self._planned, actor=self._actor, attempt=attempt
        )

    def settle(self, run_id: int, verdict: str, *, note: str = "") -> RunChange:
        """Say how a lost run really ended: `succeeded`, `failed` or `cancelled`, with a note for the trail.

        Nothing runs, and no retry follows. Raises NotFound, InvalidInput, Conflict (it is not lost).
        """
        known = [str(state) for state in VERDICTS]
        if verdict not in known:
            raise InvalidInput(f"a run cannot be settled as {verdict!r}", hint=f"one of {', '.join(known)}", field="as")
        if len(note) > NOTE_CHARS_MAX or not note.isprintable():
            raise InvalidInput(f"a note is one line of at most {NOTE_CHARS_MAX} characters", field="note")
        return self._store.rulings.settle(self._namespace, run_id, State(verdict), note, actor=self._actor)

    def _planned(self, job: Job) -> Again:
        schedule = schedule_of(job.definition, name=job.name, anchor_at=job.anchor_at)
        return Again(placement=self._jobs.placement(job.definition), follows_runs=schedule.follows_runs is not None)
