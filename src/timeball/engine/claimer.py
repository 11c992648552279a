"""Claiming: reserving what is due soon, as far as there is room. Starts nothing that is not due."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from timeball.clock import seconds_to_us
from timeball.engine.definitions import DefinitionCache
from timeball.engine.held import HeldClaims
from timeball.engine.lease import LeaseKeeper
from timeball.engine.member import Member
from timeball.engine.runner import Runner
from timeball.engine.starter import StartGate
from timeball.model.cluster import Execute, Term
from timeball.model.fields import requires_key
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.claims import Capability


class Claimer:
    """Fills the hand. When a backlog is due already, claims and starts by one statement instead."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        member: Member,
        lease: LeaseKeeper,
        held: HeldClaims,
        runner: Runner,
        definitions: DefinitionCache,
        gate: StartGate,
        on_claimed: Callable[[], None],
        outcomes_full: Callable[[], bool],
    ) -> None:
        self._store = store
        self._settings = settings
        self._member = member
        self._lease = lease
        self._held = held
        self._runner = runner
        self._definitions = definitions
        self._gate = gate
        self._on_claimed = on_claimed
        self._outcomes_full = outcomes_full
        self._execute = Execute(settings.execute)
        self._requires = label_sets(settings.labels)
        self._backlog = False
        self.starved = False

    def step(self) -> float:
        """Claim one batch. Returns seconds until the next; 0 when there is more and room for it."""
        room = min(self._settings.runs_max - self._runner.load() - len(self._held), self._settings.claim_batch_max)
        term = self._lease.term()
        self.starved = room <= 0 or self._outcomes_full()
        if self.starved or not self._may_claim(term):
            return self._settings.poll_seconds
        proof = term if self._execute is Execute.LEADER else None
        capability = Capability(handlers=self._runner.handlers(), requires=self._requires)
        if not capability.handlers:
            return self._settings.poll_seconds
        count = self._take(capability, room, proof) if self._backlog else self._claim(capability, room, proof)
        self.starved = count == room
        return 0 if count == room or self._backlog else self._settings.poll_seconds

    def _may_claim(self, term: Term | None) -> bool:
        if not self._member.trusted or self._member.draining:
            return False
        return self._execute is Execute.ANY or (self._execute is Execute.LEADER and term is not None)

    def _claim(self, capability: Capability, room: int, proof: Term | None) -> int:
        claims = self._store.claims.claim(
            self._member.id,
            capability,
            prefetch_us=seconds_to_us(self._settings.prefetch_seconds),
            slack_us=seconds_to_us(self._settings.claim_slack_seconds),
            limit=room,
            term=proof,
        )
        known = self._definitions.load((c.job_id, c.job_version) for c in claims)
        self._runner.prepare({entry.definition.executor for entry in known.values()})
        self._held.add(claims)
        if claims:
            self._on_claimed()
        # A full hand of runs that compete with nobody: the rest need no stop between claim and start.
        self._backlog = len(claims) == room and not any(c.exclusive for c in claims)
        return len(claims)

    def _take(self, capability: Capability, room: int, proof: Term | None) -> int:
        owner = self._member.id
        with self._gate.starting():
            started = self._store.claims.take(owner, capability, limit=room, term=proof)
            known = self._definitions.load((s.job_id, s.job_version) for s in started)
            self._runner.accept(started, known, owner=owner)
        self._backlog = bool(started)
        return len(started)


def label_sets(labels: Mapping[str, str]) -> list[str]:
    """Every set of required labels that these labels cover, as the ledger writes them; the empty one first."""
    items = sorted(labels.items())
    return [
        requires_key(dict(chosen)) for size in range(len(items) + 1) for chosen in itertools.combinations(items, size)
    ]
