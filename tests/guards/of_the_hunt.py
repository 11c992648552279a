"""The guards that the whole design rests on: without any of them the simulation breaks within a minute.

Where others back a guard up, so that no history can tell that it is gone, they are taken out with it.
"""

from __future__ import annotations

from tests.guards.catalogue import hunted
from tests.guards.of_runs import NAMED, OURS, SETTLED

HUNTED = (
    hunted(
        "hunt: the term is proved in a leader's transaction",
        "I7",
        ("store/leases.py", "epoch=term.epoch) is None:", "epoch=term.epoch) == ():"),
    ),
    hunted(
        "hunt: a settle names its fence, or the attempt that stands for it",
        "I7 I13",
        (
            "store/settles.py",
            f'f"timeball_run.id {{ids}} {NAMED}"',
            'f"timeball_run.id {ids} AND timeball_run.id = v.id "',
        ),
        ("store/settles.py", SETTLED, "f\"AND timeball_run.state IN ('running', 'lost')\""),
    ),
    hunted(
        "hunt: a start has its claim",
        "I1 I4",
        ("store/starts.py", OURS, "ours = \":me <> ''\""),
    ),
    hunted(
        "hunt: a tick is unique, when an edit meets one that began early",
        "I1 I22",
        ("store/plans.py", "ON CONFLICT (job_id, due_at, salt) DO NOTHING", ""),
        ("store/changes.py", " ON CONFLICT (job_id, due_at, salt) DO NOTHING", ""),
        (
            "store/migrations/versions/0001_core.py",
            'sa.UniqueConstraint("job_id", "due_at", "salt", name="timeball_run_tick"),',
            "",
        ),
        ("store/changes.py", "boundary = at if early is None else early[0]", "boundary = at"),
    ),
    hunted(
        "hunt: the lease has a local deadline",
        "I8",
        ("engine/lease.py", " or self._clock.monotonic() >= self._trusted_until", ""),
    ),
    hunted(
        "hunt: a start looks at the job, whose stop has taken its claims back",
        "I19",
        (
            "store/starts.py",
            "AND {JOB_UNCHANGED} AND {member_valid(d.now)} RETURNING",
            "AND {member_valid(d.now)} RETURNING",
        ),
        (
            "store/changes.py",
            "        if coming:\n            tx.count(self._remove",
            "        if change.placement is None:\n            return 0\n"
            "        if coming:\n            tx.count(self._remove",
        ),
    ),
    hunted(
        "hunt: who is cut off ends its work",
        "I1 I27",
        ("engine/isolation.py", "isolated = now >= ask_at", "isolated = False"),
    ),
)
