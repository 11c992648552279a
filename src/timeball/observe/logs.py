"""Facts as log lines: one place that words them, at the right level. Never a secret: facts carry none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from timeball.clock import format_instant
from timeball.events import facts

log = logging.getLogger("timeball")

_Line = tuple[int, Callable[[Any], str]]

_LINES: dict[type[facts.Fact], _Line] = {
    facts.InstanceJoined: (logging.INFO, lambda f: f"{f.name} joined as {f.instance_id}"),
    facts.InstanceGivenUp: (
        logging.WARNING,
        lambda f: f"{f.name} was given up by the cluster (silent too long); it comes back under a new id",
    ),
    facts.InstancesExpired: (logging.WARNING, lambda f: f"gave up {', '.join(f.names)}: membership ran out"),
    facts.LeaseTaken: (logging.INFO, lambda f: f"{f.name} leads, epoch {f.epoch}"),
    facts.LeaseEnded: (logging.INFO, lambda f: f"{f.name} leads no more (epoch {f.epoch}): {f.reason}"),
    facts.TicksMissed: (logging.WARNING, lambda f: f"job {f.job}: {f.count} ticks missed: {f.reason}"),
    facts.JobReplanned: (
        logging.WARNING,
        lambda f: (
            f"job {f.job} is planned anew by tzdata {f.tzdata}: {_instants(f.before)} became {_instants(f.after)}"
        ),
    ),
    facts.JobRewound: (
        logging.WARNING,
        lambda f: f"job {f.job} is planned anew: it was planned {f.by_us / 1e6:g} s into a future that is no more",
    ),
    facts.JobBroken: (logging.ERROR, lambda f: f"job {f.job} is set aside: {f.problem}"),
    facts.RunSuperseded: (
        logging.WARNING,
        lambda f: f"run {f.run_id} of {f.job}: the end of attempt {f.attempt} came too late and was refused",
    ),
    facts.RunSkipped: (logging.INFO, lambda f: f"run {f.run_id} skipped by its overlap policy"),
    facts.RunsLost: (
        logging.WARNING,
        lambda f: f"{len(f.run_ids)} runs lost with their instance, {f.rerun} of them will run again",
    ),
    facts.ClockStepped: (
        logging.WARNING,
        lambda f: f"the database's clock moved by {f.by_us / 1e6:+.3f} s against this host's; no tick is repeated",
    ),
    facts.LoopRecovered: (logging.INFO, lambda f: f"{f.loop}: works again"),
    facts.DrainEnded: (
        logging.INFO,
        lambda f: (
            f"{f.name} left"
            + (f"; not ended: runs {', '.join(map(str, f.left))}" if f.left else "")
            + (f"; {f.unsettled} outcomes were never written, their runs are lost" if f.unsettled else "")
        ),
    ),
}


def _instants(ticks: tuple[int, ...]) -> str:
    return ", ".join(str(format_instant(tick)) for tick in ticks) or "none"


def log_facts(fact: facts.Fact) -> None:
    """A subscriber of the bus."""
    if isinstance(fact, facts.RunEnded):
        _log_end(fact)
    elif isinstance(fact, facts.LoopFailing):
        log.warning("%s: %s; trying again", fact.loop, fact.error)
    elif type(fact) in _LINES:
        level, words = _LINES[type(fact)]
        log.log(level, "%s", words(fact))


def _log_end(fact: facts.RunEnded) -> None:
    level = logging.DEBUG if fact.state == "succeeded" else logging.WARNING
    if log.isEnabledFor(level):
        again = ", will be tried again" if fact.retried else ""
        error = f": {fact.error}" if fact.error else ""
        log.log(
            level,
            "run %d of %s, attempt %d: %s after %.3f s%s%s",
            fact.run_id,
            fact.job,
            fact.attempt,
            fact.state,
            fact.duration_us / 1e6,
            error,
            again,
        )


def configure_logging(level: str) -> None:
    """Log lines to standard error, with time and thread: for processes that are Timeball's own."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("alembic").setLevel(logging.WARNING)
