"""Wall clocks that are wrong: instances under libfaketime, each with its offset in a file of its own.

Only the wall clock is faked. Monotonic clocks stay true, and with them the instants of the evidence: `check_library`
refuses a library under which they do not.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from timeball.clock import monotonic_us, seconds_to_us, wall_us
from timeball.errors import InvalidInput

PLACES = (
    "usr/lib/*-linux-*/faketime/libfaketimeMT.so.1",  # Debian, Ubuntu
    "usr/lib64/faketime/libfaketimeMT.so.1",  # Fedora
    "usr/lib/faketime/libfaketimeMT.so.1",  # Arch, Alpine
    "usr/local/lib*/faketime/libfaketimeMT.so.1",
)
WHEEL, IN_WHEEL = "libfaketime", "vendor/libfaketime/src/libfaketime.so.1"
HINT = "install the package libfaketime (apt, dnf, pip), or say --faketime PATH"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where shm_open(3) puts it on Linux
CACHE_SECONDS = 1
"""How long a process may go on with the offset that it has read."""
TRIAL_SECONDS, WRONG_SECONDS_MAX = 3600.0, 60.0
TRIAL_TIMEOUT_SECONDS = 30.0
TRIAL = "from timeball.clock import monotonic_us, pause_us, wall_us; pause_us(1000); print(wall_us(), monotonic_us())"


class WallClocks:
    """The wall clocks of some instances, by name; each begins true.

    These instances run no commands. The library wraps the locks of threads in a lock of its own; a process that is
    forked while another thread holds that one waits for it for ever, before it becomes the command.
    """

    def __init__(self, folder: Path, library: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._library = library
        self.names = tuple(names)

    def environment(self, name: str) -> dict[str, str]:
        """What makes an instance have the wall clock of that name; nothing for one that has the host's."""
        if name not in self.names:
            return {}
        file = self._file(name)
        if not file.exists():
            self.set(name, 0.0)
        return {
            "LD_PRELOAD": " ".join(filter(None, (str(self._library), os.environ.get("LD_PRELOAD")))),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": f"{CACHE_SECONDS}",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "TIMEBALL_COMMAND_ALLOW": "",
        }

    def set(self, name: str, offset_seconds: float) -> None:
        """Step a clock, also of a process that runs: it looks into its file again within `CACHE_SECONDS`."""
        file = self._file(name)
        fresh = file.with_suffix(".new")
        fresh.write_text(f"{offset_seconds:+.3f}\n", encoding="ascii")
        fresh.replace(file)

    def forget(self, pid: int) -> None:
        """Remove what the library leaves in shared memory for a process that was killed."""
        for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            with contextlib.suppress(OSError):  # most have none, and one of a stranger's is not ours to remove
                (SHARED_MEMORY / name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.clock"


def find_library(given: str | None = None) -> Path:
    """The library that fakes clocks: the given one, or else one that is installed here.

    Raises InvalidInput where there is none, or it does not work.
    """
    if given is not None:
        library = Path(given).absolute()
        if not library.is_file():
            raise InvalidInput(f"there is no library {given}", hint=HINT, field="faketime")
    else:
        library = next(installed_libraries(), None)
        if library is None:
            raise InvalidInput("wrong clocks need libfaketime, which is not installed here", hint=HINT, field="faults")
    check_library(library)
    return library


def installed_libraries(root: Path = Path("/")) -> Iterator[Path]:
    """Where distributions put it, then where pip does."""
    for place in PLACES:
        yield from sorted(root.glob(place))
    wheel = importlib.util.find_spec(WHEEL)
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        if Path(folder, IN_WHEEL).is_file():
            yield Path(folder, IN_WHEEL)


def check_library(library: Path) -> None:
    """Try it: the wall clock must go wrong, the monotonic one must not. Raises InvalidInput."""
    with tempfile.TemporaryDirectory() as folder:
        clocks = WallClocks(Path(folder), library, ("trial",))
        clocks.set("trial", TRIAL_SECONDS)
        wall, monotonic = wall_us(), monotonic_us()
        done = _try(clocks.environment("trial"))
        words = done.stdout.split()
        if done.returncode or len(words) != 2:
            raise _useless(library, done.stderr.strip()[-500:] or "a Python under it ended")
    seen = int(words[0]) - wall, int(words[1]) - monotonic
    for seconds, expected, clock in zip(seen, (TRIAL_SECONDS, 0.0), ("wall", "monotonic"), strict=True):
        if abs(seconds / seconds_to_us(1) - expected) > WRONG_SECONDS_MAX:
            raise _useless(library, f"{done.stderr.strip()[-500:]} the {clock} clock is not as it should be".strip())


def _try(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", TRIAL],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TRIAL_TIMEOUT_SECONDS,
        check=False,
    )


def _useless(library: Path, words: str) -> InvalidInput:
    return InvalidInput(f"{library} does not work here: {words}", hint=HINT, field="faketime")
