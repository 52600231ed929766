"""Conditions keep their transition time while their status stays the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from setpoint.meta.conditions import (
    changed_condition,
    condition_of,
    is_true,
    new_condition,
    with_condition,
    without_condition,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
READY = new_condition("Ready", "True", "Up", "", NOW)
OTHER = new_condition("Other", "False", "", "", NOW)


def holder(*conditions: Any) -> Any:
    return {"status": {"conditions": list(conditions)}}


def test_conditions_are_found_by_type() -> None:
    assert condition_of(holder(OTHER, READY), "Ready") == READY
    assert condition_of(holder(OTHER), "Ready") is None
    assert condition_of({"status": None}, "Ready") is None
    assert is_true(holder(READY), "Ready")
    assert not is_true(holder(OTHER), "Other")


def test_a_condition_replaces_the_one_of_its_type_in_place() -> None:
    before = [READY, OTHER]
    after = with_condition(before, new_condition("Ready", "False", "Down", "", LATER))
    assert [each["type"] for each in after] == ["Ready", "Other"]
    assert after[0]["lastTransitionTime"] == "2026-01-02T03:05:05Z"
    assert before == [READY, OTHER], "the list that was passed in is not modified"
    assert with_condition([OTHER], READY) == [OTHER, READY]
    assert without_condition(before, "Ready") == [OTHER]


def test_the_transition_time_stays_while_the_status_does() -> None:
    [after] = with_condition([READY], new_condition("Ready", "True", "StillUp", "", LATER))
    assert (after["reason"], after["lastTransitionTime"]) == ("StillUp", READY["lastTransitionTime"])


def test_a_condition_that_is_there_already_is_not_changed() -> None:
    wanted = {"type": "Ready", "status": "True", "reason": "Up"}
    assert changed_condition(holder(READY), wanted, LATER) is None
    assert changed_condition(holder(), wanted, NOW) == {**wanted, "lastTransitionTime": READY["lastTransitionTime"]}
    changed = changed_condition(holder(READY), {**wanted, "reason": "StillUp"}, LATER)
    assert changed is not None and changed["lastTransitionTime"] == READY["lastTransitionTime"]
