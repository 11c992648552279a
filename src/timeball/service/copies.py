"""A job's copy of a named calendar: made when the job is saved, and again when the calendar changed at that moment."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Mapping
from typing import TypeVar

from timeball.clock import local_instant
from timeball.errors import CalendarChanged, InvalidInput, NotFound
from timeball.model.calendar import Content, calendar_name
from timeball.model.job import Definition
from timeball.store import Store

T = TypeVar("T")
TRIES_MAX = 10
NOTICE_DAYS = 366


class CalendarCopies:
    """Copies of the calendars of one namespace."""

    def __init__(self, store: Store, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    def whole(self, definition: Definition, others: Mapping[str, Content] | None = None) -> Definition:
        """The definition with what the calendar of its name says; `others` go before those in the database.

        Raises InvalidInput: there is no calendar of that name.
        """
        name = calendar_name(definition.calendar)
        if not name:
            return definition
        content = (others or {}).get(name) or self._content(name)
        return dataclasses.replace(definition, calendar=content.copy_in(definition.calendar))

    def saving(self, definition: Definition, save: Callable[[Definition], T]) -> T:
        """What `save` answers to the whole definition; asked again when the calendar was changed at the same moment."""
        return self.again(lambda: save(self.whole(definition)))

    def again(self, save: Callable[[], T]) -> T:
        """What `save` answers; asked again, a bounded number of times, when a calendar was changed meanwhile."""
        for attempt in range(TRIES_MAX):
            try:
                return save()
            except CalendarChanged:
                if attempt == TRIES_MAX - 1:
                    raise
        raise AssertionError("unreachable")

    def note(self, definition: Definition) -> str | None:
        """A remark when the calendar of a job knows little of the future."""
        name = calendar_name(definition.calendar)
        return None if not name else reach_note(name, self._content(name), self._store.members.clock())

    def _content(self, name: str) -> Content:
        try:
            return self._store.calendars.get(self._namespace, name).content
        except NotFound as error:
            hint = f"timeball calendars add {name}, or one of timeball calendars list"
            raise InvalidInput(error.message, hint=hint, field="calendar") from error


def reach_note(name: str, content: Content, now: int) -> str | None:
    """A remark when imported rules end within a year, or have ended."""
    if not content.until:
        return None
    until = dt.date.fromisoformat(content.until)
    days = (until - local_instant(now, dt.UTC).date()).days
    if days > NOTICE_DAYS:
        return None
    past = "knew of days only" if days < 0 else "knows of days only"
    return f"calendar {name!r} {past} until {until}: import later years with timeball calendars edit"
