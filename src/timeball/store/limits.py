"""Verbs about named limits: set, delete, read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timeball.errors import Conflict, Duplicate, NotFound
from timeball.model.limit import Limit, LimitRule
from timeball.store.database import Database, Row, Transaction, sql
from timeball.store.events import add_event
from timeball.store.jobs import COLUMNS, read_job
from timeball.store.permits import PermitCounts
from timeball.store.wake import work_channel

US = 1_000_000
JOBS_NAMED_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """A limit as it is used now: how many runs hold a permit, and the jobs that name it."""

    running: int
    jobs: Sequence[str]


class Limits:
    """The named limits of each namespace."""

    def __init__(self, database: Database, permits: PermitCounts) -> None:
        self._db = database
        self._permits = permits
        d = database.dialect
        columns = "id, name, running_max, started_max, window_us, description, version, updated_at"
        by_name = "FROM timeball_limit WHERE namespace = :namespace AND name = :name"
        self._get = sql(f"SELECT {columns} {by_name}")
        self._lock = sql(f"SELECT {columns} {by_name} {d.lock}")
        self._lock_permit = sql(f"SELECT limit_id FROM timeball_permit WHERE limit_id = :id {d.lock}")
        self._list = sql(f"SELECT {columns} FROM timeball_limit WHERE namespace = :namespace ORDER BY name")
        self._insert = sql(
            "INSERT INTO timeball_limit (namespace, name, running_max, started_max, window_us, description, version, "
            "updated_at) VALUES (:namespace, :name, :running_max, :started_max, :window_us, :description, 1, :at) "
            "RETURNING id"
        )
        self._insert_permit = sql("INSERT INTO timeball_permit (limit_id, state) VALUES (:id, '{}')")
        self._update = sql(
            "UPDATE timeball_limit SET running_max = :running_max, started_max = :started_max, window_us = :window_us, "
            "description = :description, version = version + 1, updated_at = :at WHERE id = :id AND version = :version"
        )
        self._delete = sql("DELETE FROM timeball_limit WHERE id = :id AND version = :version")
        self._delete_permit = sql("DELETE FROM timeball_permit WHERE limit_id = :id")
        # The pattern lets more through than it should; the definition itself decides.
        self._users = sql(
            f"SELECT {COLUMNS} FROM timeball_job WHERE namespace = :namespace AND live_name IS NOT NULL "
            f"AND definition LIKE '%\"limits\":[%' ORDER BY id"
        )

    def set(
        self, namespace: str, name: str, rule: LimitRule, *, actor: str, expected_version: int | None = None
    ) -> tuple[Limit, bool]:
        """Make the limit be so; the limit, and whether anything changed. `expected_version` 0: only a new one.

        When this has returned no start is judged by what it said before. Raises Conflict (the version moved on).
        """

        def work(tx: Transaction) -> tuple[Limit, bool]:
            row = tx.one(self._lock, namespace=namespace, name=name)
            before = None if row is None else _limit(row)
            version = 0 if before is None else before.version
            if expected_version is not None and version != expected_version:
                raise Conflict(
                    f"limit {name!r} is at version {version}, not {expected_version}: somebody changed it",
                    hint="read it again and repeat the change",
                )
            if before is not None and before.rule == rule:
                return before, False
            at = tx.now()
            if before is None:
                made = tx.one(self._insert, namespace=namespace, name=name, at=at, **_values(rule))
                assert made is not None
                tx.count(self._insert_permit, id=made[0])
            else:
                tx.all(self._lock_permit, id=before.id)  # waits for starts in flight
                tx.count(self._update, id=before.id, version=version, at=at, **_values(rule))
            _tell(tx, namespace, "edited" if before else "created", name, version + 1, actor, at)
            tx.notify(work_channel(namespace))
            return self._read(tx, namespace, name), True

        try:
            return self._db.transact(work)
        except Duplicate:  # another one made it at the same moment
            return self._db.transact(work)

    def delete(self, namespace: str, name: str, *, actor: str) -> None:
        """Remove a limit. Raises NotFound, Conflict naming some of the jobs that name it."""

        def work(tx: Transaction) -> None:
            row = tx.one(self._lock, namespace=namespace, name=name)
            if row is None:
                raise no_such_limit(name)
            limit, users = _limit(row), self._users_of(tx, namespace, name)
            if users:
                more = f" and {len(users) - JOBS_NAMED_MAX} more" if len(users) > JOBS_NAMED_MAX else ""
                raise Conflict(
                    f"limit {name!r} is named by {', '.join(users[:JOBS_NAMED_MAX])}{more}",
                    hint="take it off those jobs first",
                )
            tx.all(self._lock_permit, id=limit.id)
            tx.count(self._delete, id=limit.id, version=limit.version)
            tx.count(self._delete_permit, id=limit.id)
            _tell(tx, namespace, "deleted", name, limit.version, actor, tx.now())

        self._db.transact(work)

    def get(self, namespace: str, name: str) -> Limit:
        """One limit. Raises NotFound."""
        return self._db.read(lambda tx: self._read(tx, namespace, name))

    def all(self, namespace: str) -> list[Limit]:
        """Every limit, by name."""
        return [_limit(row) for row in self._db.read(lambda tx: tx.all(self._list, namespace=namespace))]

    def use(self, namespace: str, limit: Limit) -> LimitUse:
        """What a limit holds back at this moment."""

        def work(tx: Transaction) -> LimitUse:
            return LimitUse(running=self._permits.running(tx, limit.id), jobs=self._users_of(tx, namespace, limit.name))

        return self._db.read(work)

    def _users_of(self, tx: Transaction, namespace: str, name: str) -> list[str]:
        jobs = [read_job(row) for row in tx.all(self._users, namespace=namespace)]
        return [job.name for job in jobs if name in job.definition.limits]

    def _read(self, tx: Transaction, namespace: str, name: str) -> Limit:
        row = tx.one(self._get, namespace=namespace, name=name)
        if row is None:
            raise no_such_limit(name)
        return _limit(row)


def no_such_limit(name: str) -> NotFound:
    """The error for a name that no limit has."""
    return NotFound(f"there is no limit named {name!r}", hint="timeball limits list", field="name")


def _limit(row: Row) -> Limit:
    rule = LimitRule(
        running_max=row[2],
        started_max=row[3],
        window_seconds=None if row[4] is None else row[4] / US,
        description=row[5],
    )
    return Limit(id=row[0], name=row[1], rule=rule, version=row[6], updated_at=row[7])


def _values(rule: LimitRule) -> dict[str, object]:
    return {
        "running_max": rule.running_max,
        "started_max": rule.started_max,
        "window_us": None if rule.window_seconds is None else int(rule.window_seconds * US),
        "description": rule.description,
    }


def _tell(tx: Transaction, namespace: str, what: str, name: str, version: int, actor: str, at: int) -> None:
    data = {"name": name, "version": version}
    add_event(tx, at=at, namespace=namespace, kind=f"limit.{what}", actor=actor, data=data)
