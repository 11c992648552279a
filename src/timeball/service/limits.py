"""Use-cases about named limits: set, delete, look."""

from __future__ import annotations

from collections.abc import Sequence

from timeball.model.fields import check_name
from timeball.model.limit import Limit, LimitRule
from timeball.store import Store
from timeball.store.limits import LimitUse


class LimitService:
    """The limits of one namespace, for one actor."""

    def __init__(self, store: Store, *, namespace: str, actor: str) -> None:
        self._store = store
        self._namespace = namespace
        self._actor = actor

    def set(self, name: str, rule: LimitRule, *, expected_version: int | None = None) -> tuple[Limit, bool]:
        """Make a limit be so, new or not; the limit, and whether anything changed. Runs that go on are left alone.

        `expected_version`: the version that you saw; 0: only if it is new. Raises InvalidInput, Conflict.
        """
        check_name(name)
        return self._store.limits.set(self._namespace, name, rule, actor=self._actor, expected_version=expected_version)

    def ensure(self, name: str, rule: LimitRule) -> Limit:
        """The limit of that name, made if it is new: what people have set since stays."""
        known = [limit for limit in self.list() if limit.name == name]
        return known[0] if known else self.set(name, rule)[0]

    def delete(self, name: str) -> None:
        """Gone. Raises NotFound, Conflict naming jobs that name it."""
        self._store.limits.delete(self._namespace, name, actor=self._actor)

    def get(self, name: str) -> Limit:
        """One limit. Raises NotFound."""
        return self._store.limits.get(self._namespace, name)

    def list(self) -> Sequence[Limit]:
        """All limits, by name."""
        return self._store.limits.all(self._namespace)

    def use(self, limit: Limit) -> LimitUse:
        """How many runs hold a permit of it now, and the jobs that name it."""
        return self._store.limits.use(self._namespace, limit)
