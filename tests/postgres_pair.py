"""A throw-away PostgreSQL with a synchronous replica, on a disk of its own where one may be mounted.

As a program it does to a running pair what an operator would: `python tests/postgres_pair.py DEED FOLDER`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psycopg

from tests.postgres_server import NoServer, binaries, call, free_port, restart_command, unprivileged

REPLICA = "replica1"
DISK_BYTES = 400 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
WAIT_SECONDS, POLL_SECONDS = 60.0, 0.1
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
    "wal_keep_size": "96MB",
    "wal_retrieve_retry_interval": "200ms",
    "restart_after_crash": "on",
}


@dataclass(frozen=True)
class Pair:
    """Two data folders in one: `primary`, whose own disk it may be, and `replica`; a ballast fills that disk."""

    folder: Path
    has_disk: bool

    @property
    def primary(self) -> Path:
        return self.folder / "disk" / "primary"

    @property
    def replica(self) -> Path:
        return self.folder / "replica"

    @property
    def ballast(self) -> Path:
        return self.folder / "disk" / "ballast"

    @property
    def url(self) -> str:
        return url_of(self.primary)

    def flags(self, faults: Sequence[str]) -> list[str]:
        """What `timeball selftest` must be told for its faults."""
        given = {
            "db-restart": {"--restart-db": shlex.join(restart_command(str(self.primary)))},
            "db-failover": {
                "--failover-db": self._deed("fail-over"),
                "--failover-to": url_of(self.replica).rpartition("@")[2],
            },
            "disk-full": {"--fill-db": self._deed("fill"), "--free-db": self._deed("free")},
        }
        return [word for fault in faults for option in given.get(fault, {}).items() for word in option]

    def _deed(self, name: str) -> str:
        return shlex.join([sys.executable, str(Path(__file__).resolve()), name, str(self.folder)])


@contextlib.contextmanager
def postgres_pair(*, disk: bool) -> Generator[Pair]:
    """A running pair; with `disk` the primary is on one of its own. Raises NoServer, also where none may be mounted."""
    folder = Path(tempfile.mkdtemp(prefix="timeball-pair-"))
    pair = Pair(folder, disk)
    try:
        folder.chmod(0o755)
        for made in (pair.primary.parent, pair.primary, pair.replica):
            if made == pair.primary and disk:
                _mount(pair.primary.parent)
            made.mkdir()
            _own(made)
        try:
            _make_primary(pair.primary)
            _make_replica(pair)
            yield pair
        finally:
            for data in (pair.primary, pair.replica):
                _control(data, "-m", "immediate", "stop", check=False)
    finally:
        if disk:
            subprocess.run(["umount", str(pair.primary.parent)], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def url_of(data: Path) -> str:
    port = (data / "port").read_text(encoding="ascii").strip()
    return f"postgresql://postgres@127.0.0.1:{port}"


def fail_over(pair: Pair) -> None:
    """Once the replica has everything the primary ends as if it burnt, and the replica takes over."""
    _until(lambda: _is_in_step(pair.url), "the replica is not in step")
    _control(pair.primary, "-m", "immediate", "stop")
    _control(pair.replica, "-w", "promote")


def fill(pair: Pair) -> None:
    """Not one byte is left on the primary's disk."""
    with pair.ballast.open("wb", buffering=0) as file:
        for size in (CHUNK_BYTES, 4096):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass


def free(pair: Pair) -> None:
    """The disk has room again; a server that fell for want of it is started."""
    pair.ballast.unlink(missing_ok=True)
    _until(lambda: _answers(pair), "the server does not come back")


def _answers(pair: Pair) -> bool:
    if _control(pair.primary, "status", check=False):
        _start(pair.primary, check=False)
    try:
        with psycopg.connect(f"{pair.url}/postgres", connect_timeout=2, autocommit=True) as session:
            session.execute("CREATE TEMP TABLE room AS SELECT 1")
        return True
    except psycopg.Error:
        return False


def _is_in_step(url: str) -> bool:
    query = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND flush_lsn >= pg_current_wal_flush_lsn()"
    try:
        with psycopg.connect(f"{url}/postgres", connect_timeout=2) as session:
            return session.execute(query).fetchone() is not None
    except psycopg.Error:
        return False


def _make_primary(data: Path) -> None:
    flags = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--wal-segsize=1"]
    call([*unprivileged(), binaries() / "initdb", "-D", data, *flags])
    _configure(data, SETTINGS)
    _start(data)
    with psycopg.connect(f"{url_of(data)}/postgres", autocommit=True) as session:
        session.execute(f"SELECT pg_create_physical_replication_slot('{REPLICA}')")


def _make_replica(pair: Pair) -> None:
    source = f"{pair.url}/postgres?application_name={REPLICA}"
    flags = ["-d", source, "-D", pair.replica, "-R", "-X", "stream", "-S", REPLICA, "-c", "fast", "--no-sync"]
    call([*unprivileged(), binaries() / "pg_basebackup", *flags])
    _configure(pair.replica, {})
    _start(pair.replica)
    with psycopg.connect(f"{pair.url}/postgres", autocommit=True) as session:
        session.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{REPLICA}'")
        session.execute("SELECT pg_reload_conf()")
    _until(lambda: _is_in_step(pair.url), "the replica does not follow")


def _configure(data: Path, settings: dict[str, str]) -> None:
    """A port of its own; later lines win."""
    port = str(free_port())
    (data / "port").write_text(port, encoding="ascii")
    lines = [f"{name} = '{value}'\n" for name, value in {**settings, "port": port}.items()]
    with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.writelines(lines)


def _start(data: Path, *, check: bool = True) -> None:
    log = data.parent / f"{data.name}.log" if data.name == "replica" else data.parent.parent / f"{data.name}.log"
    if not log.exists():
        log.touch()
        _own(log)
    _control(data, "-w", "-t", "20", "-l", log, "start", check=check)


def _control(data: Path, *words: object, check: bool = True) -> int:
    """`pg_ctl`, its status. Its output goes nowhere: a server that it starts would hold a pipe open."""
    command = [str(word) for word in (*unprivileged(), binaries() / "pg_ctl", "-D", data, *words)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", check=False)
    if check and done.returncode:
        raise NoServer(f"{shlex.join(command)}: status {done.returncode}")
    return done.returncode


def _mount(folder: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=755", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoServer(f"no disk may be mounted: {error}") from error
    if done.returncode:
        raise NoServer(f"no disk may be mounted: {done.stderr.strip()}")


def _own(path: Path) -> None:
    if unprivileged():
        account = pwd.getpwnam("postgres")
        os.chown(path, account.pw_uid, account.pw_gid)
    path.chmod(0o700 if path.is_dir() else 0o600)


def _until(condition, words: str) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_SECONDS / POLL_SECONDS)):
        if condition():
            return
        pause.wait(POLL_SECONDS)
    raise NoServer(words)


DEEDS = {"fail-over": fail_over, "fill": fill, "free": free}

if __name__ == "__main__":
    DEEDS[sys.argv[1]](Pair(Path(sys.argv[2]), has_disk=True))
