"""The self-test from its first process to its verdict. Owns the order; whatever happens, nothing of it stays behind."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from timeball.app.schema import ensure_schema
from timeball.app.wiring import Parts, connect
from timeball.clock import monotonic_us, seconds_to_us
from timeball.errors import StoreError, TimeballError
from timeball.model.job import Definition
from timeball.selftest.addresses import through_proxy, upstream_of
from timeball.selftest.checker import check
from timeball.selftest.cluster import LEASE_SECONDS, NAMESPACE, Cluster
from timeball.selftest.evidence import read_marks
from timeball.selftest.faults import plan_faults
from timeball.selftest.history import History
from timeball.selftest.injector import Injector
from timeball.selftest.jobs import COMMAND, COMMAND_SCHEDULE, PLAIN_JOBS
from timeball.selftest.ledger import (
    Offset,
    audit_troubles,
    lease_hands,
    live_runs,
    read_reboots,
    read_runs,
    read_versions,
    sample_offset,
)
from timeball.selftest.means import Means
from timeball.selftest.meddler import Meddler
from timeball.selftest.place import Place, is_sqlite, place_beside
from timeball.selftest.proxy import Proxies
from timeball.selftest.skew import WallClocks
from timeball.selftest.verdict import Verdict
from timeball.selftest.work import scheduler
from timeball.service.cluster import cluster_status
from timeball.settings import Settings

OURS = "self-test"
"""The name of our own link to the database."""
STEP_SECONDS, ASK_SECONDS = 0.1, 1.0
CALM_SECONDS = 2 * LEASE_SECONDS
FATES_SECONDS = 60.0
TICKS_MIN_PART, CHANGES_MIN_PER_SECOND = 0.8, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user asked for; `faults` are checked already."""

    database_url: str
    instances: int
    minutes: float
    faults: tuple[str, ...]
    seed: int
    means: Means
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What there is to show while it runs. `said`: what has happened since the last one."""

    elapsed_seconds: float
    length_seconds: float
    active_faults: int
    applied: Mapping[str, int]
    leader: str
    said: tuple[str, ...]


class Play:
    """`run` tells the whole story; `show` is called a few times a second."""

    def __init__(self, wish: Wish, show: Callable[[Progress], None]) -> None:
        self._wish = wish
        self._show = show
        self._said: list[str] = []
        self._names = [f"mast-{number + 1}" for number in range(wish.instances)]
        self._began = monotonic_us()
        self._leads, self._ask_at = "nobody", 0.0

    def run(self) -> Verdict:
        """Play it and check it. Raises TimeballError when it cannot even begin; KeyboardInterrupt passes through."""
        wish = self._wish
        with Proxies() as proxies, place_beside(wish.database_url, keep=wish.keep, way=self._way(proxies)) as place:
            if wish.keep:
                self._said.append(f"kept: {place.name}; evidence and logs in {place.folder}")
            fake = wish.means.faketime
            clocks = WallClocks(place.folder, fake, self._names[1::2]) if fake else None
            cluster = Cluster(place.folder, self._ways(place, proxies), self._said.append, clocks)
            settings = Settings(database_url=place.url, namespace=NAMESPACE, command_allow=("*",))
            parts = connect(settings, scheduler.functions)
            try:
                ensure_schema(parts.store, parts.settings, upgrade=True)
                return self._play(place, parts, cluster, proxies)
            finally:
                cluster.kill_all()
                parts.store.close()

    def _play(self, place: Place, parts: Parts, cluster: Cluster, proxies: Proxies) -> Verdict:
        self._start(cluster)
        service = parts.jobs("selftest")
        service.create(COMMAND, _command_job(cluster.evidence()))
        offset = sample_offset(parts.store)
        injector = Injector(
            cluster,
            proxies,
            self._names,
            leader=lambda: _leader(parts),
            means=self._wish.means,
            say=self._said.append,
        )
        meddler = Meddler(service, self._wish.seed, threading.Event())
        with _in_thread(meddler):
            try:
                self._faults(parts, cluster, injector)
            finally:
                injector.heal()
            self._calm(parts, cluster, injector)
        meddler.stop_all()
        self._wait_for_fates(parts)
        late_offset = sample_offset(parts.store)
        cluster.end_all()
        history = self._history(place, parts, cluster, injector, meddler, (offset, late_offset))
        violations, figures = check(history)
        return Verdict(
            seed=self._wish.seed, history=history, violations=violations, figures=figures, faults=dict(injector.applied)
        )

    def _way(self, proxies: Proxies) -> Callable[[str], str]:
        """Our own way to the database: through a proxy as well, so that we follow it when it fails over."""
        url = self._wish.database_url
        if is_sqlite(url):
            return lambda given: given
        port = proxies.add(OURS, upstream_of(url, os.environ)).port
        return lambda given: through_proxy(given, port)

    def _ways(self, place: Place, proxies: Proxies) -> Callable[[str], str]:
        """On a server each instance has a proxy of its own; a file is a file."""
        if is_sqlite(place.url):
            return lambda _: place.url
        upstream = upstream_of(self._wish.database_url, os.environ)
        ports = {name: proxies.add(name, upstream).port for name in self._names}
        return lambda name: through_proxy(place.url, ports[name])

    def _start(self, cluster: Cluster) -> None:
        for name in self._names:
            cluster.start(name)
        for name in self._names:
            if not cluster.wait_up(name):
                text = (cluster.folder / f"{name}.log").read_text(errors="replace")[-2000:]
                raise TimeballError(f"{name} did not come up: {text.strip()}")

    def _faults(self, parts: Parts, cluster: Cluster, injector: Injector) -> None:
        length = self._wish.minutes * 60
        plan = plan_faults(self._wish.seed, self._wish.faults, length_seconds=length, lease_seconds=LEASE_SECONDS)
        self._began = monotonic_us()
        pause = threading.Event()
        while (elapsed := self._elapsed()) < length:
            while plan and plan[0].at_seconds <= elapsed:
                injector.begin(plan.pop(0))
            self._tell(parts, cluster, injector)
            pause.wait(STEP_SECONDS)

    def _calm(self, parts: Parts, cluster: Cluster, injector: Injector) -> None:
        """Without faults long enough for the cluster to find and rerun what was lost."""
        self._said.append("all faults healed")
        until, pause = self._elapsed() + CALM_SECONDS, threading.Event()
        while self._elapsed() < until:
            self._tell(parts, cluster, injector)
            pause.wait(STEP_SECONDS)

    def _tell(self, parts: Parts, cluster: Cluster, injector: Injector) -> None:
        cluster.revive()
        if self._elapsed() >= self._ask_at:
            self._leads, self._ask_at = _leader(parts) or "nobody", self._elapsed() + ASK_SECONDS
        said = tuple(self._said)
        del self._said[: len(said)]
        self._show(
            Progress(
                elapsed_seconds=self._elapsed(),
                length_seconds=self._wish.minutes * 60 + CALM_SECONDS,
                active_faults=injector.active,
                applied=dict(injector.applied),
                leader=self._leads,
                said=said,
            )
        )

    def _wait_for_fates(self, parts: Parts) -> None:
        until, pause = self._elapsed() + FATES_SECONDS, threading.Event()
        while self._elapsed() < until:
            with contextlib.suppress(StoreError):
                if not live_runs(parts.store):
                    return
            pause.wait(STEP_SECONDS)

    def _history(
        self,
        place: Place,
        parts: Parts,
        cluster: Cluster,
        injector: Injector,
        meddler: Meddler,
        offsets: tuple[Offset, Offset],
    ) -> History:
        marks, broken = read_marks(place.folder)
        troubles = [*cluster.troubles, *meddler.troubles, *audit_troubles(parts.store)]
        troubles += [("unreadable-evidence", line) for line in broken]
        first, last = offsets
        return History(
            marks=marks,
            versions=list(read_versions(parts.store)),
            runs=list(read_runs(parts.store)),
            changes=meddler.changes,
            triggers=meddler.triggers,
            wanted_faults=self._wish.faults,
            faults=dict(injector.applied),
            ticks_min=int(self._wish.minutes * 60 * PLAIN_JOBS * TICKS_MIN_PART),
            changes_min=int(self._wish.minutes * 60 * CHANGES_MIN_PER_SECOND),
            offset_us=first.us,
            offset_error_us=first.error_us + last.error_us + abs(first.us - last.us),
            lease_hands=lease_hands(parts.store),
            reboots=read_reboots(parts.store),
            troubles=troubles,
        )

    def _elapsed(self) -> float:
        return (monotonic_us() - self._began) / seconds_to_us(1)


@contextlib.contextmanager
def _in_thread(meddler: Meddler) -> Generator[None]:
    thread = threading.Thread(target=meddler.run, name="selftest-meddler", daemon=True)
    thread.start()
    try:
        yield
    finally:
        meddler.over.set()
        thread.join()


def _leader(parts: Parts) -> str | None:
    try:
        leader = cluster_status(parts.store, NAMESPACE).leader
    except StoreError:
        return None
    return None if leader is None else leader.name


def _command_job(evidence: Mapping[str, str]) -> Definition:
    paths = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    target = {"argv": [sys.executable, "-m", "timeball.selftest.command"], "env": {**evidence, **paths}}
    return Definition(schedule=COMMAND_SCHEDULE, executor="command", target=target, overlap="allow")
