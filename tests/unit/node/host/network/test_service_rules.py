"""The text of the rules for Services and host ports."""

from __future__ import annotations

from typing import Any

from service_objects import endpoint, endpoint_slice, service

from setpoint.node.host.network.host_ports import HostPort, host_port_fragment, host_ports
from setpoint.node.host.network.ruleset import Fragment, Ruleset
from setpoint.node.host.network.service_rules import network_fragment, redirect_fragment, service_fragment
from setpoint.node.host.network.services import Endpoint, Topology, service_ports


def fragment(made: dict[str, Any], *endpoints: dict[str, Any], **options: Any) -> Fragment:
    slices = [endpoint_slice("web", *endpoints, **options)] if endpoints else []
    return service_fragment(service_ports(made, slices, Topology("node-a")))


def elements(found: Fragment) -> dict[str, str]:
    return {f"{key.container} {key.key}": value for key, value in found.elements.items()}


def chains(found: Fragment) -> dict[str, tuple[str, ...]]:
    return {name: chain.rules for name, chain in found.chains.items()}


def test_cluster_ip() -> None:
    found = fragment(service("web", "10.96.0.1"), endpoint("10.0.0.1"), endpoint("10.0.0.2", "node-b"))
    assert chains(found) == {
        "svc4-default/web/tcp/80": (
            "meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.0.0.1 . 8080, 1 : 10.0.0.2 . 8080 }",
        )
    }
    assert elements(found) == {
        "svc-cluster-ips4 10.96.0.1": "",
        "svc-hairpin4 10.0.0.1 . 10.0.0.1": "",
        "svc-ips4 10.96.0.1 . tcp . 80": "goto svc4-default/web/tcp/80",
    }


def test_a_cluster_ip_without_endpoints_has_no_destination() -> None:
    assert elements(fragment(service("web", "10.96.0.1"))) == {"svc-cluster-ips4 10.96.0.1": ""}


def test_udp_connections_are_marked() -> None:
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    found = fragment(service("web", "fd00:96::1", ports=ports), endpoint("fd00::1"), port_name="dns", port=5353)
    assert chains(found) == {
        "svc6-default/web/udp/dns": (
            "ct mark set ct mark | 0x4000",
            "meta l4proto udp dnat ip6 to [fd00::1]:5353",
        )
    }


def test_session_affinity() -> None:
    found = fragment(service("web", "fd00:96::1", sessionAffinity="ClientIP"), endpoint("fd00::1"))
    chain, remembered = (
        "svc-endpoint6-default/web/tcp/80/fd00..1/8080",
        "svc-affinity6-default/web/tcp/80/10800/fd00..1/8080",
    )
    assert [each.declaration() for each in found.sets.values()] == [
        "type ipv6_addr; flags dynamic,timeout; timeout 10800s;"
    ]
    assert [*found.sets] == [remembered]
    assert chains(found) == {
        "svc6-default/web/tcp/80": (
            f"ip6 saddr @{remembered} goto {chain}",
            f"numgen random mod 1 vmap {{ 0 : goto {chain} }}",
        ),
        chain: (f"update @{remembered} {{ ip6 saddr }}", "meta l4proto tcp dnat ip6 to [fd00::1]:8080"),
    }


def external(**spec: Any) -> dict[str, Any]:
    ports = [{"port": 80, "nodePort": 30080}]
    return service("web", "10.96.0.1", type="NodePort", ports=ports, externalIPs=["192.0.2.1"], **spec)


def test_external_traffic() -> None:
    found = fragment(external(), endpoint("10.0.0.1", "node-b"))
    assert chains(found)["svc-external4-default/web/tcp/80"] == (
        "ip saddr != @svc-pod-cidrs4 jump svc-mark",
        "goto svc4-default/web/tcp/80",
    )
    assert elements(found) == {
        "svc-cluster-ips4 10.96.0.1": "",
        "svc-ips4 10.96.0.1 . tcp . 80": "goto svc4-default/web/tcp/80",
        "svc-ips4 192.0.2.1 . tcp . 80": "goto svc-external4-default/web/tcp/80",
        "svc-node-ports4 tcp . 30080": "goto svc-external4-default/web/tcp/80",
    }


def test_external_traffic_without_endpoints_is_rejected() -> None:
    found = fragment(external())
    assert chains(found) == {}
    assert elements(found) == {
        "svc-cluster-ips4 10.96.0.1": "",
        "svc-no-endpoints4 192.0.2.1 . tcp . 80": "goto svc-reject",
        "svc-no-endpoint-ports4 tcp . 30080": "goto svc-reject",
    }


def test_external_traffic_policy_local() -> None:
    made, short_circuit = (
        external(externalTrafficPolicy="Local"),
        (
            "ip saddr @svc-pod-cidrs4 goto svc4-default/web/tcp/80",
            "fib saddr type local jump svc-mark",
            "fib saddr type local goto svc4-default/web/tcp/80",
        ),
    )
    found = fragment(made, endpoint("10.0.0.1"), endpoint("10.0.0.2", "node-b"))
    assert chains(found)["svc-external4-default/web/tcp/80"] == (*short_circuit, "goto svc-local4-default/web/tcp/80")
    assert chains(found)["svc-local4-default/web/tcp/80"] == ("meta l4proto tcp dnat ip to 10.0.0.1:8080",)
    elsewhere = fragment(made, endpoint("10.0.0.2", "node-b"))
    assert chains(elsewhere)["svc-external4-default/web/tcp/80"] == (*short_circuit, "drop")


