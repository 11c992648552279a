"""Facts as log lines: one place that words them, at the right level. Never a secret: facts carry none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from timeball.clock import format_instant
from timeball.events import facts

log = logging.getLogger("timeball")
SHOWN_MAX = 10

_Line = tuple[int, Callable[[Any], str]]

_LINES: dict[type[facts.Fact], _Line] = {
    facts.InstanceJoined: (logging.INFO, lambda f: f"{f.name} joined as {f.instance_id}"),
    facts.InstanceGivenUp: (
        logging.WARNING,
        lambda f: f"{f.name} was given up by the cluster (silent too long); it comes back under a new id",
    ),
    facts.ClusterStarted: (logging.INFO, lambda f: f"the cluster has started ({format_instant(f.at_us)})"),
    facts.InstancesExpired: (logging.WARNING, lambda f: f"gave up {', '.join(f.names)}: membership ran out"),
    facts.SchemaRefused: (
        logging.ERROR,
        lambda f: f"{f.name} starts, claims and plans nothing more until the schema is right again: {f.reason}",
    ),
    facts.SchemaAccepted: (logging.INFO, lambda f: f"{f.name} goes on: the schema is right again"),
    facts.LeaseTaken: (logging.INFO, lambda f: f"{f.name} leads, epoch {f.epoch}"),
    facts.LeaseEnded: (logging.INFO, lambda f: f"{f.name} leads no more (epoch {f.epoch}): {f.reason}"),
    facts.TicksMissed: (logging.WARNING, lambda f: f"job {f.job}: {counted(f.count, 'tick')} missed: {f.reason}"),
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
    facts.RunSkipped: (logging.INFO, lambda f: f"run {f.run_id} of {f.job} skipped by its overlap policy: {f.reason}"),
    facts.RunsLost: (
        logging.WARNING,
        lambda f: f"{counted(len(f.run_ids), 'run')} lost with the instance, {f.rerun} to run again: {_few(f.run_ids)}",
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
            + (f"; {counted(f.unsettled, 'outcome')} never written: what they were of is lost" if f.unsettled else "")
        ),
    ),
}


_END_LEVELS = {"succeeded": logging.DEBUG, "skipped": logging.INFO}


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _few(run_ids: tuple[int, ...]) -> str:
    more = f" and {len(run_ids) - SHOWN_MAX} more" if len(run_ids) > SHOWN_MAX else ""
    return ", ".join(map(str, run_ids[:SHOWN_MAX])) + more


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
    level = _END_LEVELS.get(fact.state, logging.WARNING)
    if log.isEnabledFor(level):
        again = ", will be tried again" if fact.retried else ""
        words = fact.reason if fact.state == "skipped" else fact.error
        error = f": {words}" if words else ""
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
