"""Nodes are added, stopped, partitioned, restarted and removed from the command line."""

from __future__ import annotations

from pathlib import Path

from command_line import Result, surroundings

from setpoint.cli.main import run_within
from setpoint.client import Client
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

NODES = builtin("nodes")


async def typed(cluster: VirtualCluster, home: Path, line: str) -> Result:
    def connect(_: Access, __: float) -> Client:
        return cluster.client.named("cli")

    around, result = surroundings(home, cluster.clock, "", {}, connect)
    return result(await run_within(["--server", "https://local", *line.split()], around))


def ready(node: Obj) -> str:
    conditions = node.get("status", {}).get("conditions", ())
    return next((one["status"] for one in conditions if one["type"] == "Ready"), "")


@virtual(nodes=1)
async def test_nodes_are_added_stopped_partitioned_and_removed(cluster: VirtualCluster, tmp_path: Path) -> None:
    async def nodes() -> dict[str, Obj]:
        return {one["metadata"]["name"]: one for one in (await cluster.client.list(NODES)).items}

    async def all_ready() -> bool:
        return all(ready(node) == "True" for node in (await nodes()).values())

    done = await typed(cluster, tmp_path, "nodes add --count 2 --cpu 64 --label zone=b --taint only=big:NoSchedule")
    assert (done.code, done.out) == (0, "node/node-2 added\nnode/node-3 added\n"), done.err
    await cluster.until(all_ready, within=30)
    third = (await nodes())["node-3"]
    assert third["status"]["capacity"]["cpu"] == "64"
    assert third["status"]["allocatable"]["pods"] == "110", "the rest is as of all others"
    assert third["metadata"]["labels"] == {
        "zone": "b",
        "kubernetes.io/hostname": "node-3",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
    }
    assert {"key": "only", "value": "big", "effect": "NoSchedule"} in third["spec"]["taints"]

    assert (await typed(cluster, tmp_path, "nodes partition node-2")).out == "node/node-2 partitioned\n"
    assert (await typed(cluster, tmp_path, "nodes stop node/node-3 nope")).code == 1

    async def lost() -> bool:
        found = await nodes()
        return ready(found["node-2"]) == "Unknown" and ready(found["node-3"]) == "Unknown"

    await cluster.until(lost, within=120)
    assert (await typed(cluster, tmp_path, "nodes start --all")).code == 0
    await cluster.until(all_ready, within=60)
    assert (await typed(cluster, tmp_path, "nodes remove node-3")).out == "node/node-3 removed\n"
    assert set(await nodes()) == {"node-1", "node-2"}


@virtual(nodes=1)
async def test_invalid_arguments_are_rejected(cluster: VirtualCluster, tmp_path: Path) -> None:
    for line, said in {
        "nodes stop": "which nodes?",
        "nodes stop node-1 --all": "not both",
        "nodes add x --count 2": "not both",
        "nodes add --cpu lots": "is not a quantity",
        "nodes add --taint x": "expected key=value:Effect",
        "nodes add --label x": "expected key=value",
        "nodes remove nope": 'nodes "nope" not found',
    }.items():
        done = await typed(cluster, tmp_path, line)
        assert done.code == 1
        assert said in done.err, line


@virtual(nodes=1)
async def test_a_manually_created_node_gets_the_labels_of_a_kubelet(cluster: VirtualCluster) -> None:
    """And DaemonSets that select by them reach it, as do Pods that are spread by host."""
    for kind, spec in (("by-hand", {}), ("wrong", {"kubernetes.io/os": "plan9", "tier": "x"})):
        await cluster.client.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": kind, "labels": spec, "annotations": {"simulate.setpoint.dev/node": "true"}},
            }
        )

    async def labelled() -> bool:
        nodes = [one["metadata"] for one in (await cluster.client.list(NODES)).items]
        found = {one["name"]: one.get("labels") or {} for one in nodes}
        same = [{k: v for k, v in labels.items() if "hostname" not in k and k != "tier"} for labels in found.values()]
        hosts = {labels.get("kubernetes.io/hostname") for labels in found.values()}
        return same[0] == same[1] == same[2] and hosts == set(found) and found["wrong"]["tier"] == "x"

    await cluster.until(labelled, within=30)
