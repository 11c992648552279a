"""The doctor: what a database must be and do for the promises to hold, one small check each. Leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from timeball.clock import wall_us
from timeball.errors import NotFound, StoreError
from timeball.settings import Settings
from timeball.store import Store
from timeball.store.inspection import Inspection, Probe
from timeball.store.revision import HEAD, check_schema, current_revision

CLOCK_WARN_US = 2_000_000
DISK_WARN_BYTES, DISK_FAIL_BYTES = 1 << 30, 50 << 20
NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "fuse.sshfs", "fuse.s3fs", "virtiofs")
OURS = {"lock_timeout": "2s", "idle_in_transaction_session_timeout": "2s", "transaction_isolation": "read committed"}


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check: what was found, and what would be right where it is not."""

    check: str
    verdict: Verdict
    found: str
    right: str = ""

    def to_json(self) -> dict[str, str]:
        """As plain JSON values."""
        return {**asdict(self), "verdict": self.verdict.value}


def examine(store: Store, settings: Settings) -> list[Finding]:
    """Every check that applies; where the database does not answer, that and what its file shows."""
    inspection = Inspection(store.database)
    file = inspection.file()
    of_file: dict[str, Callable[[], Finding]] = {}
    if file is not None:
        of_file = {
            "file system": lambda: file_system(file, Path("/proc/mounts")),
            "permissions": lambda: permissions(file),
            "disk": lambda: disk(shutil.disk_usage(file.parent).free),
        }
    first = answers(inspection)
    if first.verdict is Verdict.FAIL:
        return [first, *(_tried(name, check) for name, check in of_file.items())]
    checks: dict[str, Callable[[], Finding]] = {
        "schema": lambda: schema(store, settings),
        "writes": lambda: writes(inspection),
        "clock": lambda: clock(inspection.clock() - wall_us()),
    }
    if inspection.postgres:
        checks |= {
            "session": lambda: session(inspection.session()),
            "pooler": lambda: pooler(inspection.probes()),
        }
    elif file is not None:
        checks |= {"journal": lambda: journal(inspection.journal_mode()), **of_file}
    return [first, *(_tried(name, check) for name, check in checks.items())]


