"""The desired state of Services, with the decisions of kube-proxy."""

from __future__ import annotations

from typing import Any

import pytest
from service_objects import endpoint, endpoint_slice, service

from setpoint.node.host.network.services import (
    Endpoint,
    HealthCheck,
    ServicePort,
    Topology,
    health_check,
    service_ports,
)

HERE = Topology("node-a", "zone-a")
READY, NOT_READY = {"ready": True}, {"ready": False, "serving": False, "terminating": False}
LEAVING = {"ready": False, "serving": True, "terminating": True}
GONE = {"ready": False, "serving": False, "terminating": True}


def only_port(made: dict[str, Any], *slices: dict[str, Any]) -> ServicePort:
    (found,) = service_ports(made, slices, HERE)
    return found


def addresses(endpoints: tuple[Endpoint, ...]) -> list[str]:
    return [each.address[-1] for each in endpoints]


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"type": "ExternalName", "externalName": "example.com"}},
        {"spec": {"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"port": 80}]}},
        {
            "metadata": {
                "name": "web",
                "namespace": "default",
                "labels": {"service.kubernetes.io/service-proxy-name": ""},
            }
        },
        {"metadata": {"name": "web } drop", "namespace": "default"}},
    ],
)
def test_services_without_rules(change: dict[str, Any]) -> None:
    made = service("web", "10.96.0.1")
    assert len(service_ports(made, [], HERE)) == 1
    assert service_ports({**made, **change}, [], HERE) == []


def test_ports_are_matched_by_name_and_family() -> None:
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 53, "protocol": "UDP"}]
    slices = [
        endpoint_slice("web", endpoint("10.0.0.1"), endpoint("10.0.0.2"), port_name="a", port=8080),
        endpoint_slice("web", endpoint("10.0.0.2"), port_name="a", port=8080),
        endpoint_slice("web", endpoint("10.0.0.3"), port_name="b", port=5353),
        endpoint_slice("web", endpoint("fd00::1"), port_name="a", port=8081),
    ]
    found = service_ports(service("web", "10.96.0.1", "fd00:96::1", ports=ports), slices, HERE)
    assert [(each.family, each.cluster_ip, each.label, each.protocol, each.cluster) for each in found] == [
        (4, "10.96.0.1", "a", "tcp", (Endpoint("10.0.0.1", 8080), Endpoint("10.0.0.2", 8080))),
        (4, "10.96.0.1", "b", "udp", (Endpoint("10.0.0.3", 5353),)),
        (6, "fd00:96::1", "a", "tcp", (Endpoint("fd00::1", 8081),)),
        (6, "fd00:96::1", "b", "udp", ()),
    ]


@pytest.mark.parametrize(
    ("conditions", "used"),
    [
        ([READY, NOT_READY, LEAVING], ["1"]),
        ([{}, NOT_READY, LEAVING], ["1"]),
        ([NOT_READY, LEAVING, LEAVING], ["2", "3"]),
        ([NOT_READY, NOT_READY, GONE], []),
    ],
)
def test_terminating_endpoints_are_the_last_resort(conditions: list[dict[str, bool]], used: list[str]) -> None:
    endpoints = [endpoint(f"10.0.0.{n + 1}", conditions=each) for n, each in enumerate(conditions)]
    spec: dict[str, Any] = {
        "type": "NodePort",
        "ports": [{"port": 80, "nodePort": 30080}],
        "externalTrafficPolicy": "Local",
    }
    found = only_port(service("web", "10.96.0.1", **spec), endpoint_slice("web", *endpoints))
    assert (addresses(found.cluster), addresses(found.local), found.has_endpoints) == (used, used, bool(used))


