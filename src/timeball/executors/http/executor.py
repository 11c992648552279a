"""HTTP: one event loop in one thread for all requests. Owns that thread; each attempt owns its connections."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import resource
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from timeball.clock import monotonic_us
from timeball.errors import SettingsError, TargetError, TimeballError
from timeball.executors.contract import Report
from timeball.executors.http.addresses import AddressRules, refused_words
from timeball.executors.http.target import read_target
from timeball.executors.redaction import Redactor
from timeball.executors.registry import refused
from timeball.executors.secrets import has_reference
from timeball.model.run import Outcome, Work
from timeball.model.states import State

if TYPE_CHECKING:
    from timeball.executors.http.exchange import Exchange, Means

EXTRA = ("httpx2", "httpcore2", "anyio")
EXTRA_HINT = "pip install 'timeball[http]'"
FILES_KEPT = 256
"""File descriptors that requests leave to the rest of the process."""
STOP_SECONDS = 2.0
BEGUN_AT_ONCE = 16
_log = logging.getLogger("timeball.executors")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What the operator sets. `allow`: networks and hosts beside the public internet; `proxy`: its URL or nothing."""

    allow: Sequence[str] = ()
    proxy: str = ""
    ca_file: str = ""
    connections_max: int = 1000
    response_bytes_max: int = 64 * 1024 * 1024
    output_bytes_max: int = 65_536


class Call:
    """One attempt in hand. Used on the loop only, but for `work`."""

    def __init__(self, work: Work, report: Report) -> None:
        self.work = work
        self.report = report
        self.begun_at = monotonic_us()
        self.ending: tuple[State, str, str] | None = None
        self.task: asyncio.Task[None] | None = None
        self.exchange: Exchange | None = None

    def end(self, state: State, reason: str, error: str) -> None:
        """End it now; the first reason counts."""
        if self.ending is None:
            self.ending = (state, reason, error)
            if self.task is not None:
                self.task.cancel()

    def begin(self) -> None:
        """It runs now, in the current task. Raises CancelledError when it was ended before it began."""
        self.begun_at = monotonic_us()
        self.task = asyncio.current_task()  # not before: a task that is cancelled before its first step takes none
        if self.ending is not None:
            raise asyncio.CancelledError


