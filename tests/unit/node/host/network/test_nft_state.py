"""Parts of a table as values: their text, and the commands between two of them."""

from __future__ import annotations

from setpoint.node.host.network.address_rules import masquerade_chain, spoofing_chain
from setpoint.node.host.network.nft_state import NftChain, NftSet, NftState, StateSection, difference, render
from setpoint.node.host.network.route_plan import NodeAddresses, Tunnel

HOOK = "type filter hook forward priority filter; policy accept"


def state(elements: str = "", *, rules: str = "drop", target: str = "a") -> NftState:
    """Return a base chain that uses a map, which leads to another chain."""
    return NftState(
        {"m": NftSet("ipv4_addr : verdict", frozenset(f"{each} : jump {target}" for each in elements.split()))},
        {"base": NftChain(("ip saddr vmap @m",), HOOK), target: NftChain(tuple(rules.split(";")))},
    )


def lines(old: NftState, new: NftState) -> list[str]:
    return difference("inet t", old, new).splitlines()


def test_the_text_of_a_state() -> None:
    assert render(state("10.0.0.2 10.0.0.1")) == (
        "map m { type ipv4_addr : verdict; elements = { 10.0.0.1 : jump a, 10.0.0.2 : jump a }; }\n"
        "chain a { \n  drop\n}\n"
        f"chain base {{ {HOOK};\n  ip saddr vmap @m\n}}\n"
    )


def test_equal_states_give_no_commands() -> None:
    assert lines(state("10.0.0.1"), state("10.0.0.1")) == []


def test_elements_and_rules_change_alone() -> None:
    assert lines(state("10.0.0.1 10.0.0.2"), state("10.0.0.2 10.0.0.3")) == [
        "delete element inet t m { 10.0.0.1 }",
        "add element inet t m { 10.0.0.3 : jump a }",
    ]
    assert lines(state(), state(rules="accept;drop")) == [
        "flush chain inet t a",
        "add rule inet t a accept",
        "add rule inet t a drop",
    ]


def test_definitions_precede_uses_and_uses_end_before_deletions() -> None:
    assert lines(state("10.0.0.1"), state("10.0.0.1", target="b")) == [
        "add chain inet t b",
        "add rule inet t b drop",
        "delete element inet t m { 10.0.0.1 }",
        "add element inet t m { 10.0.0.1 : jump b }",
        "flush chain inet t a",
        "delete chain inet t a",
    ]
    assert lines(NftState(), state()) == [
        "add map inet t m { type ipv4_addr : verdict; }",
        "add chain inet t a",
        f"add chain inet t base {{ {HOOK}; }}",
        "add rule inet t a drop",
        "add rule inet t base ip saddr vmap @m",
    ]
    assert lines(state("10.0.0.1"), NftState()) == [
        "flush map inet t m",
        "flush chain inet t a",
        "flush chain inet t base",
        "delete chain inet t a",
        "delete chain inet t base",
        "delete map inet t m",
    ]


def test_commands_have_a_bounded_length() -> None:
    new = NftState({"s": NftSet("ipv4_addr", frozenset(f"10.0.{i // 250}.{i % 250}" for i in range(5000)))})
    assert len(lines(NftState({"s": NftSet("ipv4_addr")}), new)) == 3


def test_a_section_remembers_what_it_rendered() -> None:
    desired: list[NftState | None] = [None]
    section = StateSection("inet t", lambda: desired[0])
    assert section.full() is None
    assert section.changes() == ""
    desired[0] = state()
    assert section.full() == render(state())
    assert section.changes() == ""
    desired[0] = state("10.0.0.1")
    assert section.changes() == "add element inet t m { 10.0.0.1 : jump a }\n"
    assert section.changes() == ""


# -- addresses of Pods -------------------------------------------------------------------------------------------------


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
