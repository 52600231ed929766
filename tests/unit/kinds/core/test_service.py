from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from setpoint.kinds.core.service_addresses import (
    Request,
    default_on_read,
    init_ip_families,
    missing_cluster_ips,
    normalize_cluster_ips,
    patch_allocated_values,
    released_cluster_ips,
)

PORTS = [{"port": 80}]


def body(**spec: Any) -> dict[str, Any]:
    return {"spec": {"ports": PORTS, "selector": {"a": "b"}, **spec}}


@pytest.fixture
def services(lifecycle: Any) -> Any:
    return lifecycle("v1", "Service")


def stored(services: Any, **spec: Any) -> Any:
    """Return a Service as it is stored after allocation in a cluster with IPv4 only."""
    obj = services.decoded(body(**spec))
    normalize_cluster_ips(obj, None)
    assert init_ip_families(obj, None, ("IPv4",)) == []
    for request in missing_cluster_ips(obj, None):
        assert request == Request(0, "IPv4", request.ip)
        obj["spec"]["clusterIP"] = request.ip or "10.0.0.7"
        obj["spec"]["clusterIPs"] = [obj["spec"]["clusterIP"]]
    if obj["spec"]["type"] in ("NodePort", "LoadBalancer"):
        for port in obj["spec"]["ports"]:
            port.setdefault("nodePort", 30000)
    if obj["spec"].get("externalTrafficPolicy") == "Local":
        obj["spec"]["healthCheckNodePort"] = 30001
    services.strategy.prepare_for_create(obj, services.ctx)
    return obj


def test_defaults(services: Any) -> None:
    spec = services.decoded(body(type="LoadBalancer", sessionAffinity="ClientIP"))["spec"]
    assert spec["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    assert spec["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}
    assert spec["externalTrafficPolicy"] == spec["internalTrafficPolicy"] == "Cluster"
    assert spec["allocateLoadBalancerNodePorts"] is True
    plain = services.decoded({"spec": {"ports": PORTS}})["spec"]
    assert (plain["type"], plain["sessionAffinity"]) == ("ClusterIP", "None")
    assert "externalTrafficPolicy" not in plain


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"ports": []}, ["spec.ports: Required value"]),
        (
            {"ports": [{"port": 1}, {"port": 2}]},
            ["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"],
        ),
        (
            {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]},
            [
                'spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":1,'
                '"TargetPort":0,"NodePort":0}'
            ],
        ),
        (
            {"sessionAffinity": "X"},
            ['spec.sessionAffinity: Unsupported value: "X": supported values: "ClientIP", "None"'],
        ),
        (
            {"externalTrafficPolicy": "Local"},
            ['spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services'],
        ),
        (
            {"loadBalancerClass": "a/b"},
            ["spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"],
        ),
        (
            {"type": "LoadBalancer", "loadBalancerSourceRanges": [" 10.0.0.0/8 ", "x"]},
            [
                'spec.LoadBalancerSourceRanges[1]: Invalid value: "x": '
                "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            ],
        ),
        (
            {"trafficDistribution": "X"},
            [
                'spec.trafficDistribution: Unsupported value: "X": '
                'supported values: "PreferClose", "PreferSameZone", "PreferSameNode"'
            ],
        ),
        ({"type": "ExternalName"}, ["spec.externalName: Required value"]),
        ({"type": "ExternalName", "externalName": "a.b."}, []),
    ],
)
def test_rules(services: Any, spec: dict[str, Any], expected: list[str]) -> None:
    assert services.errors(body(**spec)) == expected


@pytest.mark.parametrize(
    ("spec", "families", "expected"),
    [
        ({}, ("IPv4",), ("SingleStack", ["IPv4"])),
        ({"ipFamilyPolicy": "PreferDualStack"}, ("IPv4",), ("PreferDualStack", ["IPv4"])),
        ({"ipFamilyPolicy": "PreferDualStack"}, ("IPv6", "IPv4"), ("PreferDualStack", ["IPv6", "IPv4"])),
        ({"clusterIP": "None", "selector": {}}, ("IPv4",), ("RequireDualStack", ["IPv4", "IPv6"])),
        ({"clusterIP": "fd00::1"}, ("IPv4", "IPv6"), ("SingleStack", ["IPv6"])),
    ],
)
def test_families(services: Any, spec: dict[str, Any], families: tuple[str, ...], expected: Any) -> None:
    obj = services.decoded(body(**spec))
    normalize_cluster_ips(obj, None)
    assert init_ip_families(obj, None, families) == []
    assert (obj["spec"]["ipFamilyPolicy"], obj["spec"]["ipFamilies"]) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"ipFamilies": ["IPv6"]}, 'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster'),
        (
            {"ipFamilyPolicy": "RequireDualStack"},
            'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": '
            "this cluster is not configured for dual-stack services",
        ),
        (
            {"clusterIP": "fd00::1"},
            'spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster',
        ),
        (
            {"ipFamilies": ["IPv4", "IPv6"]},
            'spec.ipFamilyPolicy: Invalid value: "SingleStack": '
            "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
        ),
        (
            {"clusterIPs": ["10.0.0.1"]},
            'spec.clusterIPs: Invalid value: ["10.0.0.1"]: must be empty when `clusterIP` is not specified',
        ),
        (
            {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "10.0.0.2"]},
            'spec.clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]: '
            "may specify no more than one IP for each IP family",
        ),
    ],
)
def test_unavailable_ip_families_are_rejected(services: Any, spec: dict[str, Any], expected: str) -> None:
    obj = services.decoded(body(**spec))
    normalize_cluster_ips(obj, None)
    assert [error.message() for error in init_ip_families(obj, None, ("IPv4",))] == [expected]


