"""The text of the rules for the addresses of Pods."""

from __future__ import annotations

from setpoint.node.host.network.address_rules import masquerade_chain, spoofing_chain
from setpoint.node.host.network.route_plan import NodeAddresses, Tunnel


def test_masquerading_excludes_pods_and_nodes() -> None:
    own = NodeAddresses("one", ("10.244.1.0/24",), ("172.31.0.11",))
    other = NodeAddresses("two", ("10.244.0.0/24", "fd00:2::/64"), ("172.31.0.12", "nonsense"))
    assert masquerade_chain(own, [other]).rules == (
        "ip saddr { 10.244.1.0/24 } ip daddr != { 10.244.0.0/23, 172.31.0.11/32, 172.31.0.12/32 } "
        "masquerade fully-random",
    )
    assert masquerade_chain(NodeAddresses("one", (), ()), [other]).rules == ()
    # The network between the nodes does not deliver packets with addresses of Pods.
    (rule,) = masquerade_chain(own, [other], frozenset({"172.31.0.12"})).rules
    assert rule.startswith("ip saddr { 10.244.1.0/24 } ip daddr != { 10.244.0.0/23, 172.31.0.11/32 } ")


def test_spoofing_is_checked_at_the_interfaces_of_pods_and_of_the_tunnel() -> None:
    own = NodeAddresses("one", ("10.244.1.0/24",), ("172.31.0.11",))
    other = NodeAddresses("two", ("10.244.2.0/24",), ("172.31.0.12", "fd31::12"))
    assert spoofing_chain(own, [other], interfaces="cali*").rules == (
        'iifname "cali*" fib saddr . iif oif missing drop',
        'iifname != "lo" ip daddr 127.0.0.0/8 drop',
        'iifname != "lo" ip saddr 127.0.0.0/8 drop',
        'iifname != "lo" iifname != "cali*" ip saddr { 10.244.1.0/24 } drop',
    )
    tunnel = Tunnel(77, 8472, "172.31.0.11", "02:00:00:00:00:01", 1450, frozenset())
    assert spoofing_chain(own, [other], tunnel).rules[-2:] == (
        "fib daddr type local udp dport 8472 ip saddr != { 172.31.0.11/32, 172.31.0.12/32 } drop",
        'iifname "setpoint-vx" fib saddr . iif oif missing drop',
    )
