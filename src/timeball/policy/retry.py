"""Whether and when an attempt that failed is tried again. Pure."""

from __future__ import annotations

import hashlib

from timeball.clock import seconds_to_us
from timeball.model.job import Backoff, Definition, RetryOn
from timeball.model.run import Outcome
from timeball.model.states import State

RETRIED = frozenset({State.FAILED, State.TIMED_OUT})
_KINDS = {
    "exception": RetryOn.EXCEPTION,
    "fail": RetryOn.EXCEPTION,
    "retry": RetryOn.EXCEPTION,
    "exit-code": RetryOn.EXIT_CODE,
    "signal": RetryOn.SIGNAL,
    "http-status": RetryOn.HTTP_STATUS,
    "timeout": RetryOn.TIMED_OUT,
}
"""The kind of an end by its reason."""


def retry_at(definition: Definition, outcome: Outcome, *, ended_at: int) -> int | None:
    """The instant of the next attempt in microseconds, or None when this one was the last.

    The work's own word (`Outcome.retry`) goes before the job's `retry_on`, never beyond `attempts_max`; the wait that
    it or the far side asks for (`Outcome.retry_after_us`) takes the place of the job's back-off; that of the far side
    is bounded by `backoff_max_seconds` too.
    """
    if outcome.state not in RETRIED or outcome.retry is False or outcome.attempt >= definition.attempts_max:
        return None
    if outcome.retry is None and definition.retry_on and kind_of(outcome) not in definition.retry_on:
        return None
    if outcome.retry_after_us is not None:
        bound = outcome.retry_after_us if outcome.retry else seconds_to_us(definition.backoff_max_seconds)
        return ended_at + max(0, min(outcome.retry_after_us, bound))
    return ended_at + _wait_us(definition, outcome)


def kind_of(outcome: Outcome) -> RetryOn:
    """Which kind of end an outcome is, as `retry_on` names them."""
    if outcome.state is State.TIMED_OUT:
        return RetryOn.TIMED_OUT
    return _KINDS.get(outcome.reason or "", RetryOn.OTHER)


def no_more_words(definition: Definition, outcome: Outcome) -> str:
    """What to say when the work asked to be tried again and must not be; empty when there is nothing to say."""
    if outcome.retry is not True or outcome.attempt < definition.attempts_max:
        return ""
    return f"; it is not tried again: attempts_max is {definition.attempts_max}"


def _wait_us(definition: Definition, outcome: Outcome) -> int:
    wait = definition.backoff_seconds
    if definition.backoff != Backoff.FIXED:
        wait *= 2.0 ** min(outcome.attempt - 1, 60)
    whole = seconds_to_us(min(wait, definition.backoff_max_seconds))
    if definition.backoff != Backoff.JITTERED:
        return whole
    # Between half and the whole, so that those that failed together do not come back together.
    drawn = hashlib.blake2b(f"{outcome.run_id} {outcome.attempt}".encode(), digest_size=8).digest()
    return whole - int.from_bytes(drawn) % (whole // 2 + 1)
