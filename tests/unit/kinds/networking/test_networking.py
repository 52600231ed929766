"""Ingress, IngressClass, NetworkPolicy, IPAddress and ServiceCIDR."""

from __future__ import annotations

from typing import Any

import pytest

API = "networking.k8s.io/v1"
BACKEND = {"service": {"name": "s", "port": {"number": 80}}}


def rule(**path: Any) -> dict[str, Any]:
    return {"rules": [{"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": BACKEND, **path}]}}]}


PATH = "spec.rules[0].http.paths[0]"


@pytest.mark.parametrize(
    ("spec", "messages"),
    [
        ({"defaultBackend": BACKEND}, []),
        (rule(), []),
        ({"defaultBackend": {"service": {"name": "1a", "port": {"name": "http"}}}}, []),
        ({}, ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]),
        (rule(pathType=None), [f"{PATH}.pathType: Required value: pathType must be specified"]),
        (
            rule(pathType="Zz"),
            [
                f'{PATH}.pathType: Unsupported value: "Zz": '
                'supported values: "Exact", "ImplementationSpecific", "Prefix"'
            ],
        ),
        (
            rule(path="/a//b/.."),
            [
                f"{PATH}.path: Invalid value: \"/a//b/..\": must not contain '//'",
                f"{PATH}.path: Invalid value: \"/a//b/..\": cannot end with '/..'",
            ],
        ),
        (rule(backend={}), [f'{PATH}.backend: Invalid value: "": resource or service backend is required']),
        (
            {"rules": [{"host": "1.2.3.4"}]},
            ['spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address'],
        ),
        (
            {"defaultBackend": {"service": {"name": "", "port": {}}}},
            [
                "spec.defaultBackend.service.name: Required value",
                "spec.defaultBackend: Required value: port name or number is required",
            ],
        ),
        (
            {"defaultBackend": {**BACKEND, "resource": {"kind": "K", "name": "n"}}},
            ['spec.defaultBackend: Invalid value: "": cannot set both resource and service backends'],
        ),
    ],
)
def test_ingress_rules(lifecycle: Any, spec: dict[str, Any], messages: list[str]) -> None:
    assert lifecycle(API, "Ingress").create({"spec": spec})[1] == messages


def test_ingress_class_annotation(lifecycle: Any) -> None:
    ingresses = lifecycle(API, "Ingress")
    meta = {"metadata": {"annotations": {"kubernetes.io/ingress.class": "b"}}}
    _, errs, warnings = ingresses.create({**meta, "spec": {"defaultBackend": BACKEND}})
    assert (errs, warnings) == (
        [],
        ["annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"],
    )
    _, errs, _ = ingresses.create({**meta, "spec": {"defaultBackend": BACKEND, "ingressClassName": "a"}})
    assert errs == [
        'annotations.kubernetes.io/ingress.class: Invalid value: "b": '
        "must match `ingressClassName` when both are specified"
    ]


def test_ingress_status_and_cells(lifecycle: Any) -> None:
    ingresses = lifecycle(API, "Ingress")
    obj, _, _ = ingresses.create({"spec": {"rules": [{"host": f"h{i}.x"} for i in range(5)], "tls": [{}]}})
    cells = ingresses.cells(obj)
    assert (cells["Class"], cells["Hosts"], cells["Ports"]) == ("<none>", "h0.x,h1.x,h2.x + 2 more...", "80, 443")
    status = {"loadBalancer": {"ingress": [{"ip": "10.0.0.2"}, {"hostname": "a.b"}, {"ip": "2001:DB8::1"}]}}
    new, errs, warnings = ingresses.update(obj, "status", status=status, spec={"rules": None})
    assert (errs, new["spec"]) == ([], obj["spec"])
    assert warnings == [
        'status.loadBalancer.ingress[2]: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format '
        '("2001:db8::1")'
    ]
    assert ingresses.cells(new)["Address"] == "10.0.0.2,2001:DB8::1,a.b"
    bad = {"loadBalancer": {"ingress": [{"ip": "010.0.0.1"}, {"hostname": "1.2.3.4"}]}}
    assert ingresses.update(obj, "status", status=bad)[1] == [
        'status.loadBalancer.ingress[0].ip: Invalid value: "010.0.0.1": must not have leading 0s',
        'status.loadBalancer.ingress[1].hostname: Invalid value: "1.2.3.4": must be a DNS name, not an IP address',
    ]


