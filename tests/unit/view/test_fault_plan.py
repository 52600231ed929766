"""Fault plans: their text contains everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.view.fault_plan import KINDS, BadPlan, Fault, Plan


@st.composite
def some_fault(draw: st.DrawFn) -> Fault:
    kind = draw(st.sampled_from(sorted(KINDS)))
    lasting = draw(st.none() | st.integers(1, 24 * 3600 * 1000)) if KINDS[kind].lasting else None
    node = draw(st.sampled_from(["", "node-1", "node-17", "a.b"])) if KINDS[kind].node else ""
    return Fault(kind, draw(st.integers(1, 10**9 - 1)), -1.0 if lasting is None else lasting / 1000, node)


@given(st.lists(some_fault(), max_size=5))
def test_a_printed_plan_parses_to_the_same_plan(faults: list[Fault]) -> None:
    plan = Plan(tuple(faults))
    assert Plan.parse(str(plan)) == plan


@given(st.text(alphabet="abcdehrsty-:+@/0123456789. ", max_size=40))
def test_any_parsed_plan_survives_a_round_trip(text: str) -> None:
    try:
        plan = Plan.parse(text)
    except BadPlan:
        return
    assert Plan.parse(str(plan)) == plan


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("crash-after:7", "crash-after:7"),
        ("stale:2+crash-after:3", "stale:2+crash-after:3"),
        ("down:2/60s", "down:2/1m"),
        ("down:2/1s", "down:2"),
        ("down:2/90m", "down:2/1h30m"),
        ("partition:1@node-2/1h", "partition:1@node-2/1h"),
        ("partition:1@node-1/2m", "partition:1"),
        (" error:1 + error:2 ", "error:1+error:2"),
        ("noise:0", "noise:0"),
        ("none", "none"),
    ],
)
def test_short_forms(text: str, printed: str) -> None:
    assert str(Plan.parse(text)) == printed


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "'' is no fault: they look like crash-after:3"),
        ("crash:1", "unknown fault 'crash'; the kinds are error, conflict, crash-before"),
        ("crash-after", "crash-after needs a number, such as crash-after:1"),
        ("error:0", "writes are counted from 1"),
        ("drop-watch:0", "events are counted from 1"),
        ("error:1/5s", "error has no duration"),
        ("down:1/5", "missing unit in duration"),
        ("down:1/25h", "at most one day"),
        ("down:1/1us", "whole milliseconds"),
        ("down:1@node-1", "down does not concern a node"),
        ("error:1+" * 30 + "error:1", "at most 20 faults"),
    ],
)
def test_invalid_plans_are_rejected(text: str, complaint: str) -> None:
    with pytest.raises(BadPlan) as caught:
        Plan.parse(text)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("error:1", "without a number"),
        ("noise", "try it with `only`"),
        ("stale+drop-watch", "all about writes, or all about events"),
    ],
)
def test_faults_that_cannot_be_explored_are_rejected(text: str, complaint: str) -> None:
    with pytest.raises(BadPlan, match=complaint):
        Plan.template(text)


def test_a_template_is_applied_at_a_point() -> None:
    assert str(Plan.template("stale/3s+crash-after").at_point(4)) == "stale:4/3s+crash-after:4"


@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_has_a_description(kind: str) -> None:
    description = Fault(kind, 41).description
    assert "41" in description and "{" not in description
