"""NetworkPolicies: what the rules allow is what the policies allow."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from effort import tries
from nft_interpreter import Interpreter
from policy_oracle import Packet, World, differences
from policy_worlds import OUTSIDE, all_packets, namespace, pod, policy, random_policy, random_world

from setpoint.node.host.network.policies import PolicyIndex, parse_policy, pod_facts
from setpoint.node.host.network.policy_rules import FORWARD_CHAIN, PolicyRules
from setpoint.node.host.network.ruleset import Fragment

Json = dict[str, Any]

A, B, C = "10.244.1.2", "10.244.1.3", "10.244.2.2"
NODES = ("one", "two")
SITES = [
    ("one", ["10.244.1.2", "fd00:1::2"]),
    ("one", ["10.244.1.3", "fd00:1::3"]),
    ("one", ["10.244.1.4"]),
    ("two", ["10.244.2.2", "fd00:2::2"]),
    ("two", ["10.244.2.3", "fd00:2::3"]),
    ("two", ["fd00:2::4"]),
]


def index(world: World, node: str = "one") -> PolicyIndex:
    found = PolicyIndex(node)
    fill(found, World((), (), ()), world)
    return found


def fill(found: PolicyIndex, old: World, new: World) -> None:
    """Change an index from one world to another."""
    names = {each["metadata"]["name"]: each["metadata"]["labels"] for each in new.namespaces}
    for name in {each["metadata"]["name"] for each in (*old.namespaces, *new.namespaces)}:
        found.set_namespace(name, names.get(name))
    policies = {key(each): each for each in new.policies}
    for each in {key(each) for each in (*old.policies, *new.policies)}:
        found.set_policy(each, parse_policy(policies[each]) if each in policies else None)
    pods = {key(each): each for each in new.pods}
    for each in {key(each) for each in (*old.pods, *new.pods)}:
        found.set_pod(each, pod_facts(pods[each]) if each in pods else None)


def key(obj: Json) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def reachability(states: dict[str, Fragment], world: World, packets: list[Packet]) -> dict[Packet, bool]:
    """Return which packets pass the nodes of both ends."""
    interpreters = {node: Interpreter(state) for node, state in states.items()}
    place = {each["ip"]: pod["spec"]["nodeName"] for pod in world.pods for each in pod["status"]["podIPs"]}
    return {
        packet: all(
            interpreters[node].accepts(packet, FORWARD_CHAIN)
            for node in {place.get(packet.source), place.get(packet.destination)}
            if node is not None
        )
        for packet in packets
    }


def states(world: World) -> dict[str, Fragment]:
    return {node: PolicyRules(index(world, node)).state() for node in NODES}


def check(world: World, rules: dict[str, Fragment]) -> None:
    packets = all_packets(world)
    problems = differences(((each, world.allows(each)) for each in packets), reachability(rules, world, packets))
    assert not problems, "\n".join([*problems[:5], *map(str, world.policies)])


@pytest.mark.parametrize("seed", range(tries(60, 1000)))
def test_random_policies_allow_what_the_independent_evaluator_allows(seed: int) -> None:
    world = random_world(Random(seed), SITES)
    check(world, states(world))


def test_the_evaluators_see_allowed_and_refused_packets() -> None:
    """The comparison says nothing if nearly all packets are allowed, or refused."""
    answers = [
        world.allows(packet)
        for seed in range(30)
        for world in [random_world(Random(seed), SITES)]
        for packet in all_packets(world)
    ]
    assert 0.2 < sum(answers) / len(answers) < 0.9


@pytest.mark.parametrize("seed", range(tries(20, 200)))
def test_an_index_that_changes_step_by_step_equals_a_new_one(seed: int) -> None:
    random = Random(seed)
    world, found = World((), (), ()), {node: PolicyIndex(node) for node in NODES}
    rules = {node: PolicyRules(each) for node, each in found.items()}
    for _ in range(6):
        changed = random_world(random, random.sample(SITES, random.randint(0, len(SITES))))
        if random.random() < 0.5:  # only the policies
            addresses = [address for _, addresses in SITES for address in addresses]
            added = (*world.policies, random_policy(random, f"policy-{random.randrange(4)}", addresses))
            changed = World(world.pods, world.namespaces, tuple({key(each): each for each in added}.values()))
        for each in found.values():
            fill(each, world, changed)
        world = changed
        assert {node: each.state() for node, each in rules.items()} == states(world)
    check(world, states(world))


# -- single rules ------------------------------------------------------------------------------------------------------


def allows(policies: list[Json], packet: Packet, *, pods: list[Json] | None = None) -> bool:
    world = World(
        tuple(
            pods
            or [
                pod("a", "red", [A], {"app": "a"}),
                pod("b", "red", [B], {"app": "b"}, ports=[{"name": "web", "containerPort": 8080}]),
                pod("c", "blue", [C], {"app": "c"}, node="two", ports=[{"name": "web", "containerPort": 9090}]),
            ]
        ),
        (namespace("red", {"team": "x"}), namespace("blue", {"team": "y"})),
        tuple(policies),
    )
    found = reachability(states(world), world, [packet])[packet]
    assert found == world.allows(packet), "the two evaluators agree"
    return found


def tcp(source: str, destination: str, port: int = 80) -> Packet:
    return Packet(source, destination, "TCP", port)


def test_without_policies_everything_is_allowed() -> None:
    assert allows([], tcp(A, B))


def test_a_policy_without_rules_isolates() -> None:
    deny = policy("deny", "red", podSelector={"matchLabels": {"app": "b"}})
    assert not allows([deny], tcp(A, B))
    assert not allows([deny], tcp(OUTSIDE[4], B))
    assert allows([deny], tcp(B, A)), "only what is inbound"
    assert allows([deny], tcp(A, C)), "only Pods that are selected"


def test_a_pod_reaches_itself() -> None:
    deny = policy("deny", "red", podSelector={}, policyTypes=["Ingress", "Egress"])
    assert allows([deny], tcp(A, A))
    assert not allows([deny], tcp(A, B))


def test_egress_and_ingress_are_both_needed() -> None:
    deny = policy("deny", "red", podSelector={}, policyTypes=["Ingress", "Egress"])
    leave = policy("leave", "red", podSelector={"matchLabels": {"app": "a"}}, policyTypes=["Egress"], egress=[{}])
    enter = policy("enter", "red", podSelector={"matchLabels": {"app": "b"}}, ingress=[{}])
    assert not allows([deny, leave], tcp(A, B))
    assert not allows([deny, enter], tcp(A, B))
    assert allows([deny, leave, enter], tcp(A, B))


@pytest.mark.parametrize(("source", "expected"), [(A, False), (C, True)])
def test_a_selector_of_pods_is_for_the_own_namespace_unless_namespaces_are_selected(
    source: str, expected: bool
) -> None:
    everywhere = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "c"]}]}
    own = policy(
        "own", "red", podSelector={"matchLabels": {"app": "b"}}, ingress=[{"from": [{"podSelector": everywhere}]}]
    )
    other = policy(
        "other",
        "red",
        podSelector={"matchLabels": {"app": "b"}},
        ingress=[{"from": [{"podSelector": everywhere, "namespaceSelector": {"matchLabels": {"team": "y"}}}]}],
    )
    assert allows([own], tcp(source, B)) is not expected
    assert allows([other], tcp(source, B)) is expected


def test_a_named_port_is_the_one_of_the_destination() -> None:
    ingress = policy("in", "red", podSelector={}, ingress=[{"ports": [{"port": "web"}]}])
    assert allows([ingress], tcp(A, B, 8080))
    assert not allows([ingress], tcp(A, B, 9090))
    assert not allows([ingress], tcp(B, A, 8080)), "a has no such port"
    egress = policy("out", "red", podSelector={}, policyTypes=["Egress"], egress=[{"ports": [{"port": "web"}]}])
    assert allows([egress], tcp(A, C, 9090))
    assert not allows([egress], tcp(A, C, 8080))


def test_ranges_of_ports_include_their_ends() -> None:
    some = policy("in", "red", podSelector={}, ingress=[{"ports": [{"port": 100, "endPort": 200}, {"port": 150}]}])
    assert [port for port in (99, 100, 150, 200, 201) if allows([some], tcp(A, B, port))] == [100, 150, 200]
    assert not allows([some], Packet(A, B, "UDP", 150))


def test_an_exception_of_a_block_is_refused_unless_another_peer_allows_it() -> None:
    block = {"ipBlock": {"cidr": "10.244.0.0/16", "except": ["10.244.2.0/24", "10.244.2.0/25"]}}
    some = policy("in", "red", podSelector={}, ingress=[{"from": [block]}])
    assert allows([some], tcp(A, B))
    assert not allows([some], tcp(C, B))
    assert allows(
        [some, policy("more", "red", podSelector={}, ingress=[{"from": [{"namespaceSelector": {}}]}])], tcp(C, B)
    )


def test_finished_pods_and_pods_on_the_host_network_are_not_peers() -> None:
    everything = policy(
        "in", "red", podSelector={"matchLabels": {"app": "b"}}, ingress=[{"from": [{"podSelector": {}}]}]
    )
    target, finished = pod("b", "red", [B], {"app": "b"}), pod("a", "red", [A], {"app": "a"})
    finished["status"]["phase"] = "Succeeded"
    assert not allows([everything], tcp(A, B), pods=[target, finished])
    host = pod("a", "red", ["172.31.0.12"], {"app": "a"}, hostNetwork=True)
    assert not allows([everything], tcp("172.31.0.12", B), pods=[target, host])
    assert allows([policy("deny", "red", podSelector={})], tcp(B, "172.31.0.12"), pods=[host])


def test_pods_with_the_same_policies_share_a_chain_and_new_pods_change_elements_only() -> None:
    allow = policy("in", "red", podSelector={}, ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "a"}}}]}])
    first = [pod(f"b{i}", "red", [f"10.244.1.{i}"], {"app": "b"}) for i in range(10, 20)]
    world = World(tuple(first), (namespace("red"),), (allow,))
    found = index(world)
    rules = PolicyRules(found)
    before = rules.state()
    assert len(before.chains) == 2, "the base chain, and one for the Pods"
    found.set_pod("red/a", pod_facts(pod("a", "red", [A], {"app": "a"}, node="two")))
    after = rules.state()
    assert after.chains == before.chains
    changed = [name for name, each in after.sets.items() if each != before.sets[name]]
    assert len(changed) == 1 and after.sets[changed[0]].elements == {A}


def test_an_invalid_block_or_selector_allows_nothing() -> None:
    wrong: list[Json] = [
        {"ipBlock": {"cidr": "nonsense"}},
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["nonsense"]}},
        {"podSelector": {"matchExpressions": [{"key": "app", "operator": "Like"}]}},
    ]
    found = parse_policy(policy("in", "red", podSelector={}, ingress=[{"from": wrong}]))
    world = World((pod("a", "red", [A]), pod("b", "red", [B])), (namespace("red"),), ())
    filled = index(world)
    filled.set_policy(found.key, found)
    assert not Interpreter(PolicyRules(filled).state()).accepts(tcp(A, B), FORWARD_CHAIN)
