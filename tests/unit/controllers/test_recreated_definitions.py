"""Controllers that watch resources by name notice when a definition is deleted and recreated differently."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
GROUP, NAME = "example.com", "foos.example.com"
CRDS, QUOTAS = builtin("customresourcedefinitions", "apiextensions.k8s.io"), builtin("resourcequotas")
QUOTA = ("resourcequota-controller", "serviceaccount-controller")
COLLECTOR = ("garbage-collector-controller", "serviceaccount-controller")
LONGEST_LOOK = 65.0
"""Seconds within which both controllers have asked twice which kinds there are."""


async def _define(client: Client, kind: str = "Foo", version: str = "v1", scope: str = "Namespaced") -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": GROUP,
        "scope": scope,
        "names": {"plural": "foos", "kind": kind},
        "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
    }
    meta = {"name": NAME}
    await client.create(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}
    )


def _foo(name: str, kind: str = "Foo", version: str = "v1", **meta: Any) -> Obj:
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": {"name": name, **meta}}


async def _used(cluster: VirtualCluster) -> Any:
    quota = await cluster.client.get(QUOTAS, "quota", "default")
    return (quota.get("status") or {}).get("used")


@virtual(nodes=0, scheduler=False, controllers=QUOTA, leader_elect=False)
async def test_a_quota_counts_objects_of_a_definition_recreated_in_another_version(cluster: VirtualCluster) -> None:
    client = cluster.client
    await _define(client)
    await cluster.sleep(2)
    await client.create(_foo("a", namespace="default"))
    hard = {"count/foos.example.com": "5"}
    meta = {"name": "quota", "namespace": "default"}
    await client.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}})
    await cluster.sleep(LONGEST_LOOK)
    assert await _used(cluster) == {"count/foos.example.com": "1"}
    await client.delete(CRDS, NAME)
    await cluster.sleep(10)
    await _define(client, version="v2")
    await cluster.sleep(LONGEST_LOOK)
    await client.create(_foo("b", version="v2", namespace="default"))
    await client.create(_foo("c", version="v2", namespace="default"))
    await client.delete((f"{GROUP}/v2", "Foo"), "c", "default")
    await cluster.sleep(LONGEST_LOOK)
    assert await _used(cluster) == {"count/foos.example.com": "1"}


@virtual(nodes=0, scheduler=False, controllers=COLLECTOR, leader_elect=False)
async def test_dependents_of_a_definition_recreated_with_another_kind_are_collected(cluster: VirtualCluster) -> None:
    client = cluster.client
    await _define(client)
    await cluster.sleep(LONGEST_LOOK)
    await client.delete(CRDS, NAME)
    await cluster.sleep(10)  # less than the collector takes to look again
    await _define(client, kind="Bar", scope="Cluster")
    await cluster.sleep(LONGEST_LOOK)
    owner = await client.create(_foo("owner", kind="Bar"))
    reference = {"apiVersion": f"{GROUP}/v1", "kind": "Bar", "name": "owner", "uid": owner["metadata"]["uid"]}
    await client.create(_foo("owned", kind="Bar", ownerReferences=[reference]))
    await cluster.sleep(LONGEST_LOOK)
    await client.delete((f"{GROUP}/v1", "Bar"), "owner")
    await cluster.sleep(LONGEST_LOOK)
    assert (await client.list((f"{GROUP}/v1", "Bar"))).items == []


@virtual(nodes=0, scheduler=False, controllers=(), leader_elect=False)
async def test_clients_notice_that_a_kind_was_recreated_with_the_other_scope(cluster: VirtualCluster) -> None:
    client, ref = cluster.client, (f"{GROUP}/v1", "Foo")
    for scope, meta in (("Namespaced", {"namespace": "default"}), ("Cluster", {}), ("Namespaced", {"namespace": "x"})):
        await _define(client, scope=scope)
        await cluster.sleep(2)
        if meta.get("namespace") == "x":
            await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
        namespace = meta.get("namespace", "default")
        made = await client.create({**_foo("f"), "metadata": {"name": "f", "namespace": namespace}})
        assert made["metadata"].get("namespace", "") == meta.get("namespace", "")
        assert (await client.get(ref, "f", namespace))["metadata"]["uid"] == made["metadata"]["uid"]
        await client.patch(ref, "f", {"metadata": {"labels": {"a": "b"}}}, namespace)
        await client.delete(CRDS, NAME)
        await cluster.sleep(10)
