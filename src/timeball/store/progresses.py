"""The verb of progress: how far runs are, by their own word. Words for people only: nothing is decided by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from timeball.store.database import Database, Transaction, sql


class ProgressRow(NamedTuple):
    """`fraction`: 0 to 1; `at`: when it was said, an instant in microseconds. Named by its fence, as all is."""

    run_id: int
    fence: int
    fraction: float
    text: str
    at: int


class Progresses:
    """A table of its own, so that nobody who locks a run ever waits for them, or they for him."""

    def __init__(self, database: Database) -> None:
        self._db = database
        d = database.dialect
        rows = d.rows("v", "said", id="BIGINT", fence="BIGINT", fraction="DOUBLE PRECISION", text="TEXT", at="BIGINT")
        self._write = sql(
            f"INSERT INTO timeball_progress (run_id, fence, fraction, text, at) "
            f"SELECT v.id, v.fence, v.fraction, v.text, v.at FROM {rows} JOIN timeball_run r "
            f"ON r.id = v.id AND r.fence = v.fence WHERE r.id {d.any_of('ids', 'BIGINT')} "
            f"ON CONFLICT (run_id) DO UPDATE SET fence = excluded.fence, fraction = excluded.fraction, "
            f"text = excluded.text, at = excluded.at"
        )

    def write(self, rows: Sequence[ProgressRow]) -> int:
        """Keep the last word of each run, in one statement; how many were kept: those of older attempts are not."""
        ordered = sorted(rows)

        def work(tx: Transaction) -> int:
            tx.join_by_hash()
            return tx.count(self._write, ids=tx.list([row.run_id for row in ordered]), **tx.rows("said", ordered, 5))

        return self._db.transact(work)
