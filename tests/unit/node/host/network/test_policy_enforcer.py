"""The loop that enforces NetworkPolicies, at an API server, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from nft_interpreter import Interpreter
from policy_oracle import Packet
from policy_worlds import namespace, pod, policy

from setpoint.client.resources import builtin
from setpoint.cluster.node_tokens import ensure_node_rights
from setpoint.kinds.typed import Pod
from setpoint.meta.objects import Obj
from setpoint.node.host.network.policy_enforcer import PolicyEnforcer
from setpoint.node.host.network.policy_rules import FORWARD_CHAIN
from setpoint.node.host.network.ruleset import Fragment, StateSection
from setpoint.reconcile import Manager
from setpoint.system import RandomIds
from setpoint.tasks import child_tasks
from setpoint.testing import VirtualCluster, virtual

PODS, NAMESPACES, POLICIES = builtin("pods"), builtin("namespaces"), builtin("networkpolicies", "networking.k8s.io")
A, B = "10.244.1.2", "10.244.1.3"
OPTIONS: Any = {"nodes": 0, "controllers": [], "scheduler": False}


class RecordingTable:
    """A table that holds the state of the last update."""

    reference = "inet test"

    def __init__(self) -> None:
        self.state: Fragment | None = None
        self.updates: list[str] = []

    def add_section(self, section: StateSection) -> None: ...

    async def update(self, section: StateSection) -> bool:
        text = section.full() if self.state is None else section.changes()
        self.state = section.rendered
        if text:
            self.updates.append(text)
        return text is not None

    def allows(self, source: str, destination: str, port: int = 80) -> bool:
        assert self.state is not None
        return Interpreter(self.state).accepts(Packet(source, destination, "TCP", port), FORWARD_CHAIN)


@asynccontextmanager
async def enforced(cluster: VirtualCluster) -> AsyncIterator[tuple[RecordingTable, PolicyEnforcer]]:
    client = cluster.embedded.components.clients.client(
        "system:node:n1", ("system:nodes", "system:authenticated"), agent="kubelet"
    )
    manager, table = Manager(client, cluster.clock, RandomIds(1)), RecordingTable()
    enforcer = PolicyEnforcer(manager, "n1", table, cluster.clock)
    manager.add(enforcer)
    async with child_tasks(manager.run()):
        yield table, enforcer


async def create_pod(cluster: VirtualCluster, name: str, address: str, node: str = "n1", **labels: str) -> Obj:
    made = pod(name, "red", [address], labels, node=node)
    status, meta = made.pop("status"), made["metadata"]
    del meta["uid"]
    made["spec"] |= {"automountServiceAccountToken": False, "serviceAccountName": "default"}
    created = await cluster.client.create(made)
    return await cluster.client.update({**created, "status": status}, subresource="status")


async def begin(cluster: VirtualCluster, *, rights: bool = True) -> None:
    if rights:
        await ensure_node_rights(cluster.client)
    await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    await cluster.client.create(namespace("red", {"team": "x"}))
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "red"}}
    await cluster.client.create(account)


@virtual(**OPTIONS)
async def test_changes_are_in_force_within_a_second(cluster: VirtualCluster) -> None:
    await begin(cluster)
    first = await create_pod(cluster, "a", A, app="a")
    await create_pod(cluster, "b", B, app="b")
    async with enforced(cluster) as (table, _):
        await cluster.sleep(1)
        assert table.allows(A, B) and not table.state.sets["policy-ingress-4"].elements  # type: ignore[union-attr]
        rule = {"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}
        made = await cluster.client.create(
            policy("in", "red", podSelector={"matchLabels": {"app": "b"}}, ingress=[rule])
        )
        await cluster.sleep(1)
        assert not table.allows(A, B)
        first = await cluster.client.get(PODS, "a", "red")
        first["metadata"] = {**first["metadata"], "labels": {"app": "friend"}}
        await cluster.client.update(first)
        await cluster.sleep(1)
        assert table.allows(A, B)
        assert "chain" not in table.updates[-1], "a label changes elements only"
        await cluster.client.delete(PODS, "a", "red", grace_period=0)
        await cluster.sleep(1)
        assert not table.allows(A, B)
        await cluster.client.delete(POLICIES, "in", "red", uid=made["metadata"]["uid"])
        await cluster.sleep(1)
        assert table.allows(A, B)


@virtual(**OPTIONS)
async def test_labels_of_namespaces_are_followed(cluster: VirtualCluster) -> None:
    await begin(cluster)
    await create_pod(cluster, "a", A)
    rule = {"from": [{"namespaceSelector": {"matchLabels": {"team": "y"}}}]}
    await cluster.client.create(policy("in", "red", podSelector={}, ingress=[rule]))
    await create_pod(cluster, "b", B, node="n2")
    async with enforced(cluster) as (table, _):
        await cluster.sleep(1)
        assert not table.allows(B, A)
        assert table.allows(A, B), "the other node enforces the rules of its Pods"
        found = await cluster.client.get(NAMESPACES, "red")
        found["metadata"] = {**found["metadata"], "labels": {"team": "y"}}
        await cluster.client.update(found)
        await cluster.sleep(1)
        assert table.allows(B, A)


@virtual(**OPTIONS)
async def test_a_pod_is_isolated_before_its_containers_start(cluster: VirtualCluster) -> None:
    await begin(cluster)
    await cluster.client.create(policy("deny", "red", podSelector={}))
    async with enforced(cluster) as (table, enforcer):
        new = pod("new", "red", [A], node="n1")
        del new["status"], new["metadata"]["uid"]
        new["spec"] |= {"automountServiceAccountToken": False, "serviceAccountName": "default"}
        created = await cluster.client.create(new)
        await enforcer.admit(cast("Pod", created), [A])
        assert not table.allows(B, A)
        await cluster.client.update(
            {**created, "status": {"phase": "Pending", "message": "no address yet"}}, subresource="status"
        )
        await cluster.sleep(1)
        assert not table.allows(B, A), "the status does not have the address yet"
        await cluster.client.delete(PODS, "new", "red", grace_period=0)
        await cluster.sleep(1)
        assert table.allows(B, A)


@virtual(**OPTIONS)
async def test_a_pod_that_the_server_does_not_know_is_isolated_until_it_is_released(cluster: VirtualCluster) -> None:
    await begin(cluster)
    await cluster.client.create(policy("deny", "red", podSelector={}))
    async with enforced(cluster) as (table, enforcer):
        static = cast("Pod", pod("static", "red", [A], node="n1"))
        await enforcer.admit(static, [A])
        assert not table.allows(B, A)
        successor = cast("Pod", {**static, "metadata": {**static["metadata"], "uid": "next"}})
        await enforcer.admit(successor, [A])
        enforcer.release(static["metadata"]["uid"])
        await cluster.sleep(1)
        assert not table.allows(B, A), "a Pod with the same name has the address now"
        enforcer.release("next")
        await cluster.sleep(1)
        assert table.allows(B, A)
        host = cast("Pod", pod("host", "red", ["172.31.0.11"], node="n1", hostNetwork=True))
        await enforcer.admit(host, ["172.31.0.11"])
        assert table.allows(B, "172.31.0.11")


@virtual(**OPTIONS)
async def test_nodes_may_read_all_nodes_for_their_routes(cluster: VirtualCluster) -> None:
    await begin(cluster)
    async with enforced(cluster) as (_, enforcer):
        assert [each["metadata"]["name"] for each in (await enforcer._client.list(builtin("nodes"))).items] == ["n1"]


@virtual(**OPTIONS)
async def test_a_node_without_the_rights_says_so_and_enforces_once_it_has_them(
    cluster: VirtualCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await begin(cluster, rights=False)
    await create_pod(cluster, "a", A)
    await cluster.client.create(policy("deny", "red", podSelector={}))
    async with enforced(cluster) as (table, enforcer):
        await cluster.sleep(1)
        assert enforcer.ready.is_set() and table.allows(B, A)
        assert "NetworkPolicies are not enforced on this node" in caplog.text
        await ensure_node_rights(cluster.client)
        await cluster.sleep(20)
        assert not table.allows(B, A)
