"""Permits of named limits, inside the transaction of a start. Owns the counting; the verbs on limits are in `limits`.

Each limit has a row of its own that a start locks, in the order of ids, after the gates of jobs and before runs. So
starts that share a limit are counted one after the other, in the whole cluster. The limit's definition is another row:
saving a job locks that one after it has locked runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from timeball.policy.limits import Permits
from timeball.store.database import Database, Transaction, sql


class PermitCounts:
    """What limits have left, and what was taken."""

    def __init__(self, database: Database) -> None:
        d = database.dialect
        limits = d.any_of("limits", "BIGINT")
        self._named = sql(
            f"SELECT l.id FROM timeball_limit l WHERE l.name {d.any_of('names', 'TEXT')} "
            f"AND l.namespace = (SELECT i.namespace FROM timeball_instance i WHERE i.id = :me) ORDER BY l.id"
        )
        self._lock = sql(
            f"SELECT limit_id, state FROM timeball_permit WHERE limit_id {limits} ORDER BY limit_id {d.lock}"
        )
        self._read = sql(
            f"SELECT id, name, running_max, started_max, window_us FROM timeball_limit WHERE id {limits} ORDER BY id"
        )
        self._running = sql(
            "SELECT limits, count(*) FROM timeball_run WHERE state = 'running' AND limits <> '' GROUP BY limits"
        )
        self._mark = sql(f"UPDATE timeball_run SET limits = :key WHERE id {d.any_of('ids', 'BIGINT')}")
        self._note = sql("UPDATE timeball_permit SET state = :state WHERE limit_id = :id")

    def locked(self, tx: Transaction, me: str, names: Collection[str]) -> tuple[dict[str, Permits], dict[str, int]]:
        """What these limits of the instance's namespace have left, locked until the transaction ends; and their ids."""
        found = [row[0] for row in tx.all(self._named, me=me, names=tx.list(sorted(names)))]
        if not found:
            return {}, {}
        states = {row[0]: json.loads(row[1]) for row in tx.all(self._lock, limits=tx.list(found))}
        running = self._running_by_limit(tx)
        now = tx.now()
        permits: dict[str, Permits] = {}
        ids: dict[str, int] = {}
        for limit_id, name, running_max, started_max, window_us in tx.all(self._read, limits=tx.list(found)):
            state = states.get(limit_id, {})
            permit = Permits(
                name=name,
                running=running[limit_id],
                running_max=running_max,
                started_max=started_max,
                window_us=window_us or 0,
                recent=[(at, count) for at, count in state.get("recent", ())],
                tail_at=state.get("tail_at", 0),
            )
            permit.forget(now)
            permits[name], ids[name] = permit, limit_id
        return permits, ids

    def take(
        self,
        tx: Transaction,
        started: Mapping[int, Sequence[str]],
        permits: Mapping[str, Permits],
        ids: Mapping[str, int],
    ) -> None:
        """Note what has started, by run, and who asks again when. What has started holds its permits while its row says `running`."""
        now = tx.now()
        by_key: dict[str, list[int]] = {}
        taken: Counter[str] = Counter()
        for run_id, names in started.items():
            by_key.setdefault(_key(ids[name] for name in names), []).append(run_id)
            taken.update(names)
        for key, run_ids in sorted(by_key.items()):
            tx.count(self._mark, key=key, ids=tx.list(sorted(run_ids)))
        for name in sorted(permits, key=lambda n: ids[n]):
            permits[name].charge(taken[name], now)
            if permits[name].changed:
                self._note_state(tx, ids[name], permits[name])

    def _note_state(self, tx: Transaction, limit_id: int, permit: Permits) -> None:
        state = json.dumps({"recent": permit.recent, "tail_at": permit.tail_at}, separators=(",", ":"))
        tx.count(self._note, id=limit_id, state=state)

    def running(self, tx: Transaction, limit_id: int) -> int:
        """How many runs hold a permit of a limit now."""
        return self._running_by_limit(tx)[limit_id]

    def _running_by_limit(self, tx: Transaction) -> Counter[int]:
        running: Counter[int] = Counter()
        for key, count in tx.all(self._running):
            for limit_id in key.split(","):
                running[int(limit_id)] += count
        return running


def _key(ids: Iterable[int]) -> str:
    return ",".join(str(limit_id) for limit_id in sorted(ids))
