"""Deletion of namespaces with their content, and of owners with their dependents."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.errors import Forbidden, NotFound
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
NAMESPACES, PODS, MAPS, SECRETS = builtin("namespaces"), builtin("pods"), builtin("configmaps"), builtin("secrets")
DEPLOYMENTS, SETS = builtin("deployments", "apps"), builtin("replicasets", "apps")


async def gone(cluster: VirtualCluster, resource: Any, name: str, namespace: str = "") -> None:
    async def is_gone() -> bool:
        return await cluster.find(resource, name, namespace) is None

    await cluster.until(is_gone)


async def names(cluster: VirtualCluster, resource: Any, namespace: str = "default") -> set[str]:
    return {item["metadata"]["name"] for item in await cluster.all(resource, namespace)}


def obj(kind: str, name: str, namespace: str = "default", api: str = "v1", **more: Any) -> Obj:
    meta = {"name": name, "namespace": namespace, **more.pop("meta", {})}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **more}


TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


def web(namespace: str = "default", replicas: int = 3, **meta: Any) -> Obj:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
    return obj("Deployment", "web", namespace, "apps/v1", meta=meta, spec=spec)


# -- namespaces -------------------------------------------------------------------------------------------------------


def many_kinds(space: str) -> list[Obj]:
    job_template = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    sets = {"selector": {"matchLabels": {"app": "w"}}, "template": {**TEMPLATE, "metadata": {"labels": {"app": "w"}}}}
    return [
        obj("ConfigMap", "c", space, data={"a": "b"}),
        obj("Secret", "s", space),
        obj("Service", "v", space, spec={"ports": [{"port": 80}]}),
        obj("Endpoints", "e", space),
        obj("ServiceAccount", "a", space),
        obj("LimitRange", "l", space, spec={"limits": []}),
        obj("PodTemplate", "t", space, template=TEMPLATE),
        obj("ReplicationController", "rc", space, spec={"selector": {"app": "w"}, "template": sets["template"]}),
        obj("Job", "j", space, "batch/v1", spec={"template": job_template}),
        obj(
            "CronJob",
            "cj",
            space,
            "batch/v1",
            spec={"schedule": "* * * * *", "jobTemplate": {"spec": {"template": job_template}}},
        ),
        obj("StatefulSet", "ss", space, "apps/v1", spec={**sets, "serviceName": "v"}),
        obj("DaemonSet", "ds", space, "apps/v1", spec=sets),
        obj("Role", "r", space, "rbac.authorization.k8s.io/v1", rules=rules),
        obj("RoleBinding", "rb", space, "rbac.authorization.k8s.io/v1", roleRef=role),
        obj("Lease", "le", space, "coordination.k8s.io/v1"),
        obj("NetworkPolicy", "np", space, "networking.k8s.io/v1", spec={"podSelector": {}}),
        obj("PodDisruptionBudget", "b", space, "policy/v1", spec={"minAvailable": 1}),
        web(space),
    ]


async def contents(client: Client, space: str) -> set[str]:
    found = set()
    for resource in await client.discovery.resources():
        if resource.namespaced and "list" in resource.verbs:
            for item in (await client.list(resource, space, metadata_only=True)).items:
                found.add(f"{resource.plural}/{item['metadata']['name']}")
    return found


async def make_namespace(client: Client, name: str) -> Obj:
    return await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


@virtual()
async def test_a_namespace_is_deleted_with_its_content_and_can_be_recreated(cluster: VirtualCluster) -> None:
    client = cluster.client
    first = await make_namespace(client, "full")
    await make_namespace(client, "bystander")
    await client.create(obj("ConfigMap", "mine", "bystander"))
    for one in many_kinds("full"):
        await client.create(one)

    async def runs() -> bool:
        pods = (await client.list(PODS, "full")).items
        return len(pods) >= 8 and all(pod["status"]["phase"] in ("Running", "Succeeded") for pod in pods)

    await cluster.until(runs)
    kinds = {entry.partition("/")[0] for entry in await contents(client, "full")}
    assert len(kinds) >= 20
    await client.delete(NAMESPACES, "full")
    with pytest.raises(Forbidden, match="because it is being terminated"):
        await client.create(obj("ConfigMap", "late", "full"))
    await gone(cluster, NAMESPACES, "full")
    assert await contents(client, "full") == set()
    assert "mine" in await names(cluster, MAPS, "bystander")
    second = await make_namespace(client, "full")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    await client.create(obj("ConfigMap", "c", "full"))

    async def has_its_account() -> bool:
        return "default" in await names(cluster, builtin("serviceaccounts"), "full")

    await cluster.until(has_its_account)
    await cluster.sleep(120)
    assert await names(cluster, MAPS, "full") == {"c"}


@virtual()
async def test_a_finalizer_in_a_namespace_delays_its_deletion_and_is_reported(cluster: VirtualCluster) -> None:
    client = cluster.client
    await make_namespace(client, "held")
    await client.create(obj("ConfigMap", "kept", "held", meta={"finalizers": ["example.com/wait"]}))
    await client.create(obj("ConfigMap", "free", "held"))
    await client.delete(NAMESPACES, "held")
    await cluster.sleep(4)
    assert (await names(cluster, MAPS, "held")) == {"kept", "free"}, "last requests may still come to their end"

    async def has_conditions() -> bool:
        return bool((await client.get(NAMESPACES, "held"))["status"].get("conditions"))

    await cluster.until(has_conditions, 10)
    status = (await client.get(NAMESPACES, "held"))["status"]
    assert status["phase"] == "Terminating"
    seen = {one["type"]: (one["status"], one["reason"], one["message"]) for one in status["conditions"]}
    assert seen == {
        "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered", "All resources successfully discovered"),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": (
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 1 resource instances",
        ),
        "NamespaceFinalizersRemaining": (
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: example.com/wait in 1 resource instances",
        ),
    }
    assert await names(cluster, MAPS, "held") == {"kept"}
    await cluster.sleep(300)
    assert (await client.get(NAMESPACES, "held"))["spec"]["finalizers"] == ["kubernetes"]
    await client.patch(MAPS, "kept", {"metadata": {"finalizers": None}}, "held")
    await gone(cluster, NAMESPACES, "held")


@virtual()
async def test_a_finalizer_of_the_namespace_itself_is_not_removed(cluster: VirtualCluster) -> None:
    client = cluster.client
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "two", "finalizers": ["example.com/mine"]}}
    await client.create(made)
    await client.delete(NAMESPACES, "two")

    async def finalized() -> bool:
        return not (await client.get(NAMESPACES, "two"))["spec"].get("finalizers")

    await cluster.until(finalized)
    await cluster.sleep(60)
    assert (await client.get(NAMESPACES, "two"))["status"]["phase"] == "Terminating"
    await client.patch(NAMESPACES, "two", {"metadata": {"finalizers": None}})
    await gone(cluster, NAMESPACES, "two")


@virtual()
async def test_many_namespaces_are_deleted_concurrently(cluster: VirtualCluster) -> None:
    client = cluster.client
    names = [f"space-{number}" for number in range(12)]
    for name in names:
        await make_namespace(client, name)
        await client.create(web(name, replicas=1))
    await asyncio.gather(*(client.delete(NAMESPACES, name) for name in names))
    for name in names:
        await gone(cluster, NAMESPACES, name)


# -- owners and dependents --------------------------------------------------------------------------------------------

ALL = (DEPLOYMENTS, SETS, PODS)


async def rolled_out(cluster: VirtualCluster, namespace: str = "default") -> Obj:
    await cluster.client.create(web(namespace))

    async def runs() -> bool:
        pods = (await cluster.client.list(PODS, namespace)).items
        return [pod["status"]["phase"] for pod in pods] == ["Running"] * 3

    await cluster.until(runs)
    return await cluster.client.get(DEPLOYMENTS, "web", namespace)


def owned(name: str, *owners: Obj, namespace: str = "default", **meta: Any) -> Obj:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **owner.get("reference", {}),
        }
        for owner in owners
    ]
    return obj("ConfigMap", name, namespace, meta={"ownerReferences": references, **meta})


def absent(name: str = "never", **more: Any) -> Obj:
    uid = "00000000-0000-4000-8000-000000000000"
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "uid": uid}, **more}


def blocking(owner: Obj) -> Obj:
    return {**owner, "reference": {"blockOwnerDeletion": True}}


@pytest.mark.parametrize("propagation", ["", "Background"])
@virtual()
async def test_deleting_a_deployment_deletes_its_replica_sets_and_pods(
    cluster: VirtualCluster, propagation: str
) -> None:
    await rolled_out(cluster)
    await cluster.client.delete(DEPLOYMENTS, "web", "default", propagation=propagation)
    with pytest.raises(NotFound):
        await cluster.client.get(DEPLOYMENTS, "web", "default")

    async def all_gone() -> bool:
        return not any([await names(cluster, resource) for resource in ALL])

    await cluster.until(all_gone, 5)


@virtual()
async def test_in_foreground_deletion_the_owner_is_deleted_last(cluster: VirtualCluster) -> None:
    client = cluster.client
    await rolled_out(cluster)
    start = (await client.list(DEPLOYMENTS, "default")).resource_version
    await client.delete(DEPLOYMENTS, "web", "default", propagation="Foreground")
    found = await client.get(DEPLOYMENTS, "web", "default")
    assert found["metadata"]["finalizers"] == ["foregroundDeletion"]
    await gone(cluster, DEPLOYMENTS, "web", "default")
    went: dict[str, int] = {}
    for resource in ALL:
        watch = client.watch(resource, "default", resource_version=start, timeout_seconds=1, bookmarks=False)
        async with watch:
            last: dict[str, str] = {}
            while len(last) < (3 if resource is PODS else 1):
                kind, item = await watch.__anext__()
                if kind == "DELETED":
                    last[item["metadata"]["name"]] = item["metadata"]["resourceVersion"]
        went[resource.plural] = max(map(int, last.values()))
    assert went["pods"] < went["replicasets"] < went["deployments"]


@virtual()
async def test_orphans_are_retained_without_owner_references(cluster: VirtualCluster) -> None:
    client = cluster.client
    await rolled_out(cluster)
    await client.delete(DEPLOYMENTS, "web", "default", propagation="Orphan")
    await gone(cluster, DEPLOYMENTS, "web", "default")
    await cluster.sleep(60)
    (left,) = (await client.list(SETS, "default")).items
    assert "ownerReferences" not in left["metadata"]
    assert len(await names(cluster, PODS)) == 3
    again = await client.create(web())

    async def adopted() -> bool:
        (found,) = (await client.list(SETS, "default")).items
        return [one["uid"] for one in found["metadata"].get("ownerReferences") or ()] == [again["metadata"]["uid"]]

    await cluster.until(adopted)


@pytest.mark.parametrize(("kind", "api"), [("Job", "batch/v1"), ("ReplicationController", "v1")])
@virtual()
async def test_some_kinds_orphan_by_default(cluster: VirtualCluster, kind: str, api: str) -> None:
    client = cluster.client
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never" if kind == "Job" else "Always"}}
    spec = {"template": template, **({} if kind == "Job" else {"selector": {"app": "web"}, "replicas": 0})}
    owner = await client.create(obj(kind, "old", api=api, spec=spec))
    await client.create(owned("left", owner))
    await client.delete((api, kind), "old", "default")
    await gone(cluster, (api, kind), "old", "default")
    await cluster.sleep(60)
    assert "ownerReferences" not in (await client.get(MAPS, "left", "default"))["metadata"]
    owner = await client.create(obj(kind, "old", api=api, spec=spec))
    await client.create(owned("taken", owner))
    await client.delete((api, kind), "old", "default", propagation="Background")
    await gone(cluster, MAPS, "taken", "default")


@virtual()
async def test_a_dependent_of_an_owner_that_never_existed_is_deleted(cluster: VirtualCluster) -> None:
    client = cluster.client
    await client.create(owned("lost", absent()))
    await client.create(owned("kept", absent(), await client.create(obj("Secret", "owner"))))
    await gone(cluster, MAPS, "lost", "default")

    async def only_the_real_one() -> bool:
        references = (await client.get(MAPS, "kept", "default"))["metadata"]["ownerReferences"]
        return [reference["name"] for reference in references] == ["owner"]

    await cluster.until(only_the_real_one)


@virtual()
async def test_a_recreated_owner_of_the_same_name_is_not_the_owner(cluster: VirtualCluster) -> None:
    client = cluster.client
    old = await client.create(obj("Secret", "owner"))
    await client.delete(SECRETS, "owner", "default")
    await client.create(obj("Secret", "owner"))
    await client.create(owned("lost", old))
    await gone(cluster, MAPS, "lost", "default")


@virtual()
async def test_an_owner_in_another_namespace_is_invalid_and_reported(cluster: VirtualCluster) -> None:
    client = cluster.client
    await make_namespace(client, "other")
    owner = await client.create(obj("Secret", "owner", "other"))
    mine = await client.create(owned("mine", owner, namespace="other"))

    async def known() -> bool:
        return "default" in await names(cluster, builtin("serviceaccounts"), "other")

    await cluster.until(known)
    await cluster.instant()
    await client.create(owned("lost", owner))
    await gone(cluster, MAPS, "lost", "default")
    assert (await client.get(MAPS, "mine", "other"))["metadata"]["uid"] == mine["metadata"]["uid"]

    async def told() -> bool:
        return any(
            event["reason"] == "OwnerRefInvalidNamespace"
            and event["message"]
            == f"ownerRef [v1/Secret, namespace: default, name: owner, uid: "
            f'{owner["metadata"]["uid"]}] does not exist in namespace "default"'
            for event in (await client.list(("v1", "Event"), "default")).items
        )

    await cluster.until(told)


@virtual()
async def test_cluster_scoped_owners_own_objects_in_all_namespaces(cluster: VirtualCluster) -> None:
    client = cluster.client
    role: Obj = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "owner"}}
    owner = await client.create({**role, "rules": []})
    await client.create(owned("mine", owner))
    await cluster.sleep(60)
    assert "mine" in await names(cluster, MAPS)
    await client.delete((role["apiVersion"], "ClusterRole"), "owner")
    await gone(cluster, MAPS, "mine", "default")


@virtual()
async def test_an_owner_of_an_unknown_kind_deletes_nothing(cluster: VirtualCluster) -> None:
    client = cluster.client
    unknown = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "uid": "some-uid"}}
    await client.create(owned("kept", unknown))
    await cluster.sleep(600)
    assert "kept" in await names(cluster, MAPS)


@virtual()
async def test_foreground_deletion_waits_only_for_blocking_dependents(cluster: VirtualCluster) -> None:
    client = cluster.client
    owner = await client.create(obj("Secret", "owner"))
    await client.create(owned("blocks", blocking(owner), finalizers=["example.com/wait"]))
    await client.create(owned("does-not", owner, finalizers=["example.com/wait"]))
    await cluster.sleep(1)  # until the collector knows who depends on whom
    await client.delete(SECRETS, "owner", "default", propagation="Foreground")

    async def both_are_going() -> bool:
        items = (await client.list(MAPS, "default")).items
        return sum("deletionTimestamp" in item["metadata"] for item in items) == 2

    await cluster.until(both_are_going)
    await cluster.sleep(300)
    assert "owner" in await names(cluster, SECRETS)
    await client.patch(MAPS, "blocks", {"metadata": {"finalizers": None}}, "default")
    await gone(cluster, SECRETS, "owner", "default")
    assert "does-not" in await names(cluster, MAPS)


@virtual()
async def test_a_cycle_of_owners_is_deleted(cluster: VirtualCluster) -> None:
    client = cluster.client
    first = await client.create(obj("ConfigMap", "first"))
    second = await client.create(owned("second", blocking(first)))
    third = await client.create(owned("third", blocking(second)))
    closing = owned("first", blocking(third))["metadata"]["ownerReferences"]
    await client.patch(MAPS, "first", {"metadata": {"ownerReferences": closing}}, "default")
    await cluster.instant()
    await client.delete(MAPS, "first", "default", propagation="Foreground")
    for name in ("first", "second", "third"):
        await gone(cluster, MAPS, name, "default")


@virtual()
async def test_a_dependent_with_a_second_owner_is_retained(cluster: VirtualCluster) -> None:
    client = cluster.client
    one, two = await client.create(obj("Secret", "one")), await client.create(obj("Secret", "two"))
    await client.create(owned("shared", blocking(one), two))
    await client.delete(SECRETS, "one", "default", propagation="Foreground")
    await gone(cluster, SECRETS, "one", "default")
    (reference,) = (await client.get(MAPS, "shared", "default"))["metadata"]["ownerReferences"]
    assert reference["name"] == "two"
    await client.delete(SECRETS, "two", "default")
    await gone(cluster, MAPS, "shared", "default")


@virtual()
async def test_deletions_during_a_collector_outage_are_processed(cluster: VirtualCluster) -> None:
    client = cluster.client
    await cluster.kill("controllers")
    went = await client.create(obj("Secret", "gone"))
    await client.create(owned("lost", went))
    await client.delete(SECRETS, "gone", "default")
    waits = await client.create(obj("Secret", "waits"))
    await client.create(owned("first", blocking(waits)))
    await client.delete(SECRETS, "waits", "default", propagation="Foreground")
    leaves = await client.create(obj("Secret", "leaves"))
    await client.create(owned("left", leaves))
    await client.delete(SECRETS, "leaves", "default", propagation="Orphan")
    await cluster.sleep(60)
    assert await names(cluster, MAPS) == {"lost", "first", "left"}
    await cluster.start("controllers")

    async def settled() -> bool:
        return await names(cluster, MAPS) == {"left"} and not await names(cluster, SECRETS)

    await cluster.until(settled)
    await cluster.sleep(60)
    assert "ownerReferences" not in (await client.get(MAPS, "left", "default"))["metadata"]
