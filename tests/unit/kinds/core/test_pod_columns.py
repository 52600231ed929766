from datetime import UTC, datetime
from typing import Any

import pytest

from setpoint.kinds.core.pod import STRATEGY

NOW = datetime(2026, 1, 1, 1, 0, 0, tzinfo=UTC)


def cells(status: dict[str, Any], meta: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    obj = {
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z", **(meta or {})},
        "spec": {"containers": [{"name": "c"}], **spec},
        "status": status,
    }
    return {column.name: column.cell(obj, NOW) for column in STRATEGY.columns}


def of(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "c", "state": state, **more}


INIT = [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]


@pytest.mark.parametrize(
    ("status", "spec", "ready", "shown"),
    [
        ({"phase": "Pending"}, {}, "0/1", "Pending"),
        ({"phase": "Failed", "reason": "Evicted"}, {}, "0/1", "Evicted"),
        ({"phase": "Running", "containerStatuses": [of({"running": {}}, ready=True)]}, {}, "1/1", "Running"),
        (
            {"phase": "Running", "containerStatuses": [of({"waiting": {"reason": "CrashLoopBackOff"}})]},
            {},
            "0/1",
            "CrashLoopBackOff",
        ),
        ({"phase": "Failed", "containerStatuses": [of({"terminated": {"exitCode": 3}})]}, {}, "0/1", "ExitCode:3"),
        (
            {"phase": "Failed", "containerStatuses": [of({"terminated": {"signal": 9, "exitCode": 137}})]},
            {},
            "0/1",
            "Signal:9",
        ),
        (
            {"phase": "Succeeded", "containerStatuses": [of({"terminated": {"reason": "Completed"}})]},
            {},
            "0/1",
            "Completed",
        ),
        (
            {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [of({"terminated": {"reason": "Completed"}}), of({"running": {}}, ready=True)],
            },
            {},
            "1/1",
            "Running",
        ),
        (
            {
                "phase": "Running",
                "containerStatuses": [of({"terminated": {"reason": "Completed"}}), of({"running": {}}, ready=True)],
            },
            {},
            "1/1",
            "NotReady",
        ),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            {},
            "0/1",
            "SchedulingGated",
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]},
            {"initContainers": INIT},
            "0/2",
            "Init:0/2",
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}],
            },
            {"initContainers": INIT},
            "0/2",
            "Init:Error",
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"name": "i", "state": {"terminated": {}}},
                    {"name": "s", "state": {"running": {}}, "started": True, "ready": True},
                ],
            },
            {"initContainers": INIT},
            "1/2",
            "Pending",
        ),
    ],
)
def test_ready_and_status(status: dict[str, Any], spec: dict[str, Any], ready: str, shown: str) -> None:
    found = cells(status, **spec)
    assert (found["Ready"], found["Status"]) == (ready, shown)


def test_terminating() -> None:
    going = {"deletionTimestamp": "2026-01-01T00:59:00Z"}
    assert cells({"phase": "Running"}, going)["Status"] == "Terminating"
    assert cells({"phase": "Running", "reason": "NodeLost"}, going)["Status"] == "Unknown"
    assert cells({"phase": "Succeeded"}, going)["Status"] == "Succeeded"


def test_the_rest() -> None:
    ended = {"terminated": {"finishedAt": "2026-01-01T00:50:00Z"}}
    found = cells(
        {
            "podIPs": [{"ip": "1.1.1.1"}],
            "conditions": [{"type": "g", "status": "True"}],
            "containerStatuses": [of({"running": {}}, restartCount=2, lastState=ended)],
        },
        nodeName="n1",
        readinessGates=[{"conditionType": "g"}, {"conditionType": "h"}],
    )
    assert found["Restarts"] == "2 (10m ago)"
    assert found["Age"] == "60m"
    assert (found["IP"], found["Node"], found["Nominated Node"]) == ("1.1.1.1", "n1", "<none>")
    assert found["Readiness Gates"] == "1/2"
    assert [column.priority for column in STRATEGY.columns] == [0] * 5 + [1] * 4


def test_a_completed_pod_has_a_row_condition() -> None:
    assert STRATEGY.row_conditions({"status": {"phase": "Running"}}) == []
    assert STRATEGY.row_conditions({"status": {"phase": "Failed"}})[0]["message"] == "The pod failed."