PARAMETERS = "spec.parameters"


@pytest.mark.parametrize(
    ("parameters", "messages"),
    [
        ({"kind": "K", "name": "n"}, []),
        (
            {"kind": "", "name": "n", "scope": "X"},
            [
                f'{PARAMETERS}.scope: Unsupported value: "X": supported values: "Cluster", "Namespace"',
                f"{PARAMETERS}.kind: Required value",
            ],
        ),
        (
            {"kind": "K", "name": "n", "scope": "Namespace"},
            [f"{PARAMETERS}.namespace: Required value: `parameters.scope` is set to 'Namespace'"],
        ),
        (
            {"kind": "K", "name": "n", "namespace": "a"},
            [f"{PARAMETERS}.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"],
        ),
    ],
)
def test_ingressclass_parameters(lifecycle: Any, parameters: dict[str, Any], messages: list[str]) -> None:
    _, errs, _ = lifecycle(API, "IngressClass").create({"spec": {"controller": "a.b/c", "parameters": parameters}})
    assert errs == messages


def test_ingressclass(lifecycle: Any) -> None:
    classes = lifecycle(API, "IngressClass")
    meta = {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}
    spec = {"controller": "a.b/c", "parameters": {"kind": "K", "name": "n", "apiGroup": "g"}}
    obj, errs, _ = classes.create({"metadata": meta, "spec": spec})
    assert (errs, obj["spec"]["parameters"]["scope"]) == ([], "Cluster")
    cells = classes.cells(obj)
    assert (cells["Name"], cells["Parameters"]) == ("x (default)", "K.g/n")
    assert classes.update(obj, spec={"controller": "a.b/d"})[1] == [
        'spec.controller: Invalid value: "a.b/d": field is immutable'
    ]
    assert classes.create({"spec": {"controller": "nodomain"}})[1] == [
        'spec.controller: Invalid value: "nodomain": must be a domain-prefixed path (such as "acme.io/foo")'
    ]


def test_networkpolicy_defaults(lifecycle: Any) -> None:
    policies = lifecycle(API, "NetworkPolicy")
    obj, _, _ = policies.create({"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]}})
    assert obj["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert obj["spec"]["egress"][0]["ports"][0]["protocol"] == "TCP"
    assert policies.create({"spec": {"podSelector": {}}})[0]["spec"]["policyTypes"] == ["Ingress"]


BLOCK = "spec.ingress[0].from[0].ipBlock"


@pytest.mark.parametrize(
    ("ingress", "messages"),
    [
        ({"from": [{}]}, ["spec.ingress[0].from[0]: Required value: must specify a peer"]),
        (
            {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]},
            ["spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer"],
        ),
        (
            {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "11.0.0.0/16", "10.0.0.0/8"]}}]},
            [
                f'{BLOCK}.except[1]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`',
                f'{BLOCK}.except[2]: Invalid value: "10.0.0.0/8": must be a strict subset of `cidr`',
            ],
        ),
        (
            {"from": [{"ipBlock": {"cidr": ""}}, {"ipBlock": {"cidr": "10.0.0.1/8"}}]},
            [
                'spec.ingress[0].from[1].ipBlock.cidr: Invalid value: "10.0.0.1/8": '
                "must not have bits set beyond the prefix length",
                f"{BLOCK}.cidr: Required value",
            ],
        ),
        (
            {"ports": [{"port": 80, "endPort": 70}, {"endPort": 1}, {"port": "http", "endPort": 1}]},
            [
                "spec.ingress[0].ports[0].endPort: Invalid value: 70: must be greater than or equal to `port`",
                "spec.ingress[0].ports[1].endPort: Invalid value: 1: may not be specified when `port` is not specified",
                "spec.ingress[0].ports[2].endPort: Invalid value: 1: may not be specified when `port` is non-numeric",
            ],
        ),
    ],
)
def test_networkpolicy_rules(lifecycle: Any, ingress: dict[str, Any], messages: list[str]) -> None:
    assert lifecycle(API, "NetworkPolicy").create({"spec": {"podSelector": {}, "ingress": [ingress]}})[1] == messages