class HttpExecutor:
    """Sends requests. All of them share a thread, and `connections_max` connections at once."""

    kind = "http"

    def __init__(self, limits: HttpLimits) -> None:
        """Raises SettingsError for networks or a proxy that are malformed."""
        self._limits = limits
        self._rules = AddressRules(limits.allow)
        _check_proxy(limits.proxy)
        self._lock = threading.Lock()
        self._empty = threading.Condition(self._lock)
        self._calls: dict[int, Call] = {}
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thread: threading.Thread | None = None
        self._means: Means | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_connections(limits.connections_max))

    def handlers(self) -> Sequence[str]:
        """This instance takes HTTP jobs when the extra is installed."""
        return (self.kind,) if _installed() else ()

    def handler_of(self, target: Mapping[str, Any]) -> str:
        """Every request needs the same: an instance with the extra."""
        return self.kind

    def check(self, target: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        """Refuse a malformed target, and an address that stands in its URL and is not allowed. Raises TargetError."""
        if not _installed():
            raise TargetError("HTTP jobs need an extra that is not installed here", hint=EXTRA_HINT, field="executor")
        if args:
            raise TargetError("an HTTP target takes no args", hint="put them into json, form or body", field="args")
        url = read_target(target).url
        host = urlsplit(url).hostname or ""
        why = None if "${" in host else self._rules.refusal_of_literal(host)
        if why is not None:
            shown = "its host" if has_reference(url) else host
            raise TargetError(refused_words(shown, [(shown, why)]), field="target.url")

    def prepare(self) -> None:
        """Import the libraries and read the certificates, on the loop, unless that has been done."""
        with self._lock:
            if self._means is None and not self._closing and _installed():
                self._started().call_soon_threadsafe(self._prepare)

    def submit(self, batch: Sequence[Work], report: Report) -> None:
        """Send each request now, as far as there is room for its connection."""
        calls = [Call(work, report) for work in batch]
        with self._lock:
            closing = self._closing
            if not closing:
                self._calls |= {call.work.run_id: call for call in calls}
                loop = self._started()
                loop.call_soon_threadsafe(self._begin, calls)
        if closing:
            for work in batch:
                report(refused(work, "start", "this instance is ending"))

    def cancel(self, run_id: int, reason: str, *, grace_seconds: float | None = None) -> bool:
        """End the request at once, whatever the grace: the far side sees its connection close."""
        del grace_seconds
        with self._lock:
            call = self._calls.get(run_id)
            if call is None or self._loop is None:
                return False
            self._loop.call_soon_threadsafe(call.end, State.CANCELLED, "cancelled", reason)
        return True

    def running(self) -> Sequence[int]:
        """Ids of the runs whose outcome has not been told."""
        with self._lock:
            return tuple(self._calls)

    def close(self, grace_seconds: float) -> Sequence[int]:
        """End every request, then the loop and its thread; ids of what could not be ended."""
        with self._lock:
            self._closing = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return ()
        for run_id in self.running():
            self.cancel(run_id, "the instance is ending")
        with self._empty:
            self._empty.wait_for(lambda: not self._calls, max(grace_seconds, STOP_SECONDS))
        left = self.running()
        with contextlib.suppress(RuntimeError):  # closed before
            loop.call_soon_threadsafe(self._stop.set)
        thread.join(STOP_SECONDS)
        return left

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="timeball-http", daemon=True)
            self._thread.start()
        return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._stop.wait())
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _begin(self, calls: Sequence[Call]) -> None:
        """Begin a few; the others in the loop's next round, so that the first ones are on their way by then."""
        assert self._loop is not None
        for call in calls[:BEGUN_AT_ONCE]:
            task = self._loop.create_task(self._attempt(call), name=f"run {call.work.run_id} of job {call.work.job!r}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if len(calls) > BEGUN_AT_ONCE:
            self._loop.call_soon(self._begin, calls[BEGUN_AT_ONCE:])

    async def _attempt(self, call: Call) -> None:
        """Exactly one outcome, whatever happens."""
        assert self._loop is not None
        timeout = call.work.timeout_seconds
        timer: asyncio.TimerHandle | None = None
        if timeout is not None:
            words = f"ended after its time-out of {timeout:g} s"
            timer = self._loop.call_later(timeout, call.end, State.TIMED_OUT, "timeout", words)
        try:
            call.begin()
            outcome = await self._exchange(call)
        except asyncio.CancelledError:
            outcome = _ended(call, *(call.ending or (State.CANCELLED, "cancelled", "the instance is ending")))
        except TimeballError as error:
            outcome = _ended(call, State.FAILED, "http", str(error))
        except Exception as error:  # noqa: BLE001 - a fault of ours ends one run, not the loop of all
            trace = Redactor(call.work.secrets).text(traceback.format_exc())
            _log.error("run %d: the request could not be made\n%s", call.work.run_id, trace)
            outcome = _ended(call, State.FAILED, "http", f"the request could not be made: {type(error).__name__}")
        if timer is not None:
            timer.cancel()
        call.report(outcome)
        with self._empty:
            self._calls.pop(call.work.run_id, None)
            self._empty.notify_all()

    async def _exchange(self, call: Call) -> Outcome:
        from timeball.executors.http.exchange import Exchange  # noqa: PLC0415 - needs the extra

        async with self._room:
            call.exchange = Exchange(call.work, read_target(call.work.target), self._shared())
            verdict = await call.exchange.run()
        return _ended(call, verdict.state, verdict.reason, verdict.error)._replace(
            retry_after_us=verdict.retry_after_us
        )

    def _prepare(self) -> None:
        with contextlib.suppress(TimeballError):  # each run will say so
            self._shared()

    def _shared(self) -> Means:
        """What all exchanges share, made when the first one needs it."""
        if self._means is None:
            from timeball.executors.http.means import make_means  # noqa: PLC0415 - needs the extra

            self._means = make_means(self._limits, self._rules)
        return self._means


def _ended(call: Call, state: State, reason: str | None, error: str | None) -> Outcome:
    exchange = call.exchange
    if exchange is not None and call.ending is not None and error is not None:
        error = f"{error}; on its way: {exchange.at}"
    return Outcome(
        run_id=call.work.run_id,
        attempt=call.work.attempt,
        fence=call.work.fence,
        state=state,
        begun_at=call.begun_at,
        ended_at=monotonic_us(),
        reason=reason,
        error=error,
        result=None if exchange is None else exchange.result(),
        outputs=() if exchange is None else exchange.outputs(),
    )


def _installed() -> bool:
    return all(importlib.util.find_spec(name) for name in EXTRA)


def _connections(wanted: int) -> int:
    """Not more than the process may open files: a request that waits is better than one that fails."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, max(files - FILES_KEPT, files // 2)))


def _check_proxy(proxy: str) -> None:
    try:
        parts = urlsplit(proxy)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise SettingsError(f"http_proxy is not a URL: {error}", field="http_proxy") from error
    if proxy and (parts.scheme not in ("http", "https") or not host):
        raise SettingsError("http_proxy must be http://HOST:PORT or https://HOST:PORT", field="http_proxy")
