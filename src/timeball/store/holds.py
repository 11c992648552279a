"""A job is saved only with what its named calendar says at that moment, and with limits that are there. Owns the checks.


The calendar's row is locked against writers until the job's transaction ends. So an edit of the calendar either
committed before, and the job's copy is found to be old here; or it waits, and then sees the job among those that have to
follow it. A version would not do in place of the content: a calendar that was deleted and made anew begins at 1 again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timeball.errors import CalendarChanged, InvalidInput
from timeball.model.calendar import Content, calendar_name
from timeball.store.database import Database, Transaction, sql


class CalendarHolds:
    """The lock and the comparison, inside the transaction of a job."""

    def __init__(self, database: Database) -> None:
        self._lock_shared = sql(
            f"SELECT rules FROM timeball_calendar WHERE namespace = :namespace AND name = :name "
            f"{database.dialect.lock_shared}"
        )

    def hold(self, tx: Transaction, namespace: str, calendar: Mapping[str, Any]) -> None:
        """Raise CalendarChanged unless the copy is equal to the calendar of its name; a job's own calendar always is."""
        name = calendar_name(calendar)
        if not name:
            return
        row = tx.one(self._lock_shared, namespace=namespace, name=name)
        if row is None or Content.from_json(row[0], description="").copy_in(calendar) != dict(calendar):
            raise CalendarChanged(f"calendar {name!r} was changed at the same moment", hint="try it again")


class LimitHolds:
    """The limits that a job names are there, and stay until its transaction has ended."""

    def __init__(self, database: Database) -> None:
        self._lock_shared = sql(
            f"SELECT name FROM timeball_limit WHERE namespace = :namespace "
            f"AND name {database.dialect.any_of('names', 'TEXT')} ORDER BY id {database.dialect.lock_shared}"
        )

    def hold(self, tx: Transaction, namespace: str, names: Sequence[str]) -> None:
        """Raise InvalidInput unless these limits exist."""
        if not names:
            return
        known = {row[0] for row in tx.all(self._lock_shared, namespace=namespace, names=tx.list(sorted(names)))}
        for name in names:
            if name not in known:
                raise InvalidInput(
                    f"there is no limit named {name!r}",
                    hint="timeball limits list; timeball limits set makes one",
                    field="limits",
                )
