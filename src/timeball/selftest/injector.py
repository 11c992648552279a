"""Doing faults to a cluster: each in its own thread, each counted once it was applied, all healed at the end.

No instance is in two faults at once, and one is always left alone, except where the fault is the database's or only a
wall clock's.
"""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from timeball.clock import monotonic_us, seconds_to_us
from timeball.selftest.cluster import Cluster
from timeball.selftest.faults import (
    DISK_FULL,
    FAILOVER,
    KILL,
    PARTITION,
    PAUSE,
    RESTART,
    ROLLING,
    SKEW,
    SLOW,
    Fault,
)
from timeball.selftest.means import Means
from timeball.selftest.outages import Outages
from timeball.selftest.proxy import FROM_DATABASE, TO_DATABASE, Link, Proxies
from timeball.selftest.skew import CACHE_SECONDS

FIRST_VICTIM_SECONDS = 300.0
"""A fault of a kind that was never applied yet waits longer: one of each there must be."""
VICTIM_SECONDS, TURN_SECONDS, POLL_SECONDS = 5.0, 15.0, 0.1
HEAL_SECONDS = 300.0
"""Longer than the commands of the database's faults may take."""


class Injector:
    """`leader` names the leading instance, or None. `begin` returns at once; `heal` ends everything."""

    def __init__(
        self,
        cluster: Cluster,
        proxies: Proxies,
        names: Sequence[str],
        *,
        leader: Callable[[], str | None],
        means: Means,
        say: Callable[[str], None],
    ) -> None:
        self.applied: Counter[str] = Counter()
        self._cluster = cluster
        self._proxies = proxies
        self._names = list(names)
        self._leader = leader
        self._say = say
        self._over = threading.Event()
        self._busy: set[str | None] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        outages = Outages(
            means,
            proxies,
            applied=self.applied,
            trouble=lambda kind, text: cluster.troubles.append((kind, text)),
            say=say,
            over=self._over,
        )
        self._kinds: dict[str, Callable[[Fault], None]] = {
            KILL: self._kill,
            PAUSE: self._pause,
            PARTITION: self._partition,
            SLOW: self._slow,
            ROLLING: self._roll,
            SKEW: self._skew,
            RESTART: outages.restart,
            DISK_FULL: outages.fill_disk,
            FAILOVER: outages.fail_over,
        }

    def begin(self, fault: Fault) -> None:
        """Let a fault happen from now on."""
        thread = threading.Thread(target=self._do, args=(fault,), name=f"selftest-{fault.kind}", daemon=True)
        self._threads.append(thread)
        thread.start()

    @property
    def active(self) -> int:
        """How many faults are going on."""
        return sum(thread.is_alive() for thread in self._threads)

    def heal(self) -> None:
        """End every fault now, and wait until all is as if there had been none."""
        self._over.set()
        for thread in self._threads:
            thread.join(HEAL_SECONDS)

    def _do(self, fault: Fault) -> None:
        try:
            self._kinds[fault.kind](fault)
        except Exception as error:  # noqa: BLE001 - whatever it was, the run did not test what it should have
            self._cluster.troubles.append(("fault-failed", f"{fault.kind}: {type(error).__name__}: {error}"))

    def _kill(self, fault: Fault) -> None:
        with self._victim(fault) as name:
            if name is None:
                return
            self._say(f"{name} killed")
            self._cluster.kill(name)
            self.applied[KILL] += 1
            self._over.wait(fault.length_seconds)
            self._cluster.start(name)
            self._cluster.wait_up(name)

    def _pause(self, fault: Fault) -> None:
        with self._victim(fault) as name:
            if name is None:
                return
            self._say(f"{name} frozen for {fault.length_seconds:.1f} s")
            self._cluster.signal(name, signal.SIGSTOP)
            self.applied[PAUSE] += 1
            self._over.wait(fault.length_seconds)
            self._cluster.signal(name, signal.SIGCONT)

    def _partition(self, fault: Fault) -> None:
        with self._victim(fault) as name:
            if name is None:
                return
            link = self._proxies.links[name]
            self._say(f"{name} cut off from the database ({fault.how}) for {fault.length_seconds:.1f} s")
            self._break(link, fault.how)
            self.applied[PARTITION] += 1
            self._over.wait(fault.length_seconds)
            self._proxies.do(link.heal(resets=fault.resets))

    def _break(self, link: Link, how: str) -> None:
        ways = {
            "cut": link.cut,
            "refuse": link.refuse,
            "black-hole": lambda: link.shut(TO_DATABASE, FROM_DATABASE),
            "requests-lost": lambda: link.shut(TO_DATABASE),
            "answers-lost": lambda: link.shut(FROM_DATABASE),
        }
        self._proxies.do(ways[how]())

    def _slow(self, fault: Fault) -> None:
        """For everybody: a database that is slow is so for all."""
        self._say(f"database slower by {fault.delay_seconds * 2000:.0f} ms for {fault.length_seconds:.1f} s")
        self.applied[SLOW] += 1
        links = [self._proxies.links[name] for name in self._names]
        for link in links:
            link.delay_seconds = fault.delay_seconds
        self._over.wait(fault.length_seconds)
        for link in links:
            link.delay_seconds = 0.0

    def _roll(self, fault: Fault) -> None:
        """Each instance in its turn: SIGTERM, and started again once it has ended."""
        order = list(self._names)
        random.Random(fault.aim).shuffle(order)  # noqa: S311 - a test that can be repeated
        self._say("all instances are restarted, one after the other")
        for name in order:
            with self._turn_of(name) as mine:
                if mine:
                    self._cluster.end(name)
                    self._cluster.start(name)
                    self._cluster.wait_up(name)
                    self.applied[ROLLING] += 1
            if self._over.is_set():
                return

    def _skew(self, fault: Fault) -> None:
        """A wall clock goes wrong and right again; whatever else happens to the instance goes on meanwhile."""
        clocks = self._cluster.clocks
        assert clocks is not None
        leader = self._leader() if fault.at_leader else None
        name = leader if leader in clocks.names else clocks.names[int(fault.aim * len(clocks.names))]
        how = f"gains {fault.drift:+g} s a second" if fault.drift else f"is {fault.step_seconds:+.0f} s off"
        self._say(f"the wall clock of {name} {how} for {fault.length_seconds:.1f} s")
        self.applied[SKEW] += 1
        began = monotonic_us()
        clocks.set(name, 0.0 if fault.drift else fault.step_seconds)
        while (gone := (monotonic_us() - began) / seconds_to_us(1)) < fault.length_seconds:
            if fault.drift:
                clocks.set(name, fault.drift * gone)
            if self._over.wait(CACHE_SECONDS):
                break
        clocks.set(name, 0.0)

    @contextmanager
    def _victim(self, fault: Fault) -> Generator[str | None]:
        """An instance that is in no fault: the leader, or by the fault's aim; None when there is none to be had."""
        leader = self._leader() if fault.at_leader else None

        def choose(free: Sequence[str]) -> str | None:
            return leader if leader in free else free[int(fault.aim * len(free))]

        seconds = VICTIM_SECONDS if self.applied[fault.kind] else FIRST_VICTIM_SECONDS
        with self._taken(choose, seconds) as name:
            yield name

    @contextmanager
    def _turn_of(self, name: str) -> Generator[bool]:
        with self._taken(lambda free: name if name in free else None, TURN_SECONDS) as taken:
            yield taken is not None

    @contextmanager
    def _taken(self, choose: Callable[[Sequence[str]], str | None], seconds: float) -> Generator[str | None]:
        """Take one out of those that are in no fault, once there are two of them."""
        name = self._take(choose, seconds)
        try:
            yield name
        finally:
            with self._lock:
                self._busy -= {name}

    def _take(self, choose: Callable[[Sequence[str]], str | None], seconds: float) -> str | None:
        until = monotonic_us() + seconds_to_us(seconds)
        while monotonic_us() < until:
            with self._lock:
                free = [name for name in self._names if name not in self._busy]
                name = choose(free) if len(free) > 1 else None
                if name is not None:
                    self._busy.add(name)
                    return name
            if self._over.wait(POLL_SECONDS):
                return None
        return None