def test_internal_traffic_policy_local() -> None:
    made = service("web", "10.96.0.1", internalTrafficPolicy="Local")
    assert elements(fragment(made, endpoint("10.0.0.2", "node-b"))) == {
        "svc-cluster-ips4 10.96.0.1": "",
        "svc-no-endpoints4 10.96.0.1 . tcp . 80": "drop",
    }
    found = elements(fragment(made, endpoint("10.0.0.1")))
    assert found["svc-ips4 10.96.0.1 . tcp . 80"] == "goto svc-local4-default/web/tcp/80"


def test_source_ranges() -> None:
    made = service("web", "10.96.0.1", type="LoadBalancer", loadBalancerSourceRanges=["10.0.0.0/8"])
    made["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}]}}
    found = fragment(made, endpoint("10.0.0.1"))
    firewall = "svc-external4-default/web/tcp/80/firewall"
    assert chains(found)[firewall] == ("ip saddr { 10.0.0.0/8 } return", "drop")
    assert elements(found)["svc-firewall-ips4 192.0.2.2 . tcp . 80"] == f"goto {firewall}"


def test_node_elements() -> None:
    assert elements(network_fragment(["10.244.1.0/24", "fd00:1::/64"])) == {
        "svc-pod-cidrs4 10.244.1.0/24": "",
        "svc-pod-cidrs6 fd00:1::/64": "",
    }
    assert elements(redirect_fragment({("10.96.0.10", "udp", 53): 10053})) == {
        "svc-redirects4 10.96.0.10 . udp . 53": "10053",
        "svc-redirect-ports udp . 10053": "",
    }


def test_host_ports_of_a_pod() -> None:
    ports = [
        {"containerPort": 80, "hostPort": 8080},
        {"containerPort": 53, "hostPort": 53, "hostIP": "192.0.2.1", "protocol": "UDP"},
        {"containerPort": 81, "hostPort": 81, "hostIP": "0.0.0.0", "protocol": "SCTP"},
        {"containerPort": 90},
    ]
    pod = {"spec": {"containers": [{"ports": ports}]}}
    found = host_ports(pod, ["10.0.0.1", "fd00::1"])
    assert found == [
        HostPort("tcp", 8080, Endpoint("10.0.0.1", 80)),
        HostPort("tcp", 8080, Endpoint("fd00::1", 80)),
        HostPort("udp", 53, Endpoint("10.0.0.1", 53), "192.0.2.1"),
        HostPort("sctp", 81, Endpoint("10.0.0.1", 81)),
        HostPort("sctp", 81, Endpoint("fd00::1", 81)),
    ]
    assert host_ports({"spec": {"hostNetwork": True, **pod["spec"]}}, ["10.0.0.1"]) == []


def test_host_port_rules() -> None:
    found = host_port_fragment(
        "uid",
        [HostPort("tcp", 8080, Endpoint("10.0.0.1", 80)), HostPort("udp", 53, Endpoint("fd00::1", 53), "fd00::2")],
    )
    assert chains(found) == {
        "svc-host4-uid/tcp/8080": ("meta l4proto tcp dnat ip to 10.0.0.1:80",),
        "svc-host6-uid/udp/53/fd00..2": (
            "ct mark set ct mark | 0x4000",
            "meta l4proto udp dnat ip6 to [fd00::1]:53",
        ),
    }
    assert elements(found) == {
        "svc-host-ports4 tcp . 8080": "goto svc-host4-uid/tcp/8080",
        "svc-hairpin4 10.0.0.1 . 10.0.0.1": "",
        "svc-host-ips6 fd00::2 . udp . 53": "goto svc-host6-uid/udp/53/fd00..2",
        "svc-hairpin6 fd00::1 . fd00::1": "",
    }


def test_a_change_of_endpoints_replaces_one_rule() -> None:
    rules = Ruleset("inet t")
    made = service("web", "10.96.0.1")
    rules.put("web", fragment(made, endpoint("10.0.0.1", "node-b"), endpoint("10.0.0.2", "node-b")))
    rules.full()
    rules.put("web", fragment(made, endpoint("10.0.0.2", "node-b")))
    assert rules.changes() == (
        "flush chain inet t svc4-default/web/tcp/80\n"
        "add rule inet t svc4-default/web/tcp/80 meta l4proto tcp dnat ip to 10.0.0.2:8080\n"
    )
    rules.put("web", fragment(made))
    assert rules.changes() == (
        "delete element inet t svc-ips4 { 10.96.0.1 . tcp . 80 }\n"
        "flush chain inet t svc4-default/web/tcp/80\n"
        "delete chain inet t svc4-default/web/tcp/80\n"
    )
    rules.put("web", fragment(made, endpoint("10.0.0.2", "node-b")))
    assert rules.changes() == (
        "add chain inet t svc4-default/web/tcp/80\n"
        "add rule inet t svc4-default/web/tcp/80 meta l4proto tcp dnat ip to 10.0.0.2:8080\n"
        "add element inet t svc-ips4 { 10.96.0.1 . tcp . 80 : goto svc4-default/web/tcp/80 }\n"
    )
    assert rules.changes() == ""