def _tried(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except (StoreError, OSError) as error:
        return Finding(check=name, verdict=Verdict.FAIL, found=str(error), right="an answer")


def answers(inspection: Inspection) -> Finding:
    """The database answers, and says which it is."""
    try:
        name = "PostgreSQL" if inspection.postgres else "SQLite"
        return Finding(check="answers", verdict=Verdict.OK, found=f"{name} {inspection.version()}")
    except StoreError as error:
        return Finding(
            check="answers", verdict=Verdict.FAIL, found=error.message, right=error.hint or "a database that answers"
        )


def schema(store: Store, settings: Settings) -> Finding:
    """The schema is one that this version works on, and the namespace's lease row is there."""
    try:
        check_schema(store.database, settings.namespace)
    except (StoreError, NotFound) as error:
        return Finding(check="schema", verdict=Verdict.FAIL, found=error.message, right=error.hint or f"schema {HEAD}")
    return Finding(check="schema", verdict=Verdict.OK, found=f"{current_revision(store.database)}, lease row there")


def writes(inspection: Inspection) -> Finding:
    """It can be written to: a row of ours is committed and removed, and the role has every right it needs."""
    why = inspection.read_only()
    missing = inspection.missing_rights()
    if why is None and not missing:
        return Finding(check="writes", verdict=Verdict.OK, found="a row was written and removed")
    found = "; ".join([*([why] if why else []), *(["no right to " + ", ".join(missing)] if missing else [])])
    right = "a primary with room on its disk, and a role that may write"
    if missing:
        right += ": GRANT SELECT, INSERT, UPDATE, DELETE on all tables timeball_*, USAGE on their sequences"
    return Finding(check="writes", verdict=Verdict.FAIL, found=found, right=right)


def session(found: dict[str, str]) -> Finding:
    """The isolation and the limits that we set are in force."""
    wrong = [f"{name} = {found.get(name)}" for name, value in OURS.items() if found.get(name) != value]
    wrong += ["statement_timeout = 0"] if found.get("statement_timeout") == "0" else []
    if not wrong:
        return Finding(check="session", verdict=Verdict.OK, found="isolation and time-outs as set")
    right = ", ".join(f"{name} = {value}" for name, value in OURS.items())
    return Finding(check="session", verdict=Verdict.FAIL, found=", ".join(wrong), right=right)


def pooler(probes: Sequence[Probe]) -> Finding:
    """One connection is one session: no pooler hands each transaction to another server process."""
    pids = {probe.pid for probe in probes}
    kept = all(probe.mark == "ours" for probe in probes)
    if len(pids) == 1 and kept:
        return Finding(check="pooler", verdict=Verdict.OK, found="one session per connection")
    found = f"{len(pids)} server processes behind one connection" if len(pids) > 1 else "session settings get lost"
    right = "a direct connection, or a pooler in session mode: time-outs and LISTEN belong to a session"
    return Finding(check="pooler", verdict=Verdict.FAIL, found=found, right=right)


def clock(difference_us: int) -> Finding:
    """How far this host's clock is from the database's; only for reading logs, no promise depends on it."""
    words = f"{difference_us / 1e6:+.3f} s against this host"
    if abs(difference_us) <= CLOCK_WARN_US:
        return Finding(check="clock", verdict=Verdict.OK, found=words)
    return Finding(
        check="clock", verdict=Verdict.WARN, found=words, right="both synchronised; runs follow the database"
    )


def journal(mode: str) -> Finding:
    """SQLite keeps a write-ahead log, so that readers do not stop writers."""
    if mode == "wal":
        return Finding(check="journal", verdict=Verdict.OK, found=mode)
    return Finding(check="journal", verdict=Verdict.FAIL, found=mode, right="wal; the file system may not allow it")


def file_system(file: Path, mounts: Path) -> Finding:
    """The file is on this host: over a network SQLite's locks and shared memory do not hold."""
    if not mounts.exists():
        return Finding(check="file system", verdict=Verdict.WARN, found="unknown on this system", right="a local one")
    rows = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    inside = [(point, kind) for point, kind in rows if file.is_relative_to(point.replace("\\040", " "))]
    point, kind = max(inside, key=lambda row: len(row[0]), default=("/", "unknown"))
    if kind.startswith(NETWORK):
        return Finding(check="file system", verdict=Verdict.FAIL, found=f"{kind} at {point}", right="a local one")
    return Finding(check="file system", verdict=Verdict.OK, found=kind)


def permissions(file: Path) -> Finding:
    """We can write the file and its folder (the log lies beside it), and not everybody else can."""
    closed = [str(path) for path in (file, file.parent) if not os.access(path, os.W_OK)]
    if closed:
        found = f"no right to write {', '.join(closed)}"
        return Finding(check="permissions", verdict=Verdict.FAIL, found=found, right="file and folder writable")
    mode = file.stat().st_mode
    if mode & stat.S_IWOTH:
        found = f"everybody can write {file}"
        return Finding(check="permissions", verdict=Verdict.WARN, found=found, right="chmod o-w")
    return Finding(check="permissions", verdict=Verdict.OK, found=stat.filemode(mode))


def disk(free_bytes: int) -> Finding:
    """There is room to write."""
    found = f"{free_bytes / (1 << 30):.1f} GiB free"
    if free_bytes >= DISK_WARN_BYTES:
        return Finding(check="disk", verdict=Verdict.OK, found=found)
    verdict = Verdict.WARN if free_bytes >= DISK_FAIL_BYTES else Verdict.FAIL
    return Finding(check="disk", verdict=verdict, found=found, right="1 GiB or more")
