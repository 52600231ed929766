"""ResourceClaims from the Pod that requests them until they are unused."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.controllers.resourceclaim import claim_from
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging", "two-views")
PODS = builtin("pods")
CLAIMS = builtin("resourceclaims", "resource.k8s.io")
ALONE = virtual(nodes=0, scheduler=False, controllers=["resourceclaim-controller", "serviceaccount-controller"])
REQUESTS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
FINALIZER = "resource.kubernetes.io/delete-protection"


def template(name: str = "one-gpu") -> Any:
    spec = {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "n"}}, "spec": REQUESTS}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": meta, "spec": spec}


def claim(name: str) -> Any:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta, "spec": REQUESTS}


def a_pod(name: str, **entry: str) -> Any:
    container = {"name": "c", "image": "nginx", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "resourceClaims": [{"name": "gpu", **entry}]},
    }


async def claim_statuses(cluster: VirtualCluster, pod: str) -> list[Any]:
    found = await cluster.client.get(PODS, pod, "default")
    statuses: list[Obj] = found["status"].get("resourceClaimStatuses") or []
    return statuses


async def allocate(cluster: VirtualCluster, name: str, *pods: Obj) -> None:
    """Allocate a claim, as a scheduler does."""
    current = await cluster.client.get(CLAIMS, name, "default")
    current["metadata"]["finalizers"] = [FINALIZER]
    current = await cluster.client.update(current, resource=CLAIMS)
    users = [{"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]} for pod in pods]
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    current["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
    await cluster.client.update(current, resource=CLAIMS, subresource="status")


async def finish(cluster: VirtualCluster, pod: str) -> None:
    await cluster.client.patch(PODS, pod, {"status": {"phase": "Succeeded"}}, "default", subresource="status")


@ALONE
async def test_a_claim_is_created_from_a_template_and_recorded(cluster: VirtualCluster) -> None:
    await cluster.client.create(template())
    pod = await cluster.client.create(a_pod("p", resourceClaimTemplateName="one-gpu"))
    await cluster.sleep(1)
    (made,) = await cluster.all(CLAIMS)
    assert made["metadata"]["name"].startswith("p-gpu-")
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", pod["metadata"]["uid"], True)
    assert made["metadata"]["annotations"] == {"note": "n", "resource.kubernetes.io/pod-claim-name": "gpu"}
    assert made["metadata"]["labels"] == {"team": "a"}
    assert made["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.example.com"
    assert await claim_statuses(cluster, "p") == [{"name": "gpu", "resourceClaimName": made["metadata"]["name"]}]
    await cluster.client.delete(CLAIMS, made["metadata"]["name"], "default")
    await cluster.sleep(1)
    (again,) = await cluster.all(CLAIMS)
    assert again["metadata"]["name"] != made["metadata"]["name"], "whoever deletes it does not help"
    assert await claim_statuses(cluster, "p") == [{"name": "gpu", "resourceClaimName": again["metadata"]["name"]}]


@ALONE
async def test_a_missing_template_is_reported_and_retried(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("p", resourceClaimTemplateName="one-gpu"))
    await cluster.sleep(1)
    warnings = [
        message for kind, reason, message in await cluster.events("p") if reason == "FailedResourceClaimCreation"
    ]
    assert warnings[0] == (
        'PodResourceClaim gpu: resource claim template "one-gpu": '
        'resourceclaimtemplate.resource.k8s.io "one-gpu" not found'
    )
    await cluster.client.create(template())
    await cluster.sleep(1)
    assert len(await claim_statuses(cluster, "p")) == 1


@ALONE
async def test_an_unused_claim_is_deallocated(cluster: VirtualCluster) -> None:
    await cluster.client.create(claim("shared"))
    pods = [await cluster.client.create(a_pod(name, resourceClaimName="shared")) for name in "ab"]
    await allocate(cluster, "shared", *pods)
    await cluster.sleep(1)
    await finish(cluster, "a")
    await cluster.sleep(1)
    status = (await cluster.client.get(CLAIMS, "shared", "default"))["status"]
    assert [user["name"] for user in status["reservedFor"]] == ["b"] and "allocation" in status
    await cluster.client.delete(PODS, "b", "default", grace_period=0)
    await cluster.sleep(1)
    left = await cluster.client.get(CLAIMS, "shared", "default")
    assert not left.get("status") and "finalizers" not in left["metadata"]


@ALONE
async def test_a_claim_created_for_a_pod_is_deleted_when_the_pod_has_ended(cluster: VirtualCluster) -> None:
    await cluster.client.create(template())
    pod = await cluster.client.create(a_pod("p", resourceClaimTemplateName="one-gpu"))
    await cluster.sleep(1)
    (made,) = await cluster.all(CLAIMS)
    await allocate(cluster, made["metadata"]["name"], pod)
    await finish(cluster, "p")
    await cluster.sleep(1)
    assert await cluster.all(CLAIMS) == []


@ALONE
async def test_claims_of_a_bound_pod_are_reserved_for_it(cluster: VirtualCluster) -> None:
    await cluster.client.create(claim("mine"))
    await allocate(cluster, "mine")
    pod = a_pod("p", resourceClaimName="mine")
    pod["spec"]["nodeName"] = "somewhere"
    made = await cluster.client.create(pod)
    await cluster.sleep(1)
    status = (await cluster.client.get(CLAIMS, "mine", "default"))["status"]
    assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": made["metadata"]["uid"]}]
    await cluster.client.delete(CLAIMS, "mine", "default")
    await cluster.sleep(1)
    assert await cluster.find(CLAIMS, "mine"), "it is protected while it is used"
    await cluster.client.delete(PODS, "p", "default", grace_period=0)
    await cluster.sleep(1)
    assert await cluster.find(CLAIMS, "mine") is None


def test_long_names_are_truncated_proportionally() -> None:
    pod: Any = {"metadata": {"name": "p" * 60, "namespace": "n", "uid": "u"}}
    made = claim_from(template(), pod, {"name": "c" * 20})
    assert made["metadata"]["generateName"] == "p" * 41 + "-" + "c" * 13
