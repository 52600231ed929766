"""What goes when something is deleted, and what stays: namespaces with all that is in them, owners and dependents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from stopped_clock import StoppedClock, settle

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.cluster.components import components
from setpoint.cluster.system import RandomIds
from setpoint.meta.errors import Forbidden, NotFound

Obj = dict[str, Any]
NAMESPACES, PODS, MAPS, SECRETS = builtin("namespaces"), builtin("pods"), builtin("configmaps"), builtin("secrets")
DEPLOYMENTS, SETS = builtin("deployments", "apps"), builtin("replicasets", "apps")


class Cluster:
    def __init__(self, client: Client, clock: StoppedClock) -> None:
        self.client = client
        self.clock = clock

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
        """Lets at most so much time pass on the cluster's clock, a little at a time."""
        for _ in range(int(seconds * 4)):
            for _ in range(10):
                if await holds():
                    return
                await settle()
            await self.clock.advance(0.25)
        raise AssertionError("it did not come to that")

    async def gone(self, resource: Any, name: str, namespace: str = "") -> None:
        async def is_gone() -> bool:
            try:
                await self.client.get(resource, name, namespace)
            except NotFound:
                return True
            return False

        await self.until(is_gone)

    async def names(self, resource: Any, namespace: str = "default") -> set[str]:
        return {item["metadata"]["name"] for item in (await self.client.list(resource, namespace)).items}


@pytest.fixture
async def cluster(local_server: Any) -> AsyncIterator[Cluster]:
    async with components(local_server.api, local_server.clock, RandomIds(1), 3):
        yield Cluster(local_server.client, local_server.clock)


def obj(kind: str, name: str, namespace: str = "default", api: str = "v1", **more: Any) -> Obj:
    meta = {"name": name, "namespace": namespace, **more.pop("meta", {})}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **more}


TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


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
        obj("CronJob", "cj", space, "batch/v1", spec={"schedule": "* * * * *", "jobTemplate": {
            "spec": {"template": job_template}}}),
        obj("StatefulSet", "ss", space, "apps/v1", spec={**sets, "serviceName": "v"}),
        obj("DaemonSet", "ds", space, "apps/v1", spec=sets),
        obj("Role", "r", space, "rbac.authorization.k8s.io/v1", rules=rules),
        obj("RoleBinding", "rb", space, "rbac.authorization.k8s.io/v1", roleRef=role),
        obj("Lease", "le", space, "coordination.k8s.io/v1"),
        obj("NetworkPolicy", "np", space, "networking.k8s.io/v1", spec={"podSelector": {}}),
        obj("PodDisruptionBudget", "b", space, "policy/v1", spec={"minAvailable": 1}),
        web(space),
    ]  # fmt: skip


async def contents(client: Client, space: str) -> set[str]:
    found = set()
    for resource in await client.discovery.resources():
        if resource.namespaced and "list" in resource.verbs:
            for item in (await client.list(resource, space, metadata_only=True)).items:
                found.add(f"{resource.plural}/{item['metadata']['name']}")
    return found


async def make_namespace(client: Client, name: str) -> Obj:
    return await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def test_a_namespace_goes_with_all_that_is_in_it_and_can_be_made_again(cluster: Cluster) -> None:
    client = cluster.client
    first = await make_namespace(client, "full")
    await make_namespace(client, "bystander")
    await client.create(obj("ConfigMap", "mine", "bystander"))
    for one in many_kinds("full"):
        await client.create(one)

    async def runs() -> bool:
        pods = (await client.list(PODS, "full")).items
        return [pod["status"]["phase"] for pod in pods] == ["Running"] * 3

    await cluster.until(runs)
    kinds = {entry.partition("/")[0] for entry in await contents(client, "full")}
    assert len(kinds) >= 20
    await client.delete(NAMESPACES, "full")
    with pytest.raises(Forbidden, match="because it is being terminated"):
        await client.create(obj("ConfigMap", "late", "full"))
    await cluster.gone(NAMESPACES, "full")
    assert await contents(client, "full") == set()
    assert "mine" in await cluster.names(MAPS, "bystander")
    second = await make_namespace(client, "full")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    await client.create(obj("ConfigMap", "c", "full"))

    async def has_its_account() -> bool:
        return "default" in await cluster.names(builtin("serviceaccounts"), "full")

    await cluster.until(has_its_account)
    await cluster.clock.advance(120)
    assert await cluster.names(MAPS, "full") == {"c"}


async def test_a_finalizer_in_a_namespace_holds_it_and_the_status_says_so(cluster: Cluster) -> None:
    client = cluster.client
    await make_namespace(client, "held")
    await client.create(obj("ConfigMap", "kept", "held", meta={"finalizers": ["example.com/wait"]}))
    await client.create(obj("ConfigMap", "free", "held"))
    await client.delete(NAMESPACES, "held")
    await cluster.clock.advance(4)
    assert (await cluster.names(MAPS, "held")) == {"kept", "free"}, "last requests may still come to their end"

    async def has_conditions() -> bool:
        return bool((await client.get(NAMESPACES, "held"))["status"].get("conditions"))

    await cluster.until(has_conditions, 10)
    status = (await client.get(NAMESPACES, "held"))["status"]
    assert status["phase"] == "Terminating"
    seen = {one["type"]: (one["status"], one["reason"], one["message"]) for one in status["conditions"]}
    assert seen == {
        "NamespaceDeletionDiscoveryFailure":
            ("False", "ResourcesDiscovered", "All resources successfully discovered"),
        "NamespaceDeletionGroupVersionParsingFailure":
            ("False", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
        "NamespaceDeletionContentFailure":
            ("False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        "NamespaceContentRemaining":
            ("True", "SomeResourcesRemain", "Some resources are remaining: configmaps. has 1 resource instances"),
        "NamespaceFinalizersRemaining":
            ("True", "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "
             "example.com/wait in 1 resource instances"),
    }  # fmt: skip
    assert await cluster.names(MAPS, "held") == {"kept"}
    await cluster.clock.advance(300)
    assert (await client.get(NAMESPACES, "held"))["spec"]["finalizers"] == ["kubernetes"]
    await client.patch(MAPS, "kept", {"metadata": {"finalizers": None}}, "held")
    await cluster.gone(NAMESPACES, "held")


async def test_a_finalizer_of_the_namespace_itself_is_left_to_its_owner(cluster: Cluster) -> None:
    client = cluster.client
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "two", "finalizers": ["example.com/mine"]}}
    await client.create(made)
    await client.delete(NAMESPACES, "two")

    async def finalized() -> bool:
        return not (await client.get(NAMESPACES, "two"))["spec"].get("finalizers")

    await cluster.until(finalized)
    await cluster.clock.advance(60)
    assert (await client.get(NAMESPACES, "two"))["status"]["phase"] == "Terminating"
    await client.patch(NAMESPACES, "two", {"metadata": {"finalizers": None}})
    await cluster.gone(NAMESPACES, "two")


async def test_many_namespaces_go_at_once(cluster: Cluster) -> None:
    client = cluster.client
    names = [f"space-{number}" for number in range(12)]
    for name in names:
        await make_namespace(client, name)
        await client.create(web(name, replicas=1))
    await asyncio.gather(*(client.delete(NAMESPACES, name) for name in names))
    for name in names:
        await cluster.gone(NAMESPACES, name)
