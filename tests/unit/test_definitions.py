"""What a definition accepts, and that its text means the same thing when it is read again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeball.clock import parse_instant
from timeball.errors import InvalidInput
from timeball.model.fields import check_name, requires_key
from timeball.model.job import NO_BOUND, Backoff, Definition, Misfire, OnLost, Overlap
from timeball.model.states import FATES, LIVE, MOVES, PENDING, RERUNNABLE, SETTLED, State, is_legal
from timeball.schedule import schedule_of

BASE: dict[str, Any] = {"schedule": "none", "executor": "function", "target": {"name": "f"}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def define(**values: Any) -> Definition:
    return Definition.from_dict({**BASE, **values})


@pytest.mark.parametrize("before", sorted(State))
@pytest.mark.parametrize("after", sorted(State))
def test_only_moves_of_the_table_are_legal(before: State, after: State) -> None:
    assert is_legal(before, after) is (after in MOVES[before])


def test_what_ended_badly_runs_again_at_most_and_lost_may_still_be_corrected() -> None:
    assert {state for state in FATES if MOVES[state]} == RERUNNABLE
    assert all(MOVES[state] == {State.PLANNED} for state in RERUNNABLE - {State.LOST})
    assert MOVES[State.LOST] == SETTLED | {State.PLANNED}
    assert PENDING < LIVE
    assert not LIVE & FATES
    assert all(is_legal(State.PLANNED, state) for state in (State.SKIPPED, State.MISSED, State.CANCELLED))
    assert not any(is_legal(State.RUNNING, state) for state in (State.MISSED, State.CLAIMED))


@given(
    args=st.dictionaries(st.text(max_size=10), JSON, max_size=4),
    overlap=st.sampled_from(list(Overlap)),
    misfire=st.sampled_from(list(Misfire)),
    on_lost=st.sampled_from(list(OnLost)),
    backoff=st.sampled_from(list(Backoff)),
    timeout=st.none() | st.floats(0.001, 1e6),
)
def test_every_definition_survives_json(
    args: dict[str, Any], overlap: str, misfire: str, on_lost: str, backoff: str, timeout: float | None
) -> None:
    definition = define(
        args=args, overlap=overlap, misfire=misfire, on_lost=on_lost, backoff=backoff, timeout_seconds=timeout
    )
    again = Definition.from_json(definition.to_json())
    assert again == definition
    assert again.to_json() == definition.to_json()


def test_equal_definitions_have_equal_texts_whatever_the_order() -> None:
    assert define(args={"a": 1, "b": 2}).to_json() == define(args={"b": 2, "a": 1}).to_json()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"'])
def test_a_text_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Definition.from_json(text)


@pytest.mark.parametrize("name", ["schedule", "executor", "target"])
def test_what_must_be_there_is_asked_for_by_name(name: str) -> None:
    with pytest.raises(InvalidInput, match="is missing") as caught:
        Definition.from_dict({key: value for key, value in BASE.items() if key != name})
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("args", {"a": float("nan")}),
        ("args", {"a": float("inf")}),
        ("args", {1: 1, "b": 2}),
        ("args", {"a": "x" * 70_000}),
        ("target", "f"),
        ("requires", {"gpu": "x" * 501}),
        ("timeout_seconds", float("nan")),
        ("misfire_after_seconds", 0),
        ("misfire_after_seconds", None),
        ("catchup_max", 1001),
        ("catchup_max", -1),
        ("concurrency_max", 0),
        ("queue_max", -1),
        ("attempts_max", 0),
        ("lost_max", -1),
        ("deadline_seconds", 1e12),
        ("backoff_seconds", -1),
        ("misfire", "ignore"),
        ("on_lost", "retry"),
        ("backoff", "linear"),
        ("timezone", 1),
        ("description", None),
    ],
)
def test_what_cannot_be_kept_or_done_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        define(**{field: value})
    assert caught.value.field == field


def test_bounds_themselves_are_allowed() -> None:
    define(catchup_max=0, attempts_max=1000, priority=-1000, queue_max=0, lost_max=0, concurrency_max=1)
    define(requires={"gpu": "x" * 496}, deadline_seconds=None, timeout_seconds=None)


@pytest.mark.parametrize(
    ("overlap", "concurrency_max", "exclusive", "running_max"),
    [
        ("skip", None, True, 1),
        ("queue", None, True, 1),
        ("replace", None, True, 1),
        ("allow", None, False, NO_BOUND),
        ("allow", 3, True, 3),
        ("skip", 3, True, 1),
    ],
)
def test_how_many_may_run_at_once(overlap: str, concurrency_max: int | None, exclusive: bool, running_max: int) -> None:
    definition = define(overlap=overlap, concurrency_max=concurrency_max)
    assert (definition.exclusive, definition.running_max) == (exclusive, running_max)


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("priority", "7", 7),
        ("timeout_seconds", "none", None),
        ("timeout_seconds", "1.5", 1.5),
        ("args", '{"a": 1}', {"a": 1}),
        ("description", "12", "12"),
        ("overlap", "queue", "queue"),
    ],
)
def test_a_field_is_set_from_text(field: str, text: str, value: object) -> None:
    assert getattr(define().with_text(field, text), field) == value


@pytest.mark.parametrize(("field", "text"), [("priority", "high"), ("args", "{"), ("executor", "x"), ("nothing", "1")])
def test_a_text_that_does_not_fit_its_field_is_refused(field: str, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        define().with_text(field, text)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("path", "text", "part", "value"),
    [
        ("target.cwd", "/srv", "cwd", "/srv"),
        ("target.nice", "5", "nice", 5),
        ("target.umask", "027", "umask", "027"),
        ("target.limits.cpu_seconds", "60", "limits", {"cpu_seconds": 60, "memory_bytes": 7}),
        ("target.limits.memory_bytes", "", "limits", {}),
        ("target.success_codes", "[0, 3]", "success_codes", [0, 3]),
    ],
)
def test_one_part_of_the_target_is_set_from_text(path: str, text: str, part: str, value: object) -> None:
    before = define(target={"argv": ["/bin/true"], "limits": {"memory_bytes": 7}})
    after = before.with_text(path, text)
    assert after.target[part] == value
    assert after.target["argv"] == ["/bin/true"]
    assert before.target["limits"] == {"memory_bytes": 7}


def test_a_part_of_what_has_no_parts_is_refused() -> None:
    with pytest.raises(InvalidInput, match="has no parts") as caught:
        define(target={"argv": ["/bin/true"], "cwd": "/"}).with_text("target.cwd.x", "1")
    assert caught.value.field == "target.cwd"
    with pytest.raises(InvalidInput, match="names no part"):
        define().with_text("target.", "1")


def test_required_labels_have_one_text() -> None:
    assert requires_key({"zone": "a", "gpu": "1"}) == requires_key({"gpu": "1", "zone": "a"}) == "gpu=1,zone=a"
    assert requires_key({}) == ""


def test_names_may_hold_any_letters() -> None:
    for name in ("a", "nightly report", "名前", "x" * 200):
        assert check_name(name) == name


def test_the_text_is_plain_json() -> None:
    assert json.loads(define(description="é").to_json())["description"] == "é"


def test_a_job_that_names_no_rule_for_clock_changes_has_its_dialects() -> None:
    night = parse_instant("2026-03-28T12:00:00Z")  # the next morning Berlin's clocks skip 02:30
    ticks: dict[str, int | None] = {}
    for dialect, schedule in (("standard", "30 2 * * *"), ("go-admin", "0 30 2 * * *")):
        definition = define(schedule=schedule, dialect=dialect, timezone="Europe/Berlin")
        ticks[dialect] = schedule_of(definition, name="j", anchor_at=0).next_after(night)
    assert ticks["standard"] == parse_instant("2026-03-29T01:00:00Z")  # right after the gap
    assert ticks["go-admin"] == parse_instant("2026-03-30T00:30:00Z")  # that day has no such time
