"""The resolver configuration of Pods by dnsPolicy and dnsConfig, and its limits."""

from __future__ import annotations

from typing import Any

import pytest
from host_pods import UID, make_pod, make_settings

from setpoint.node.environment import ContainerConfigError
from setpoint.node.host.pod_dns import DnsWarning, ResolvConf, parse_resolv_conf, pod_dns

HOST = ResolvConf(("8.8.8.8", "8.8.4.4"), ("example.com",), ("edns0", "ndots:2"))
CLUSTER = ("shop.svc.cluster.local", "svc.cluster.local", "cluster.local")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ResolvConf()),
        (
            "# nameserver 1.1.1.1\n ; x\n\nnameserver 8.8.8.8 # first\n nameserver\t::1\n",
            ResolvConf(("8.8.8.8", "::1")),
        ),
        ("search old\nsearch a.example. . b.example\n", ResolvConf((), ("a.example", "b.example"))),
        ("options ndots:1 edns0\noptions ndots:5\n", ResolvConf((), (), ("ndots:5", "edns0"))),
        ("domain example.com\nsortlist 10.0.0.0\nnameserver 1.1.1.1", ResolvConf(("1.1.1.1",))),
    ],
)
def test_parse(text: str, expected: ResolvConf) -> None:
    assert parse_resolv_conf(text) == expected


def test_a_nameserver_line_without_address_is_an_error() -> None:
    with pytest.raises(
        ContainerConfigError, match=r"^Encountered error while parsing resolv conf file. Error: nameserv"
    ):
        parse_resolv_conf("nameserver\n")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ResolvConf(("10.96.0.10",), (*CLUSTER, "example.com"), ("ndots:5",))),
        ({"dnsPolicy": "ClusterFirst"}, ResolvConf(("10.96.0.10",), (*CLUSTER, "example.com"), ("ndots:5",))),
        ({"dnsPolicy": "ClusterFirst", "hostNetwork": True}, HOST),
        (
            {"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True},
            ResolvConf(("10.96.0.10",), (*CLUSTER, "example.com"), ("ndots:5",)),
        ),
        ({"dnsPolicy": "Default"}, HOST),
        ({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"]}}, ResolvConf(("1.1.1.1",))),
        (
            {
                "dnsPolicy": "Default",
                "dnsConfig": {
                    "nameservers": ["8.8.4.4", "1.1.1.1"],
                    "searches": ["example.com", "corp"],
                    "options": [{"name": "ndots", "value": "3"}, {"name": "edns0"}, {"name": "debug"}],
                },
            },
            ResolvConf(("8.8.8.8", "8.8.4.4", "1.1.1.1"), ("example.com", "corp"), ("edns0", "ndots:3", "debug")),
        ),
    ],
)
def test_policies(spec: dict[str, Any], expected: ResolvConf) -> None:
    found = pod_dns(make_pod(**spec), HOST, make_settings())
    assert found.config == expected
    assert not found.warnings


def test_search_domains_of_host_and_cluster_are_merged() -> None:
    host = ResolvConf((), ("svc.cluster.local", "example.com"))
    assert pod_dns(make_pod(), host, make_settings()).config.searches == (*CLUSTER, "example.com")
    assert pod_dns(make_pod(), host, make_settings(cluster_domain="")).config.searches == host.searches


def test_without_cluster_dns_the_host_is_used_with_a_warning() -> None:
    found = pod_dns(make_pod(), HOST, make_settings(cluster_dns=()))
    assert found.config == HOST
    assert found.warnings == (
        DnsWarning(
            "MissingClusterDNS",
            f'pod: "web_shop({UID})". kubelet does not have ClusterDNS IP configured and cannot create Pod using '
            '"ClusterFirst" policy. Falling back to "Default" policy.',
        ),
    )
    assert not pod_dns(make_pod(dnsPolicy="Default"), HOST, make_settings(cluster_dns=())).warnings


def test_at_most_three_name_servers() -> None:
    custom = {"nameservers": [f"10.0.0.{number}" for number in range(1, 5)]}
    found = pod_dns(make_pod(dnsPolicy="None", dnsConfig=custom), HOST, make_settings())
    assert found.config.servers == ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    assert found.warnings == (
        DnsWarning(
            "DNSConfigForming",
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "
            "10.0.0.1 10.0.0.2 10.0.0.3",
        ),
    )


@pytest.mark.parametrize(
    ("searches", "kept"),
    [
        ([f"d{number}" for number in range(32)], 32),
        ([f"d{number}" for number in range(33)], 32),
        (["x" * 253], 1),
        (["x" * 254], 0),
        ([f"{number}" + "x" * 204 for number in range(9)] + ["y" * 194], 10),
        ([f"{number}" + "x" * 204 for number in range(9)] + ["y" * 195], 9),
    ],
)
def test_limits_of_search_domains(searches: list[str], kept: int) -> None:
    pod = make_pod(dnsPolicy="None", dnsConfig={"nameservers": ["1.1.1.1"], "searches": searches})
    found = pod_dns(pod, HOST, make_settings())
    assert found.config.searches == tuple(searches[:kept])
    text = "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "
    expected = () if kept == len(searches) else (DnsWarning("DNSConfigForming", text + " ".join(searches[:kept])),)
    assert found.warnings == expected


def test_message() -> None:
    assert HOST.message() == {
        "servers": ["8.8.8.8", "8.8.4.4"],
        "searches": ["example.com"],
        "options": ["edns0", "ndots:2"],
    }
