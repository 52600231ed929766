"""The feed `writes`, on a whole cluster in virtual time: the page answers "why is it back?" without being asked."""

from __future__ import annotations

from typing import Any

import pytest
from feed_state import FeedState
from local_server import LocalServer

from setpoint.client import Client, Impersonation
from setpoint.client.resources import builtin
from setpoint.meta.errors import BadRequest, Forbidden, NotFound
from setpoint.tasks import child_tasks
from setpoint.testing import VirtualCluster, virtual
from setpoint.view.sentences import RecentWrites
from setpoint.web.feed import PageContext
from setpoint.web.feeds import writes

PODS, DEPLOYMENTS = builtin("pods"), builtin("deployments", "apps")
WEB = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx:1.29"}]},
        },
    },
}


async def test_a_server_without_causes_says_so(local_server: LocalServer) -> None:
    class Elsewhere:
        """A Kubernetes API server has no such path."""

        impersonate = None

        async def json(self, method: str, path: str, query: str = "", body: Any = None, **more: Any) -> Any:
            raise NotFound("the server could not find the requested resource")

    client = local_server.client.named("page")
    client.sender = Elsewhere()  # type: ignore[assignment]
    with pytest.raises(NotFound, match="this server does not record who writes what"):
        await writes.run(PageContext(client, local_server.clock, "", "ann", ""), {}, FeedState())
    with pytest.raises(BadRequest, match="a past moment has no writes"):
        await writes.run(PageContext(local_server.client, local_server.clock, "/at/7", "ann", ""), {}, FeedState())
    limited = local_server.client.named("page", Impersonation("bob"))
    with pytest.raises(Forbidden):
        await writes.run(PageContext(limited, local_server.clock, "", "bob", ""), {}, FeedState())


def ann(cluster: VirtualCluster) -> Client:
    return cluster.client.named("kubectl", Impersonation("ann", groups=("system:masters",)))


@virtual(nodes=2)
async def test_why_a_deleted_pod_comes_back(cluster: VirtualCluster) -> None:
    await ann(cluster).create(WEB)
    await cluster.settle()
    state = FeedState()
    context = PageContext(ann(cluster), cluster.clock, "", "ann", "")
    async with child_tasks(writes.run(context, {}, state)):
        await cluster.until(lambda: state.is_synced)
        before = len(state.entries)
        assert any(each["role"] == "you" for each in state.entries)  # the log begins with the past
        victim = (await cluster.client.list(PODS, "default")).items[0]["metadata"]["name"]
        await ann(cluster).delete(PODS, victim, "default")
        await cluster.sleep(1)
        entries = state.entries[before:]
        deleted = next(each for each in entries if each["role"] == "you")
        assert deleted["sentence"] == f"You deleted Pod {victim}."
        created = next(each for each in entries if each["objects"][0]["part"] == "created")
        name = created["objects"][0]["name"]
        assert created["sentence"] == (
            f"replicaset-controller created Pod {name} because you deleted Pod {victim}: 2 Pods exist, 3 are wanted."
        )
        assert created["because"] == created["origin"] == deleted["revision"] and created["ofYou"]
        bound = next(each for each in entries if each["objects"][0]["action"] == "bound")
        assert bound["role"] == "scheduler"
        assert bound["sentence"].startswith(f"kube-scheduler bound Pod {name} to node ")
        assert f"because replicaset-controller created it, after you deleted Pod {victim}" in bound["sentence"]
        assert any(each["role"] == "kubelet" for each in entries)
        # Heartbeats are counted: nothing is said while nothing happens.
        await cluster.sleep(60)
        count = len(state.entries)
        await cluster.sleep(60)
        assert len(state.entries) == count and state.items["folded"]["heartbeats"] > 4


@virtual(nodes=1)
async def test_the_chain_of_a_change_leads_to_its_author(cluster: VirtualCluster) -> None:
    kubectl = cluster.client.named("kubectl")
    await kubectl.create(WEB)
    await cluster.settle()
    state = FeedState()
    bob = PageContext(kubectl, cluster.clock, "", "bob", "")
    async with child_tasks(writes.run(bob, {}, state)):
        await cluster.until(lambda: state.is_synced)
        before = len(state.entries)
        await kubectl.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 4}}, "default", subresource="scale")
        await cluster.settle()
    entries = state.entries[before:]
    assert entries[0]["role"] == "person"  # another one than Bob
    assert entries[0]["sentence"] == "kubernetes-admin (kubectl) scaled Deployment web (spec.replicas 3 -> 4)."
    scaled = next(each for each in entries if each["objects"][0]["kind"] == "ReplicaSet")
    assert "because kubernetes-admin (kubectl) scaled Deployment web" in scaled["sentence"]
    created = next(each for each in entries if each["objects"][0]["part"] == "created")
    assert ", after kubernetes-admin (kubectl) scaled Deployment web" in created["sentence"]
    assert created["origin"] == entries[0]["revision"] and not created["ofYou"]


def test_only_the_latest_writes_are_kept() -> None:
    recent = RecentWrites("ann", 3)
    part = {"group": "", "resource": "pods", "kind": "Pod", "namespace": "d", "name": "a", "part": "spec"}
    for number in range(10):
        recent.add({"revision": number, "actor": "x", "objects": [part | {"action": "changed"}]})
    triggered = {"revision": 11, "actor": "y", "objects": [part | {"action": "changed"}]}
    assert recent.trigger({**triggered, "cause": {"triggers": [2]}}) is None
    assert recent.trigger({**triggered, "cause": {"triggers": [2, 8]}}) is not None
    # A record that names itself or a later revision as its trigger does not lead in circles.
    recent.add({**triggered, "cause": {"triggers": [11]}})
    assert recent.origin({**triggered, "cause": {"triggers": [11]}}) is None
    timer = {**triggered, "cause": {"besides": "timer:600"}}
    assert recent.sentence(timer) == "y changed Pod a after a timer (600 s)."
