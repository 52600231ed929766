from __future__ import annotations

from typing import Any

import pytest

from setpoint.kinds.core.pod_binding import validate_binding
from setpoint.meta.field import Errors


@pytest.fixture
def all_endpoints(lifecycle: Any) -> Any:
    return lifecycle("v1", "Endpoints")


def subset(*ips: str, ports: Any = ()) -> dict[str, Any]:
    return {"subsets": [{"addresses": [{"ip": ip} for ip in ips], "ports": list(ports)}]}


def test_protocol_defaults_to_tcp(all_endpoints: Any) -> None:
    obj = all_endpoints.created(subset("10.0.0.1", ports=[{"port": 1}]))
    assert obj["subsets"][0]["ports"] == [{"port": 1, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (subset(), ["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"]),
        (
            subset("127.0.0.1"),
            [
                'subsets[0].addresses[0].ip: Invalid value: "127.0.0.1": '
                "may not be in the loopback range (127.0.0.0/8, ::1/128)"
            ],
        ),
        (
            subset("10.0.0.1", ports=[{"port": 0}, {"name": "a", "port": 2}]),
            [
                "subsets[0].ports[0].name: Required value",
                "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ],
        ),
    ],
)
def test_rules(all_endpoints: Any, body: dict[str, Any], expected: list[str]) -> None:
    assert all_endpoints.errors(body) == expected


def test_unchanged_stored_addresses_stay_allowed(all_endpoints: Any) -> None:
    old = all_endpoints.decoded(subset("127.0.0.1"))
    assert all_endpoints.put(old, {**subset("127.0.0.1"), "metadata": {"labels": {"a": "b"}}})[1] == []
    assert all_endpoints.put(old, subset("127.0.0.2"))[1] != []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "<none>"),
        (subset("10.0.0.1", "2001:db8::1"), "10.0.0.1,2001:db8::1"),
        (subset("2001:db8::1", ports=[{"port": 1}]), "[2001:db8::1]:1"),
        (
            subset("10.0.0.1", "10.0.0.2", ports=[{"name": "a", "port": 1}, {"name": "b", "port": 2}]),
            "10.0.0.1:1,10.0.0.2:1,10.0.0.1:2 + 1 more...",
        ),
    ],
)
def test_row(all_endpoints: Any, body: dict[str, Any], text: str) -> None:
    assert all_endpoints.cells(all_endpoints.created(body))["Endpoints"] == text


def test_no_warnings_for_the_endpoints_controller(all_endpoints: Any) -> None:
    body = subset("2001:DB8::1")
    assert len(all_endpoints.warnings(body)) == 1
    managed = {"labels": {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}}
    assert all_endpoints.warnings({**body, "metadata": managed}) == []


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"kind": "Node", "name": "n"}, []),
        ({"name": "n"}, []),
        (
            {"kind": "X"},
            ['target.kind: Unsupported value: "X": supported values: "Node", "<empty>"', "target.name: Required value"],
        ),
    ],
)
def test_bindings(target: dict[str, str], expected: list[str]) -> None:
    errs: Errors = []
    validate_binding({"target": target}, errs)
    assert [error.message() for error in errs] == expected


def test_component_statuses(lifecycle: Any) -> None:
    statuses = lifecycle("v1", "ComponentStatus")
    healthy = {"metadata": {"name": "x"}, "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]}
    assert statuses.cells(healthy) == {"Name": "x", "Status": "Healthy", "Message": "ok", "Error": ""}
    assert statuses.cells({"metadata": {"name": "x"}})["Status"] == "Unknown"
