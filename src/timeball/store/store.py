"""The store: one contract, one method a verb, each verb one transaction. The only way to the tables."""

from __future__ import annotations

from collections.abc import Callable

from timeball.clock import wall_us
from timeball.store.audits import Audits
from timeball.store.backfills import BackfillRows, Backfills
from timeball.store.calendars import Calendars
from timeball.store.changes import Changes
from timeball.store.claims import Claims
from timeball.store.database import Database
from timeball.store.events import Events
from timeball.store.histories import Histories
from timeball.store.holds import CalendarHolds, LimitHolds
from timeball.store.jobs import Jobs
from timeball.store.leases import Leases
from timeball.store.limits import Limits
from timeball.store.members import Members
from timeball.store.permits import PermitCounts
from timeball.store.plans import Plans
from timeball.store.progresses import Progresses
from timeball.store.purges import Purges
from timeball.store.reaps import Reaps
from timeball.store.reboots import Reboots
from timeball.store.rulings import Rulings
from timeball.store.runs import Runs
from timeball.store.settles import Settles
from timeball.store.skips import Skips
from timeball.store.starts import Starts
from timeball.store.versions import Versions


class Store:
    """All verbs over one database, grouped by noun. Synchronous; safe to call from many threads."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.members = Members(database)
        self.leases = Leases(database)
        self.plans = Plans(database, self.leases)
        self.claims = Claims(database, self.leases)
        permits = PermitCounts(database)
        self.starts = Starts(database, self.leases, permits)
        self.settles = Settles(database)
        self.reaps = Reaps(database, self.leases)
        self.reboots = Reboots(database, self.leases, self.plans)
        self.progresses = Progresses(database)
        self.purges = Purges(database, self.leases)
        versions, holds, limits = Versions(), CalendarHolds(database), LimitHolds(database)
        self.jobs = Jobs(database, versions, holds, limits)
        backfills = BackfillRows(database)
        self.changes = Changes(database, versions, holds, limits, backfills)
        self.backfills = Backfills(database, self.leases, backfills)
        self.limits = Limits(database, permits)
        self.calendars = Calendars(database)
        self.skips = Skips(database)
        self.runs = Runs(database)
        self.rulings = Rulings(database)
        self.events = Events(database)
        self.audits = Audits(database)
        self.histories = Histories(database)

    def close(self) -> None:
        """Close every connection."""
        self.database.close()


def open_store(
    url: str, *, coordination_timeout_seconds: float = 2.0, host_clock: Callable[[], int] = wall_us
) -> Store:
    """The store behind a database URL. Connects lazily; raises SettingsError for a URL it cannot use."""
    return Store(Database(url, coordination_timeout_seconds=coordination_timeout_seconds, host_clock=host_clock))
