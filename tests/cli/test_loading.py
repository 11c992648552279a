"""`serve --app MODULE:SCHEDULER`, before anything is started; and what may be offered as a function."""

from __future__ import annotations

from pathlib import Path

import pytest

from timeball import Scheduler
from timeball.app.load import load_scheduler
from timeball.errors import InvalidInput


@pytest.mark.parametrize(
    ("source", "place", "words"),
    [
        ("", "no_such_module:scheduler", "no module 'no_such_module'"),
        ("x = 1", "app_b", "does not name a scheduler"),
        ("x = 1", "app_c:scheduler", "no attribute 'scheduler'"),
        ("x = 1", "app_d:x", "is a int"),
        ("import no_such_library", "app_e:x", "no_such_library"),
        ("raise SystemExit(0)", "app_f:x", "SystemExit"),
        ("1 / 0", "app_g:x", "ZeroDivisionError"),
        ("def f(:", "app_h:x", "SyntaxError"),
    ],
)
def test_an_app_that_cannot_be_used_is_answered_in_words(tmp_path: Path, source: str, place: str, words: str) -> None:
    name = place.partition(":")[0]
    if source:
        (tmp_path / f"{name}.py").write_text(source)
    with pytest.raises(InvalidInput, match=words):
        load_scheduler(place)


def test_generators_are_refused_since_a_call_runs_nothing_of_them() -> None:
    scheduler = Scheduler()

    def sync_one():
        yield 1

    async def async_one():
        yield 1

    for function in (sync_one, async_one):
        with pytest.raises(InvalidInput, match="generator"):
            scheduler.function()(function)
    with pytest.raises(InvalidInput, match="not a function"):
        scheduler.function("x")("text")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("schedule", "kind"), [("61 * * * *", "out-of-range"), (None, "invalid-input"), ("@weird", "")]
)
def test_a_wrong_schedule_is_refused_at_the_decorator(schedule: str, kind: str) -> None:
    scheduler = Scheduler()
    with pytest.raises(InvalidInput, match="job 'report': ") as refused:
        scheduler.job("report", schedule)(lambda: None)
    assert kind in refused.value.code
    assert scheduler.functions.names() == []
