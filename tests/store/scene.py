"""Instances, a leader, jobs and runs for tests of the store: made through its own verbs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from tests.conftest import HostClock
from timeball.model.cluster import Instance, InstanceState, Term
from timeball.model.job import Definition, Job
from timeball.store import Store
from timeball.store.claims import Capability, Claim, Started
from timeball.store.database import sql
from timeball.store.jobs import NewTimes
from timeball.store.plans import JobPlan, PlannedTick
from timeball.store.settles import Ending
from timeball.store.starts import StartResult

SECOND = 1_000_000
HOUR = 3600 * SECOND
STORED_INSTANTS = {
    "timeball_lease": ("acquired_at", "expires_at"),
    "timeball_instance": ("started_at", "heartbeat_at", "expires_at"),
    "timeball_run": ("due_at", "ready_at", "claimable_at", "claimed_at", "started_at", "start_by"),
}
ANY = Capability(handlers=["function:f"], requires=[""])


class Scene:
    def __init__(self, store: Store, host_clock: HostClock | None = None) -> None:
        self.store = store
        self._host_clock = host_clock
        self.definitions: dict[tuple[int, int], Definition] = {}

    def now(self) -> int:
        return self.store.members.clock()

    def pass_time(self, by_us: int) -> None:
        """Let time go by: move SQLite's clock on; PostgreSQL's is not ours, so move stored instants back."""
        if self.store.database.dialect.name == "sqlite":
            assert self._host_clock is not None
            self._host_clock.move(by_us)
            return
        for table, columns in STORED_INSTANTS.items():
            moves = ", ".join(f"{column} = {column} - :by" for column in columns)
            self.execute(f"UPDATE {table} SET {moves}", by=by_us)

    def join(self, name: str, *, lifetime_us: int = HOUR) -> str:
        instance = Instance(
            id=uuid.uuid4().hex,
            namespace="default",
            name=name,
            host="host",
            pid=1,
            version="",
            state=InstanceState.ACTIVE,
            execute="any",
            labels={},
            handlers=("function:f",),
            started_at=0,
            heartbeat_at=0,
            expires_at=0,
        )
        self.store.members.join(instance, lifetime_us=lifetime_us)
        return instance.id

    def lead(self, instance_id: str) -> Term:
        held = self.store.leases.hold("default", instance_id, lifetime_us=HOUR)
        assert held.term is not None
        return held.term

    def job(self, name: str = "job", **policies: Any) -> Job:
        definition = Definition.from_dict(
            {"schedule": "* * * * * *", "executor": "function", "target": {"name": "f"}, **policies}
        )
        job = self.store.jobs.create(
            "default",
            name,
            definition,
            active=True,
            times=lambda at: NewTimes(cursor_at=at - HOUR, next_due_at=at - HOUR + 1, anchor_at=at),
            actor="test",
            tzdata="x",
        )
        self.definitions[job.id, job.version] = definition
        return job

    def plan(self, term: Term, job: Job, dues: Sequence[int], *, requires: str = "", start_by: int = 1 << 61) -> int:
        current = self.store.jobs.get("default", job.name)
        plan = JobPlan(
            job_id=job.id,
            version=current.version,
            cursor_before=current.cursor_at,
            cursor_after=max([current.cursor_at, *dues]),
            next_due_at=max([current.cursor_at, *dues]) + 1,
            handler="function:f",
            requires=requires,
            priority=job.definition.priority,
            exclusive=job.definition.exclusive,
            ticks=[PlannedTick(due_at=due, start_by=start_by) for due in dues],
        )
        return self.store.plans.write(term, [plan], tzdata="x")

    def claim(self, me: str, *, slack_us: int = HOUR, limit: int = 100, can: Capability = ANY) -> list[Claim]:
        return self.store.claims.claim(me, can, prefetch_us=10 * SECOND, slack_us=slack_us, limit=limit)

    def start(self, me: str, claims: Sequence[Claim]) -> StartResult:
        return self.store.starts.start(me, claims, self.definitions, lead_us=10 * SECOND)

    def settle(
        self, started: Started, state: str = "succeeded", *, at: int = 0, retry_at: int | None = None, me: str = ""
    ) -> bool:
        at = at or self.now()
        ending = Ending(
            run_id=started.run_id,
            job_id=started.job_id,
            attempt=started.attempt,
            fence=started.fence,
            state=state,
            begun_at=at,
            ended_at=at,
            retry_at=retry_at,
        )
        return started.run_id in self.store.settles.settle([ending], namespace="default", instance_id=me)

    def state(self, run_id: int) -> str:
        return self.store.runs.states([run_id])[run_id]

    def execute(self, statement: str, **binds: Any) -> int:
        with self.store.database.transaction() as tx:
            return tx.count(sql(statement), **binds)

    def expire(self, instance_id: str) -> None:
        self.execute("UPDATE timeball_instance SET expires_at = 1 WHERE id = :id", id=instance_id)