def test_applying_the_same_manifest_again_changes_nothing(services: Any) -> None:
    old = stored(services, type="LoadBalancer", externalTrafficPolicy="Local")
    obj = services.decoded(body(type="LoadBalancer", externalTrafficPolicy="Local"))
    patch_allocated_values(obj, old)
    normalize_cluster_ips(obj, old)
    assert init_ip_families(obj, old, ("IPv4",)) == []
    assert missing_cluster_ips(obj, old) == [] == released_cluster_ips(obj, old)
    assert obj["spec"] == old["spec"]


@pytest.mark.parametrize(
    ("before", "after", "dropped"),
    [
        ("ClusterIP", "ExternalName", {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"}),
        (
            "LoadBalancer",
            "ClusterIP",
            {"allocateLoadBalancerNodePorts", "externalTrafficPolicy", "healthCheckNodePort", "loadBalancerClass"},
        ),
    ],
)
def test_a_change_of_type_drops_fields_of_the_old_type(
    services: Any, before: str, after: str, dropped: set[str]
) -> None:
    extra = {"externalTrafficPolicy": "Local", "loadBalancerClass": "a/b"} if before == "LoadBalancer" else {}
    old = stored(services, type=before, **extra)
    old["status"] = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}}
    changed = deepcopy(old)
    changed["spec"]["type"] = after
    if after == "ExternalName":
        changed["spec"]["externalName"] = "a.b"
    obj, errors = services.put(old, changed)
    assert errors == []
    assert not dropped & obj["spec"].keys()
    assert obj["status"] == {"loadBalancer": {}}
    assert "nodePort" not in obj["spec"]["ports"][0]


def test_cluster_ip_is_immutable(services: Any) -> None:
    old = stored(services)
    changed = deepcopy(old)
    changed["spec"].update(clusterIP="10.0.0.9", clusterIPs=["10.0.0.9"])
    assert services.put(old, changed)[1] == ['spec.clusterIPs[0]: Invalid value: ["10.0.0.9"]: may not change once set']


def test_cluster_ips_depend_on_the_type(services: Any) -> None:
    old = stored(services, type="ExternalName", externalName="a.b")
    obj = services.decoded(body())
    patch_allocated_values(obj, old)
    assert init_ip_families(obj, old, ("IPv4",)) == []
    assert missing_cluster_ips(obj, old) == [Request(0, "IPv4", "")]
    clustered = stored(services)
    assert released_cluster_ips(old, clustered) == ["10.0.0.7"]


def test_status(services: Any) -> None:
    old = stored(services, type="LoadBalancer")
    changed = deepcopy(old)
    changed["status"] = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}, {"hostname": "1.2.3.4", "ipMode": "VIP"}]}}
    obj, errors = services.put(old, changed, "status")
    assert obj["status"]["loadBalancer"]["ingress"][0] == {"ip": "1.2.3.4", "ipMode": "VIP"}
    assert errors == [
        "status.loadBalancer.ingress[1].ipMode: Forbidden: may not be specified when `ip` is not set",
        'status.loadBalancer.ingress[1].hostname: Invalid value: "1.2.3.4": must be a DNS name, not an IP address',
    ]


def test_old_services_get_defaults_on_read() -> None:
    obj: dict[str, Any] = {"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1"}}
    default_on_read(obj, "IPv4")
    assert obj["spec"]["clusterIPs"] == ["10.0.0.1"]
    assert (obj["spec"]["ipFamilies"], obj["spec"]["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")


def test_warnings(services: Any) -> None:
    warn = services.strategy.warnings_on_create
    odd = {"externalIPs": ["1.2.3.4"], "externalName": "a", "trafficDistribution": "PreferClose"}
    obj = stored(services, clusterIP="None", **odd)
    assert warn(obj, services.ctx) == [
        "spec.externalIPs is ignored for headless services",
        'spec.externalName is ignored when spec.type is not "ExternalName"',
        'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"',
    ]


def test_row(services: Any) -> None:
    obj = stored(services, type="LoadBalancer", externalIPs=["9.9.9.9"])
    assert services.cells(obj) == {
        "Name": "x",
        "Type": "LoadBalancer",
        "Cluster-IP": "10.0.0.7",
        "External-IP": "9.9.9.9",
        "Port(s)": "80:30000/TCP",
        "Age": "<unknown>",
        "Selector": "a=b",
    }
    obj["status"] = {"loadBalancer": {"ingress": [{"ip": "2.2.2.2"}, {"hostname": "a.b"}]}}
    assert services.cells(obj)["External-IP"] == "2.2.2.2,a.b,9.9.9.9"
    assert services.cells(stored(services, type="LoadBalancer"))["External-IP"] == "<pending>"
    assert services.strategy.selectable_fields(obj) == {"spec.clusterIP": "10.0.0.7", "spec.type": "LoadBalancer"}
