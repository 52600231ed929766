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


# -- owners and dependents --------------------------------------------------------------------------------------------

ALL = (DEPLOYMENTS, SETS, PODS)


async def rolled_out(cluster: Cluster, namespace: str = "default") -> Obj:
    await cluster.client.create(web(namespace))

    async def runs() -> bool:
        pods = (await cluster.client.list(PODS, namespace)).items
        return [pod["status"]["phase"] for pod in pods] == ["Running"] * 3

    await cluster.until(runs)
    return await cluster.client.get(DEPLOYMENTS, "web", namespace)


def owned(name: str, *owners: Obj, namespace: str = "default", **meta: Any) -> Obj:
    references = [
        {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
         "uid": owner["metadata"]["uid"], **owner.get("reference", {})}
        for owner in owners
    ]  # fmt: skip
    return obj("ConfigMap", name, namespace, meta={"ownerReferences": references, **meta})


def absent(name: str = "never", **more: Any) -> Obj:
    uid = "00000000-0000-4000-8000-000000000000"
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "uid": uid}, **more}


def blocking(owner: Obj) -> Obj:
    return {**owner, "reference": {"blockOwnerDeletion": True}}


@pytest.mark.parametrize("propagation", ["", "Background"])
async def test_a_deployment_takes_its_sets_and_pods_along(cluster: Cluster, propagation: str) -> None:
    await rolled_out(cluster)
    await cluster.client.delete(DEPLOYMENTS, "web", "default", propagation=propagation)
    with pytest.raises(NotFound):
        await cluster.client.get(DEPLOYMENTS, "web", "default")

    async def all_gone() -> bool:
        return not any([await cluster.names(resource) for resource in ALL])

    await cluster.until(all_gone, 5)


async def test_in_the_foreground_the_owner_goes_last(cluster: Cluster) -> None:
    client = cluster.client
    await rolled_out(cluster)
    start = (await client.list(DEPLOYMENTS, "default")).resource_version
    await client.delete(DEPLOYMENTS, "web", "default", propagation="Foreground")
    found = await client.get(DEPLOYMENTS, "web", "default")
    assert found["metadata"]["finalizers"] == ["foregroundDeletion"]
    await cluster.gone(DEPLOYMENTS, "web", "default")
    gone: dict[str, int] = {}
    for resource in ALL:
        watch = client.watch(resource, "default", resource_version=start, timeout_seconds=1, bookmarks=False)
        async with watch:
            last: dict[str, str] = {}
            while len(last) < (3 if resource is PODS else 1):
                kind, item = await watch.__anext__()
                if kind == "DELETED":
                    last[item["metadata"]["name"]] = item["metadata"]["resourceVersion"]
        gone[resource.plural] = max(map(int, last.values()))
    assert gone["pods"] < gone["replicasets"] < gone["deployments"]


async def test_orphans_stay_and_forget_their_owner(cluster: Cluster) -> None:
    client = cluster.client
    await rolled_out(cluster)
    await client.delete(DEPLOYMENTS, "web", "default", propagation="Orphan")
    await cluster.gone(DEPLOYMENTS, "web", "default")
    await cluster.clock.advance(60)
    (left,) = (await client.list(SETS, "default")).items
    assert "ownerReferences" not in left["metadata"]
    assert len(await cluster.names(PODS)) == 3
    again = await client.create(web())

    async def adopted() -> bool:
        (found,) = (await client.list(SETS, "default")).items
        return [one["uid"] for one in found["metadata"].get("ownerReferences") or ()] == [again["metadata"]["uid"]]

    await cluster.until(adopted)


@pytest.mark.parametrize(("kind", "api"), [("Job", "batch/v1"), ("ReplicationController", "v1")])
async def test_some_kinds_orphan_when_nothing_else_is_asked_for(cluster: Cluster, kind: str, api: str) -> None:
    client = cluster.client
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never" if kind == "Job" else "Always"}}
    spec = {"template": template, **({} if kind == "Job" else {"selector": {"app": "web"}, "replicas": 0})}
    owner = await client.create(obj(kind, "old", api=api, spec=spec))
    await client.create(owned("left", owner))
    await client.delete((api, kind), "old", "default")
    await cluster.gone((api, kind), "old", "default")
    await cluster.clock.advance(60)
    assert "ownerReferences" not in (await client.get(MAPS, "left", "default"))["metadata"]
    owner = await client.create(obj(kind, "old", api=api, spec=spec))
    await client.create(owned("taken", owner))
    await client.delete((api, kind), "old", "default", propagation="Background")
    await cluster.gone(MAPS, "taken", "default")


async def test_who_refers_to_an_owner_that_never_was_goes(cluster: Cluster) -> None:
    client = cluster.client
    await client.create(owned("lost", absent()))
    await client.create(owned("kept", absent(), await client.create(obj("Secret", "owner"))))
    await cluster.gone(MAPS, "lost", "default")

    async def only_the_real_one() -> bool:
        references = (await client.get(MAPS, "kept", "default"))["metadata"]["ownerReferences"]
        return [reference["name"] for reference in references] == ["owner"]

    await cluster.until(only_the_real_one)


