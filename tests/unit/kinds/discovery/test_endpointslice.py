from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def slices(lifecycle: Any) -> Any:
    return lifecycle("discovery.k8s.io/v1", "EndpointSlice")


def body(*addresses: str, kind: str = "IPv4", **more: Any) -> dict[str, Any]:
    return {"addressType": kind, "endpoints": [{"addresses": list(addresses)}], **more}


def test_ports_have_names_and_protocols(slices: Any) -> None:
    assert slices.created(body("10.0.0.1", ports=[{"port": 1}]))["ports"] == [
        {"name": "", "protocol": "TCP", "port": 1}
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            body(kind="IPv5"),
            [
                'addressType: Unsupported value: "IPv5": supported values: "FQDN", "IPv4", "IPv6"',
                "endpoints[0].addresses: Required value",
            ],
        ),
        (body("2001:db8::1"), ['endpoints[0].addresses: Invalid value: "2001:db8::1": must be an IPv4 address']),
        (
            body("127.0.0.1"),
            [
                'endpoints[0].addresses[0]: Invalid value: "127.0.0.1": '
                "may not be in the loopback range (127.0.0.0/8, ::1/128)"
            ],
        ),
        (
            body("2001:DB8::1", kind="IPv6"),
            ['endpoints[0].addresses[0]: Invalid value: "2001:DB8::1": must be in canonical form ("2001:db8::1")'],
        ),
        (
            body("a", kind="FQDN"),
            [
                'endpoints[0].addresses[0]: Invalid value: "a": '
                "should be a domain with at least two segments separated by dots"
            ],
        ),
        (
            body(*(f"10.0.0.{n}" for n in range(101))),
            ["endpoints[0].addresses: Too many: 101: must have at most 100 items"],
        ),
        (body("10.0.0.1", ports=[{"port": 1}, {"port": 2}]), ['ports[1].name: Duplicate value: ""']),
        (
            {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}] * 1001},
            ["endpoints: Too many: 1001: must have at most 1000 items"],
        ),
    ],
)
def test_rules(slices: Any, given: dict[str, Any], expected: list[str]) -> None:
    assert slices.errors(given) == expected


def test_address_type_is_immutable(slices: Any) -> None:
    old = slices.created(body("10.0.0.1"))
    errors = slices.put(old, {**old, "addressType": "IPv6"})[1]
    assert errors == ["addressType: Invalid value: null: field is immutable"]


def test_changed_labels_increment_the_generation(slices: Any) -> None:
    old = slices.created(body("10.0.0.1"))
    old["metadata"]["generation"] = 4
    labelled = {**body("10.0.0.1"), "metadata": {"labels": {"a": "b"}}}
    assert slices.put(old, labelled)[0]["metadata"]["generation"] == 5
    assert "generation" not in slices.put(old, body("10.0.0.1"))[0]["metadata"]


def test_deprecated_topology_is_dropped(slices: Any) -> None:
    given = body("10.0.0.1")
    given["endpoints"][0]["deprecatedTopology"] = {"kubernetes.io/hostname": "n"}
    assert slices.created(given)["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {}}]
    old = slices.decoded(given)
    given["endpoints"][0]["addresses"] = ["10.0.0.2"]
    assert slices.put(old, given)[0]["endpoints"][0]["nodeName"] == "n"


def test_warnings_and_row(slices: Any) -> None:
    assert slices.warnings(body("a.b", kind="FQDN")) == ["spec.addressType: FQDN endpoints are deprecated"]
    obj = slices.created(body("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"))
    row = slices.cells(obj)
    assert (row["Ports"], row["Endpoints"]) == ("<unset>", "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more...")
