"""Faults of a prediction in words, and what they mean for its result."""

from __future__ import annotations

from setpoint.view.fault_report import FaultReport, InjectedFault
from setpoint.view.plan import ObjectChange, PlanResult, report, text_report

CONFLICT = InjectedFault("controllers", "conflict:2", "write", "write 2 is answered with 409", 0.25, "update Pod a", 9)


def test_a_fault_that_occurred_or_did_not() -> None:
    assert CONFLICT.text == "+0.2s conflict:2 of the controllers: write 2 is answered with 409 (update Pod a)"
    assert CONFLICT._replace(at=None, seen=1).text == "conflict:2 of the controllers did not occur: there was 1 write"
    random = InjectedFault("nodes", "noise:1", "seed", "faults of all kinds occur at random", 0.0, "", 0)
    assert random.text == "+0.0s noise:1 of nodes: faults of all kinds occur at random"


def predicted(differences: list[str] | None) -> PlanResult:
    change = ObjectChange("created", "ConfigMap", "default", "a", "", [])
    return PlanResult(seconds=9.0, changes=[change], faults=FaultReport([CONFLICT], [], 0, differences, 3.0))


def test_the_same_end() -> None:
    result = predicted([])
    assert result.converges and result.exit_code == 2
    assert text_report(result, "default")[0] == (
        "The cluster would converge in 9.0s: 1 created. It would end as without the faults, which takes 3.0s."
    )


def test_another_end_is_a_failure() -> None:
    result = predicted(["differs: Deployment default/web", "    .status.readyReplicas: 5 -> 4"])
    assert not result.converges and result.exit_code == 1
    lines = text_report(result, "default")
    assert lines[0] == "The cluster would settle in 9.0s: 1 created. It would end otherwise than without the faults."
    place = lines.index("At the end, compared with the same change without faults:")
    assert lines[place + 1 : place + 3] == ["  differs: Deployment default/web", "      .status.readyReplicas: 5 -> 4"]


def test_ends_that_were_not_compared() -> None:
    result = predicted(None)
    assert result.converges
    assert report(result, "default")["verdict"] == "The cluster would converge in 9.0s: 1 created."
    assert report(result, "default")["sections"] == [{"title": "Faults", "lines": [CONFLICT.text]}]
