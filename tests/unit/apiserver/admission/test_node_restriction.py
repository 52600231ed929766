from __future__ import annotations

from typing import Any

import pytest
from admission_attributes import ObjectReader, pod, write

from setpoint.apiserver.admission.node_restriction import NodeRestriction
from setpoint.apiserver.filters.authorize import AlwaysDeny, AuthorizerChain
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import ApiError, Forbidden, NotFound

NODE = UserInfo("system:node:n1", groups=("system:nodes",))
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1", "controller": True}
MIRROR = {"kubernetes.io/config.mirror": "x"}


@pytest.fixture
def plugin(reader: ObjectReader) -> NodeRestriction:
    reader.put("", "nodes", "", "n1")
    reader.put("", "pods", "ns", "mine", spec={"nodeName": "n1"})
    reader.put("", "pods", "ns", "other", spec={"nodeName": "n2"})
    return NodeRestriction(reader, AuthorizerChain([AlwaysDeny()]))


async def refused(plugin: NodeRestriction, *args: Any, **kwargs: Any) -> str:
    """Return the reason of a denial, or "" if the write was admitted."""
    try:
        await plugin.mutate(write(*args, **{"user": NODE, **kwargs}))
    except ApiError as error:
        return error.message
    return ""


def mirror(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    more = {"annotations": MIRROR, "ownerReferences": [OWNER], **metadata}
    return pod({"nodeName": "n1", **(spec or {})}, **more)


async def test_other_users_are_not_restricted(plugin: NodeRestriction) -> None:
    assert not await refused(plugin, "pods", pod(), user=UserInfo("alice"))
    assert not await refused(plugin, "pods", pod(), user=UserInfo("system:node:n1"))
    nameless = UserInfo("system:node:", groups=("system:nodes",))
    assert "could not determine node" in await refused(plugin, "pods", pod(), user=nameless)


async def test_own_mirror_pods(plugin: NodeRestriction) -> None:
    assert await refused(plugin, "pods", mirror()) == ""


@pytest.mark.parametrize(
    ("obj", "why"),
    [
        (pod(), "can only create mirror pods"),
        (mirror({"nodeName": "n2"}), "spec.nodeName set to itself"),
        (mirror(ownerReferences=[]), "an owner reference set to itself"),
        (mirror(ownerReferences=[OWNER, OWNER]), "a single owner reference set to itself"),
        (mirror(ownerReferences=[{**OWNER, "name": "n2"}]), "an owner reference set to itself"),
        (mirror(ownerReferences=[{**OWNER, "controller": False}]), "a controller owner reference set to itself"),
        (mirror(ownerReferences=[{**OWNER, "blockOwnerDeletion": True}]), "must not set blockOwnerDeletion"),
        (mirror(ownerReferences=[{**OWNER, "uid": "?"}]), "UID mismatch: expected ? got uid-n1"),
        (mirror({"serviceAccountName": "a"}), "can not create pods that reference serviceaccounts"),
        (mirror({"resourceClaims": [{"name": "c"}]}), "can not create pods that reference resourceclaims"),
        (mirror({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}), "pods that reference secrets"),
        (mirror({"volumes": [{"name": "v", "configMap": {"name": "s"}}]}), "pods that reference configmaps"),
        (mirror({"volumes": [{"name": "v", "persistentVolumeClaim": {}}]}), "reference persistentvolumeclaims"),
        (mirror({"volumes": [{"name": "v", "news": {}}]}), "unknown volume type"),
        (
            mirror({"volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {}}]}}]}),
            "reference clustertrustbundles",
        ),
    ],
)
async def test_pods_that_a_node_may_not_create(plugin: NodeRestriction, obj: dict[str, Any], why: str) -> None:
    assert why in await refused(plugin, "pods", obj)


async def test_deletion_eviction_and_status_of_own_pods(plugin: NodeRestriction) -> None:
    for subresource, operation in (("", "DELETE"), ("eviction", "CREATE")):
        how: dict[str, Any] = {"operation": operation, "subresource": subresource}
        assert not await refused(plugin, "pods", name="mine", **how)
        assert "set to itself" in await refused(plugin, "pods", name="other", **how)
        with pytest.raises(NotFound):
            await plugin.mutate(write("pods", name="gone", user=NODE, **how))
    old = pod({"nodeName": "n1"})
    assert not await refused(plugin, "pods", pod({"nodeName": "n1"}), old, subresource="status")
    relabelled = pod({"nodeName": "n1"}, labels={"a": "b"})
    assert "cannot update labels" in await refused(plugin, "pods", relabelled, old, subresource="status")
    claiming = {**old, "status": {"resourceClaimStatuses": [{"name": "c"}]}}
    assert "cannot update resource claim" in await refused(plugin, "pods", claiming, old, subresource="status")
    strange = pod({"nodeName": "n2"})
    assert "can only update pod status" in await refused(plugin, "pods", strange, strange, subresource="status")
    assert "only create and delete mirror pods" in await refused(plugin, "pods", old, old)
    assert "unexpected pod subresource" in await refused(plugin, "pods", {}, subresource="binding")


def node(labels: dict[str, str] | None = None, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "labels": labels or {}, **metadata}, "spec": spec or {}}


@pytest.mark.parametrize(
    ("obj", "old", "why"),
    [
        (node({"kubernetes.io/os": "linux", "team": "a", "x.node.kubernetes.io/y": "z"}), None, ""),
        (node({"node-role.kubernetes.io/master": ""}), None, "not allowed to set the following labels: node-role"),
        (node({"a.node-restriction.kubernetes.io/b": ""}), None, "not allowed to set the following labels"),
        (node(spec={"configSource": {}}), None, "non-nil configSource"),
        (node({"team": "b"}), node({"team": "a"}), ""),
        (node(), node({"foo.k8s.io/a": "b"}), "is not allowed to modify labels: foo.k8s.io/a"),
        (node(spec={"taints": []}), node(spec={"taints": [{"key": "k"}]}), "not allowed to modify taints"),
        (node(ownerReferences=[OWNER]), node(), "not allowed to modify ownerReferences"),
    ],
)
async def test_its_own_node_object(
    plugin: NodeRestriction, obj: dict[str, Any], old: dict[str, Any] | None, why: str
) -> None:
    text = await refused(plugin, "nodes", obj, old, name="n1")
    assert (why in text) if why else not text


async def test_another_node(plugin: NodeRestriction) -> None:
    assert 'node "n1" is not allowed to modify node "n2"' in await refused(plugin, "nodes", node(), node(), name="n2")


async def test_leases_slices_and_claims(plugin: NodeRestriction) -> None:
    lease = {"group": "coordination.k8s.io", "namespace": "kube-node-lease"}
    assert not await refused(plugin, "leases", {"metadata": {}}, name="n1", **lease)
    assert "same name" in await refused(plugin, "leases", {"metadata": {}}, name="n2", **lease)
    assert "kube-node-lease" in await refused(plugin, "leases", {"metadata": {}}, **{**lease, "namespace": "ns"})
    slices = {"group": "resource.k8s.io"}
    assert not await refused(plugin, "resourceslices", {"spec": {"nodeName": "n1"}}, **slices)
    assert "can only create" in await refused(plugin, "resourceslices", {"spec": {}}, **slices)
    assert "can only delete" in await refused(plugin, "resourceslices", old={"spec": {"nodeName": "n2"}}, **slices)
    claim = {"metadata": {"name": "c"}, "spec": {}, "status": {"capacity": {"storage": "1"}}}
    grown = {**claim, "status": {"capacity": {"storage": "2"}}}
    assert not await refused(plugin, "persistentvolumeclaims", grown, claim, subresource="status")
    bound = {**claim, "status": {"phase": "Bound"}}
    text = await refused(plugin, "persistentvolumeclaims", bound, claim, subresource="status")
    assert "other than status.quantity" in text
    assert "may only update PVC status" in await refused(plugin, "persistentvolumeclaims", claim, claim)


async def test_tokens_only_for_own_pods(reader: ObjectReader, plugin: NodeRestriction) -> None:
    def request(name: str, **more: Any) -> dict[str, Any]:
        ref = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}
        return {"metadata": {}, "spec": {"boundObjectRef": ref, **more}}

    token: dict[str, Any] = {"subresource": "token", "name": "default"}
    reader.objects[("", "pods", "ns", "mine")]["spec"]["volumes"] = [
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"audience": "vault"}}]}}
    ]
    assert not await refused(plugin, "serviceaccounts", request("mine", audiences=["vault"]), **token)
    assert 'audience "else"' in await refused(plugin, "serviceaccounts", request("mine", audiences=["else"]), **token)
    assert "different node" in await refused(plugin, "serviceaccounts", request("other"), **token)
    unbound: dict[str, Any] = {"metadata": {}, "spec": {}}
    assert "not bound to a pod" in await refused(plugin, "serviceaccounts", unbound, **token)
    with pytest.raises(Forbidden, match="0 or 1 audiences"):
        await plugin.mutate(write("serviceaccounts", request("mine", audiences=["a", "b"]), user=NODE, **token))