async def test_one_that_was_made_later_under_the_same_name_is_another(cluster: Cluster) -> None:
    client = cluster.client
    old = await client.create(obj("Secret", "owner"))
    await client.delete(SECRETS, "owner", "default")
    await client.create(obj("Secret", "owner"))
    await client.create(owned("lost", old))
    await cluster.gone(MAPS, "lost", "default")


async def test_an_owner_in_another_namespace_is_none_and_an_event_says_so(cluster: Cluster) -> None:
    client = cluster.client
    await make_namespace(client, "other")
    owner = await client.create(obj("Secret", "owner", "other"))
    mine = await client.create(owned("mine", owner, namespace="other"))

    async def known() -> bool:
        return "default" in await cluster.names(builtin("serviceaccounts"), "other")

    await cluster.until(known)
    await settle()
    await client.create(owned("lost", owner))
    await cluster.gone(MAPS, "lost", "default")
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


async def test_owners_in_no_namespace_own_across_all(cluster: Cluster) -> None:
    client = cluster.client
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "owner"}}
    owner = await client.create({**role, "rules": []})
    await client.create(owned("mine", owner))
    await cluster.clock.advance(60)
    assert "mine" in await cluster.names(MAPS)
    await client.delete((role["apiVersion"], "ClusterRole"), "owner")
    await cluster.gone(MAPS, "mine", "default")


async def test_an_owner_of_a_kind_that_nobody_knows_is_no_reason_to_delete(cluster: Cluster) -> None:
    client = cluster.client
    unknown = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "uid": "some-uid"}}
    await client.create(owned("kept", unknown))
    await cluster.clock.advance(600)
    assert "kept" in await cluster.names(MAPS)


async def test_only_dependents_that_block_are_waited_for(cluster: Cluster) -> None:
    client = cluster.client
    owner = await client.create(obj("Secret", "owner"))
    await client.create(owned("blocks", blocking(owner), finalizers=["example.com/wait"]))
    await client.create(owned("does-not", owner, finalizers=["example.com/wait"]))
    await client.delete(SECRETS, "owner", "default", propagation="Foreground")

    async def both_are_going() -> bool:
        items = (await client.list(MAPS, "default")).items
        return sum("deletionTimestamp" in item["metadata"] for item in items) == 2

    await cluster.until(both_are_going)
    await cluster.clock.advance(300)
    assert "owner" in await cluster.names(SECRETS)
    await client.patch(MAPS, "blocks", {"metadata": {"finalizers": None}}, "default")
    await cluster.gone(SECRETS, "owner", "default")
    assert "does-not" in await cluster.names(MAPS)


async def test_a_circle_of_owners_is_opened(cluster: Cluster) -> None:
    client = cluster.client
    first = await client.create(obj("ConfigMap", "first"))
    second = await client.create(owned("second", blocking(first)))
    third = await client.create(owned("third", blocking(second)))
    closing = owned("first", blocking(third))["metadata"]["ownerReferences"]
    await client.patch(MAPS, "first", {"metadata": {"ownerReferences": closing}}, "default")
    await settle()
    await client.delete(MAPS, "first", "default", propagation="Foreground")
    for name in ("first", "second", "third"):
        await cluster.gone(MAPS, name, "default")


async def test_a_second_owner_keeps_what_the_first_leaves(cluster: Cluster) -> None:
    client = cluster.client
    one, two = await client.create(obj("Secret", "one")), await client.create(obj("Secret", "two"))
    await client.create(owned("shared", blocking(one), two))
    await client.delete(SECRETS, "one", "default", propagation="Foreground")
    await cluster.gone(SECRETS, "one", "default")
    (reference,) = (await client.get(MAPS, "shared", "default"))["metadata"]["ownerReferences"]
    assert reference["name"] == "two"
    await client.delete(SECRETS, "two", "default")
    await cluster.gone(MAPS, "shared", "default")


async def test_what_happened_while_nobody_collected_is_made_up_for(local_server: Any) -> None:
    client, clock = local_server.client, local_server.clock
    alone = Cluster(client, clock)
    gone = await client.create(obj("Secret", "gone"))
    await client.create(owned("lost", gone))
    await client.delete(SECRETS, "gone", "default")
    waits = await client.create(obj("Secret", "waits"))
    await client.create(owned("first", blocking(waits)))
    await client.delete(SECRETS, "waits", "default", propagation="Foreground")
    leaves = await client.create(obj("Secret", "leaves"))
    await client.create(owned("left", leaves))
    await client.delete(SECRETS, "leaves", "default", propagation="Orphan")
    await clock.advance(60)
    assert await alone.names(MAPS) == {"lost", "first", "left"}
    async with components(local_server.api, clock, RandomIds(1), 1):

        async def settled() -> bool:
            return await alone.names(MAPS) == {"left"} and not await alone.names(SECRETS)

        await alone.until(settled)
        await clock.advance(60)
        assert "ownerReferences" not in (await client.get(MAPS, "left", "default"))["metadata"]
