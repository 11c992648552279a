"""Adopting: outcomes that instances of this host left on disk are written by whoever comes next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from timeball.engine.member import Member
from timeball.engine.spill import Spill, SpillFile
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.settles import Ending

INTERVAL_SECONDS = 15.0
_log = logging.getLogger("timeball.engine")


class Adopter:
    """One look into the folder. `write`: writes endings in the name of an instance; the runs that accepted theirs."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        member: Member,
        spill: Spill,
        write: Callable[[Sequence[Ending], str], frozenset[int]],
    ) -> None:
        self._store = store
        self._settings = settings
        self._member = member
        self._spill = spill
        self._write = write
        self._strangers: set[str] = set()

    def step(self) -> float:
        """Settle what others left. Returns seconds until the next look. Raises StoreError, and then the files stay."""
        if not self._member.trusted:
            return 1.0
        with self._spill.left() as files:
            known = {i.id for i in self._store.members.all(self._settings.namespace)} if files else set()
            for file in files:
                if file.instance_id in known:
                    self._adopt(file)
                elif file.instance_id not in self._strangers:
                    self._strangers.add(file.instance_id)
                    _log.warning("%s is of no instance that this database knows; it stays there", file.path)
        return INTERVAL_SECONDS

    def _adopt(self, file: SpillFile) -> None:
        endings = file.read()
        accepted = 0
        for begin in range(0, len(endings), self._settings.settle_batch_max):
            batch = endings[begin : begin + self._settings.settle_batch_max]
            accepted += len(self._write(batch, file.instance_id))
        file.remove()
        _log.info("wrote %d of %d outcomes that %s left; the others came too late", accepted, len(endings), file.path)
