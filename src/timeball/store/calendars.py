"""Verbs about named calendars: create, edit, delete, read, and which jobs carry one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from timeball.errors import Conflict, Duplicate, NotFound
from timeball.model.calendar import Calendar, Content, calendar_name
from timeball.model.job import Job
from timeball.store.database import Database, Row, Transaction, sql
from timeball.store.events import add_event
from timeball.store.jobs import COLUMNS, read_job

JOBS_PER_READ = 500
JOBS_NAMED_MAX = 10


class Calendars:
    """The named calendars of each namespace. Jobs carry copies of them."""

    def __init__(self, database: Database) -> None:
        self._db = database
        columns, by_name = (
            "namespace, name, rules, description, version, updated_at",
            "namespace = :namespace AND name = :name",
        )
        self._get = sql(f"SELECT {columns} FROM timeball_calendar WHERE {by_name}")
        # Waits for jobs that are being saved with it: see `holds`.
        self._lock = sql(f"SELECT {columns} FROM timeball_calendar WHERE {by_name} {database.dialect.lock}")
        self._list = sql(f"SELECT {columns} FROM timeball_calendar WHERE namespace = :namespace ORDER BY name")
        self._insert = sql(
            "INSERT INTO timeball_calendar (namespace, name, rules, description, version, updated_at) "
            "VALUES (:namespace, :name, :rules, :description, 1, :at)"
        )
        self._update = sql(
            f"UPDATE timeball_calendar SET rules = :rules, description = :description, version = version + 1, "
            f"updated_at = :at WHERE {by_name} AND version = :version"
        )
        self._delete = sql(f"DELETE FROM timeball_calendar WHERE {by_name} AND version = :version")
        # The pattern lets more through than it should; `_carries` decides.
        self._users = sql(
            f"SELECT {COLUMNS} FROM timeball_job WHERE namespace = :namespace AND live_name IS NOT NULL AND id > :after "
            f"AND definition LIKE :pattern ESCAPE '!' ORDER BY id LIMIT :limit"
        )

    def create(self, namespace: str, name: str, content: Content, *, actor: str) -> Calendar:
        """A new calendar. Raises Conflict: the name is taken."""

        def work(tx: Transaction) -> Calendar:
            at = tx.now()
            binds = {"rules": content.to_json(), "description": content.description}
            tx.count(self._insert, namespace=namespace, name=name, at=at, **binds)
            _tell(tx, namespace, "created", name, 1, actor, at)
            return self._read(tx, namespace, name)

        try:
            return self._db.transact(work)
        except Duplicate as error:
            raise Conflict(
                f"a calendar named {name!r} exists already",
                hint="choose another name, or edit that calendar",
                field="name",
            ) from error

    def edit(
        self, namespace: str, name: str, content: Content, *, actor: str, expected_version: int | None = None
    ) -> tuple[Calendar, bool]:
        """Other content; the calendar, and whether anything changed. Raises NotFound, Conflict (the version moved on).

        The jobs that carry it have to follow, each in a transaction of its own.
        """

        def work(tx: Transaction) -> tuple[Calendar, bool]:
            before = self._locked(tx, namespace, name, expected_version)
            if before.content == content:
                return before, False
            at = tx.now()
            changed = tx.count(
                self._update,
                namespace=namespace,
                name=name,
                rules=content.to_json(),
                description=content.description,
                version=before.version,
                at=at,
            )
            assert changed == 1, "the calendar's row was locked and yet changed"
            _tell(tx, namespace, "edited", name, before.version + 1, actor, at)
            return self._read(tx, namespace, name), True

        return self._db.transact(work)

    def delete(self, namespace: str, name: str, *, actor: str) -> None:
        """Remove a calendar. Raises NotFound, Conflict naming some of the jobs that carry it."""

        def work(tx: Transaction) -> None:
            before = self._locked(tx, namespace, name, None)
            users = self._all_users(tx, namespace, name)
            if users:
                raise Conflict(_in_use(name, [job.name for job in users]), hint="take it off those jobs first")
            deleted = tx.count(self._delete, namespace=namespace, name=name, version=before.version)
            assert deleted == 1, "the calendar's row was locked and yet changed"
            _tell(tx, namespace, "deleted", name, before.version, actor, tx.now())

        self._db.transact(work)

    def get(self, namespace: str, name: str) -> Calendar:
        """One calendar. Raises NotFound."""
        return self._db.read(lambda tx: self._read(tx, namespace, name))

    def all(self, namespace: str) -> list[Calendar]:
        """Every calendar, by name."""
        return [_calendar(row) for row in self._db.read(lambda tx: tx.all(self._list, namespace=namespace))]

    def users(self, namespace: str, name: str) -> Sequence[Job]:
        """The jobs that carry a copy of a calendar, in whatever state, by id."""
        return self._db.read(lambda tx: self._all_users(tx, namespace, name))

    def _all_users(self, tx: Transaction, namespace: str, name: str) -> list[Job]:
        binds: dict[str, Any] = {"namespace": namespace, "pattern": _pattern(name), "limit": JOBS_PER_READ}
        users: list[Job] = []
        after_id = 0
        while rows := tx.all(self._users, after=after_id, **binds):
            after_id = rows[-1][0]
            users += [job for job in map(read_job, rows) if calendar_name(job.definition.calendar) == name]
        return users

    def _locked(self, tx: Transaction, namespace: str, name: str, expected_version: int | None) -> Calendar:
        row = tx.one(self._lock, namespace=namespace, name=name)
        if row is None:
            raise no_such_calendar(namespace, name)
        before = _calendar(row)
        if expected_version is not None and before.version != expected_version:
            raise Conflict(
                f"calendar {name!r} is at version {before.version}, not {expected_version}: somebody changed it",
                hint="read it again and repeat the change",
            )
        return before

    def _read(self, tx: Transaction, namespace: str, name: str) -> Calendar:
        row = tx.one(self._get, namespace=namespace, name=name)
        if row is None:
            raise no_such_calendar(namespace, name)
        return _calendar(row)


def no_such_calendar(namespace: str, name: str) -> NotFound:
    """The error for a name that no calendar has."""
    where = "" if namespace == "default" else f" in namespace {namespace!r}"
    return NotFound(f"there is no calendar named {name!r}{where}", hint="timeball calendars list", field="calendar")


def _calendar(row: Row) -> Calendar:
    content = Content.from_json(row[2], description=row[3])
    return Calendar(namespace=row[0], name=row[1], content=content, version=row[4], updated_at=row[5])


def _pattern(name: str) -> str:
    text = json.dumps(name, ensure_ascii=False)
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return f'%"calendar":{{%"name":{text}%'


def _in_use(name: str, jobs: Sequence[str]) -> str:
    named = ", ".join(sorted(jobs)[:JOBS_NAMED_MAX])
    more = f" and {len(jobs) - JOBS_NAMED_MAX} more" if len(jobs) > JOBS_NAMED_MAX else ""
    return f"calendar {name!r} is in use by {named}{more}"


def _tell(tx: Transaction, namespace: str, what: str, name: str, version: int, actor: str, at: int) -> None:
    data = {"name": name, "version": version}
    add_event(tx, at=at, namespace=namespace, kind=f"calendar.{what}", actor=actor, data=data)