def test_endpoints_of_this_node() -> None:
    slices = endpoint_slice("web", endpoint("10.0.0.1"), endpoint("10.0.0.2", "node-b"))
    cluster = only_port(service("web", "10.96.0.1"), slices)
    assert (addresses(cluster.cluster), cluster.local, cluster.on_node) == (["1", "2"], (), frozenset({"10.0.0.1"}))
    local = only_port(service("web", "10.96.0.1", internalTrafficPolicy="Local"), slices)
    assert (local.cluster, addresses(local.internal)) == ((), ["1"])
    elsewhere = endpoint_slice("web", endpoint("10.0.0.2", "node-b"))
    none = only_port(service("web", "10.96.0.1", internalTrafficPolicy="Local"), elsewhere)
    assert (none.internal, none.has_endpoints) == ((), True)


def hinted(address: str, nodes: str = "", zones: str = "") -> dict[str, Any]:
    hints = {
        "forNodes": [{"name": f"node-{each}"} for each in nodes],
        "forZones": [{"name": f"zone-{each}"} for each in zones],
    }
    return endpoint(address, hints={key: value for key, value in hints.items() if value})


@pytest.mark.parametrize(
    ("endpoints", "used"),
    [
        ([hinted("10.0.0.1", "a", "a"), hinted("10.0.0.2", "b", "a"), hinted("10.0.0.3", "c", "b")], ["1"]),
        ([hinted("10.0.0.1", "c", "a"), hinted("10.0.0.2", "b", "a"), hinted("10.0.0.3", "c", "b")], ["1", "2"]),
        ([hinted("10.0.0.1", "", "a"), hinted("10.0.0.2", "", "ab"), hinted("10.0.0.3", "", "b")], ["1", "2"]),
        ([hinted("10.0.0.1", "", "b"), hinted("10.0.0.2", "", "c")], ["1", "2"]),
        ([hinted("10.0.0.1", "", "a"), hinted("10.0.0.2")], ["1", "2"]),
    ],
)
def test_hints_select_close_endpoints(endpoints: list[dict[str, Any]], used: list[str]) -> None:
    assert addresses(only_port(service("web", "10.96.0.1"), endpoint_slice("web", *endpoints)).cluster) == used


def test_external_addresses() -> None:
    made = service(
        "web",
        "10.96.0.1",
        type="LoadBalancer",
        externalIPs=["192.0.2.1", "2001:db8::1"],
        loadBalancerSourceRanges=["10.0.0.0/8", "10.1.0.0/16", " 192.0.2.0/24 "],
    )
    ingress = [{"ip": "192.0.2.2"}, {"ip": "192.0.2.3", "ipMode": "Proxy"}, {"hostname": "balancer"}]
    made["status"] = {"loadBalancer": {"ingress": ingress}}
    found = only_port(made)
    assert found.external_ips == ("192.0.2.1", "192.0.2.2")
    assert (found.firewalled_ips, found.source_ranges) == (("192.0.2.2",), ("10.0.0.0/8", "192.0.2.0/24"))
    made["spec"]["loadBalancerSourceRanges"] = ["0.0.0.0/0", "10.0.0.0/8"]
    assert only_port(made).firewalled_ips == ()


def test_session_affinity() -> None:
    assert only_port(service("web", "10.96.0.1")).affinity_seconds is None
    assert only_port(service("web", "10.96.0.1", sessionAffinity="ClientIP")).affinity_seconds == 10800
    config: dict[str, Any] = {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}
    assert only_port(service("web", "10.96.0.1", sessionAffinity="ClientIP", **config)).affinity_seconds == 5


def test_health_check_counts_ready_endpoints_of_this_node() -> None:
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    spec: dict[str, Any] = {
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 31000,
        "ports": ports,
    }
    endpoints = [
        endpoint("10.0.0.1"),
        endpoint("10.0.0.2", "node-b"),
        endpoint("10.0.0.3", conditions=LEAVING),
    ]
    slices = [endpoint_slice("web", *endpoints, port_name=name) for name in "ab"]
    assert health_check(service("web", "10.96.0.1", **spec), slices, HERE) == HealthCheck("default", "web", 31000, 1)
    assert health_check(service("web", "10.96.0.1"), slices, HERE) is None