def test_stored_invalid_ip_blocks_stay_allowed(lifecycle: Any) -> None:
    policies = lifecycle(API, "NetworkPolicy")
    obj, _, _ = policies.create({"spec": {"podSelector": {}}})
    obj["spec"]["ingress"] = [{"from": [{"ipBlock": {"cidr": "10.0.0.1/8"}}]}]
    _, errs, warnings = policies.update(obj, spec={"podSelector": {"matchLabels": {"a": "b"}}})
    assert errs == []
    assert warnings == [
        f'{BLOCK}.cidr: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)'
    ]


def test_ipaddress(lifecycle: Any) -> None:
    addresses = lifecycle(API, "IPAddress")
    parent = {"resource": "services", "namespace": "ns", "name": "x"}
    obj, errs, _ = addresses.create({"spec": {"parentRef": parent}}, name="10.0.0.1")
    assert errs == []
    assert list(addresses.cells(obj).values()) == ["10.0.0.1", "services/ns/x", "24h"]
    assert addresses.strategy.validate_name("010.0.0.1", False) == ["must not have leading 0s"]
    assert addresses.create({"spec": {"parentRef": {"resource": "a/b"}}})[1] == [
        "spec.parentRef.resource: Invalid value: \"a/b\": may not contain '/'",
        "spec.parentRef.name: Required value",
    ]
    assert addresses.update(obj, spec={"parentRef": {**parent, "name": ""}})[1] == [
        "spec.parentRef.name: Required value",
        "spec.parentRef: Invalid value: null: field is immutable",
    ]


@pytest.mark.parametrize(
    ("cidrs", "messages"),
    [
        (["10.1.0.0/16"], []),
        ([], ["spec.cidrs: Required value: at least one CIDR required"]),
        (
            ["2001:DB8::/64"],
            ['spec.cidrs[0]: Invalid value: "2001:DB8::/64": must be in canonical form ("2001:db8::/64")'],
        ),
        (["a", "b", "c"], ['spec.cidrs: Invalid value: {"CIDRs":["a","b","c"]}: may only hold up to 2 values']),
        (
            ["10.0.0.0/8", "10.1.0.0/16"],
            [
                'spec.cidrs: Invalid value: ["10.0.0.0/8","10.1.0.0/16"]: may specify no more than one IP for each IP '
                "family, i.e 192.168.0.0/24 and 2001:db8::/64"
            ],
        ),
    ],
)
def test_servicecidr_rules(lifecycle: Any, cidrs: list[str], messages: list[str]) -> None:
    assert lifecycle(API, "ServiceCIDR").create({"spec": {"cidrs": cidrs}})[1] == messages


def test_servicecidr_may_gain_a_family(lifecycle: Any) -> None:
    ranges = lifecycle(API, "ServiceCIDR")
    obj, _, _ = ranges.create({"spec": {"cidrs": ["10.1.0.0/16"]}})
    assert ranges.update(obj, spec={"cidrs": ["10.1.0.0/16", "2001:db8::/64"]})[1] == []
    assert ranges.update(obj, spec={"cidrs": ["10.2.0.0/16"]})[1] == [
        'spec.cidrs[0]: Invalid value: "10.2.0.0/16": field is immutable'
    ]
