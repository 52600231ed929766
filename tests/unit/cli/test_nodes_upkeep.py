"""`taint`, `cordon`, `drain`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from command_line import Typed
from local_server import LocalServer

from setpoint.cli.verbs.taint import Taint, changed

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}


def pod(name: str, *, owner: str = "", **spec: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "namespace": "default", "labels": {"app": name}}
    if owner:
        meta["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "1", "controller": True}
        ]
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


@pytest.fixture
async def node(local_server: LocalServer) -> LocalServer:
    await local_server.client.create(NODE)
    return local_server


def test_taints_in_order() -> None:
    node = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    new = [Taint("b", "1", "NoExecute")]
    assert changed(node, new, [], False) == (
        [{"key": "b", "value": "1", "effect": "NoExecute"}, {"key": "a", "effect": "NoSchedule"}],
        "tainted",
    )
    assert changed(node, [], [Taint("a", "", "")], False) == ([], "untainted")
    assert changed(node, new, [Taint("a", "", "NoSchedule")], False)[1] == "modified"


async def test_taints_are_added_and_removed(typed: Typed, node: LocalServer) -> None:
    assert await typed("taint node n a=b:NoSchedule") == "node/n tainted\n"
    assert "already has a taint(s) with same effect(s)" in await typed.refused("taint node n a=c:NoSchedule")
    assert await typed("taint node n a=c:NoSchedule --overwrite") == "node/n modified\n"
    assert await typed("taint node n a-") == "node/n untainted\n"
    assert await typed.refused("taint node n a-") == 'error: taint "a" not found\n'
    taints = json.loads(await typed("get node n -o json"))["spec"]["taints"]
    assert [one["key"] for one in taints] == ["node.kubernetes.io/not-ready"]


async def test_cordoning(typed: Typed, node: LocalServer) -> None:
    assert await typed("cordon n") == "node/n cordoned\n"
    assert await typed("cordon n") == "node/n already cordoned\n"
    assert await typed("uncordon n") == "node/n uncordoned\n"
    assert "unschedulable" not in json.loads(await typed("get node n -o json"))["spec"]


async def test_drain_stops_at_pods_that_would_be_lost(typed: Typed, node: LocalServer) -> None:
    await node.client.create(pod("alone"))
    await node.client.create(pod("data", owner="ReplicaSet", volumes=[{"name": "d", "emptyDir": {}}]))
    done = await typed.run("drain n")
    assert (done.code, done.out) == (1, "node/n cordoned\n")
    assert "Pods that declare no controller (use --force to override): default/alone" in done.err
    assert "Pods with local storage (use --delete-emptydir-data to override): default/data" in done.err
    assert "There are pending nodes to be drained:\n n\n" in done.err
    done = await typed.run("drain n --force --delete-emptydir-data --grace-period=0")
    assert done.code == 0
    assert sorted(done.out.splitlines()) == [
        "evicting pod default/alone",
        "evicting pod default/data",
        "node/n already cordoned",
        "node/n drained",
        "pod/alone evicted",
        "pod/data evicted",
    ]
    assert done.err == "Warning: deleting Pods that declare no controller: default/alone\n"


async def test_drain_ignores_pods_of_daemon_sets(typed: Typed, node: LocalServer) -> None:
    await node.client.create(pod("d", owner="DaemonSet"))
    assert 'daemonsets.apps "x" not found' in (await typed.run("drain n")).err
    await node.client.create(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "x", "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        }
    )
    assert "(use --ignore-daemonsets to ignore)" in (await typed.run("drain n")).err
    done = await typed.run("drain n --ignore-daemonsets")
    assert (done.code, done.err) == (0, "Warning: ignoring DaemonSet-managed Pods: default/d\n")
    assert await typed("get pod d -o name") == "pod/d\n"


async def test_drain_waits_for_disruption_budgets(typed: Typed, node: LocalServer) -> None:
    await node.client.create(pod("a", owner="ReplicaSet"))
    await typed("create pdb p --selector=app=a --min-available=1")
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await node.client.patch(("v1", "Pod"), "a", status, "default", subresource="status")
    await node.client.patch(
        ("policy/v1", "PodDisruptionBudget"),
        "p",
        {
            "status": {
                "observedGeneration": 1,
                "disruptionsAllowed": 0,
                "currentHealthy": 1,
                "desiredHealthy": 1,
                "expectedPods": 1,
            }
        },
        "default",
        subresource="status",
    )
    done = await typed.while_time_passes("drain n --timeout=8s", 20)
    assert done.code == 1
    assert done.out.count("evicting pod default/a\n") == 3
    assert "(will retry after 5s): Cannot evict pod as it would violate the pod's disruption budget." in done.err
    assert "global timeout reached: 8s" in done.err
    assert 'There are pending pods in node "n" when an error occurred' in done.err
