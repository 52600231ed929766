"""Which of several errors of a write is reported, and its message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from server_harness import ServerHarness

from setpoint.apiserver.registry import storage_path
from setpoint.kinds.catalog import Resource

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
HERE = "/api/v1/namespaces/default"
APPS = "/apis/apps/v1/namespaces/default/deployments"
APPLY = "application/apply-patch+yaml"
BAD = {"spec": {"leaseDurationSeconds": -1}}


@pytest.fixture
async def harness() -> AsyncIterator[ServerHarness]:
    harness = await ServerHarness.open()
    yield harness
    await harness.close()


def storage_error(key: str, given: str, found: str) -> str:
    return (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {given}, UID in object meta: {found}"
    )


async def put(
    harness: ServerHarness, path: str, name: str, more: dict[str, Any] | None = None, **meta: str
) -> tuple[int, str]:
    reply = await harness.request("PUT", path, {"metadata": {"name": name, **meta}, **(more or {})})
    return reply.status, reply.json.get("message", "").removeprefix("Operation cannot be fulfilled on ")


@pytest.mark.parametrize("more", [None, BAD])
async def test_a_uid_requires_an_existing_object(harness: ServerHarness, more: dict[str, Any] | None) -> None:
    told = 'leases.coordination.k8s.io "x": '
    for revision in ({}, {"resourceVersion": "5"}):
        expected = told + storage_error("/registry/leases/default/x", "abc", "")
        assert await put(harness, f"{LEASES}/x", "x", more, uid="abc", **revision) == (409, expected)
        expected = told + storage_error("/leases/default/x", "abc", "")
        assert await put(harness, f"{LEASES}/x?dryRun=All", "x", more, uid="abc", **revision) == (409, expected)
    config = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: x, uid: abc, resourceVersion: '5'}"
    reply = await harness.patch(f"{LEASES}/x?fieldManager=m", config.encode(), APPLY)
    assert reply.json["message"].endswith(
        "uid mismatch: the provided object specified uid abc, and no existing object was found"
    )


async def test_a_uid_of_another_object(harness: ServerHarness) -> None:
    found = (await harness.get(HERE)).json["metadata"]["uid"]
    expected = storage_error("/registry/namespaces/default", "5", found)
    assert await put(harness, HERE, "default", uid="5") == (409, f'namespaces "default": {expected}')


@pytest.mark.parametrize(
    ("group", "plural", "namespaced", "path"),
    [
        ("", "pods", True, "/pods/n/o"),
        ("", "services", True, "/services/specs/n/o"),
        ("", "endpoints", True, "/services/endpoints/n/o"),
        ("", "nodes", False, "/minions/o"),
        ("apps", "deployments", True, "/deployments/n/o"),
        ("networking.k8s.io", "ingresses", True, "/ingress/n/o"),
        ("apiregistration.k8s.io", "apiservices", False, "/apiregistration.k8s.io/apiservices/o"),
    ],
)
def test_storage_paths_in_messages(group: str, plural: str, namespaced: bool, path: str) -> None:
    assert storage_path(Resource(group, "v1", "Kind", plural, namespaced=namespaced), "n", "o") == path


@pytest.mark.parametrize("dry", ["", "?dryRun=All"])
async def test_the_resource_version_of_a_missing_object_must_be_valid(harness: ServerHarness, dry: str) -> None:
    assert await put(harness, f"{LEASES}/x{dry}", "x", resourceVersion="abc") == (
        500,
        'strconv.ParseUint: parsing "abc": invalid syntax',
    )
    assert (await put(harness, f"{LEASES}/x{dry}", "x", BAD, resourceVersion="5"))[0] == 422
    assert await put(harness, f"{LEASES}/x{dry}", "x", resourceVersion="5") == (201, "")


@pytest.mark.parametrize("meta", [{}, {"resourceVersion": "5"}])
async def test_an_empty_list_is_owned_after_a_create_with_put(harness: ServerHarness, meta: dict[str, str]) -> None:
    reply = await harness.request("PUT", f"{ROLES}/r", {"metadata": {"name": "r", **meta}, "rules": []})
    assert reply.json["rules"] is None
    assert [entry["fieldsV1"] for entry in reply.json["metadata"]["managedFields"]] == [{"f:rules": {}}]


@pytest.mark.parametrize(
    ("eviction", "told"),
    [
        (
            {"metadata": {"name": "p", "namespace": "kube-system"}},
            (400, "the namespace of the provided object does not"),
        ),
        ({"metadata": {"name": "p"}, "deleteOptions": {"propagationPolicy": "X"}}, (404, 'pods "p" not found')),
        ({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["X"]}}, (404, 'pods "p" not found')),
    ],
)
async def test_evictions_of_missing_pods(
    harness: ServerHarness, eviction: dict[str, Any], told: tuple[int, str]
) -> None:
    reply = await harness.post(f"{HERE}/pods/p/eviction", eviction)
    assert (reply.status, reply.json["message"][: len(told[1])]) == told


@pytest.mark.parametrize(
    "config",
    ["{", "{}", "apiVersion: v1\nkind: Pod", "metadata: {name: other}", "spec: {replicas: x}", "spec: {no: 1}"],
)
async def test_apply_to_the_scale_of_a_missing_object_is_not_validated(harness: ServerHarness, config: str) -> None:
    head = "apiVersion: autoscaling/v1\nkind: Scale\n" if config[0] in "ms" else ""
    reply = await harness.patch(f"{APPS}/absent/scale?fieldManager=m", f"{head}{config}".encode(), APPLY)
    assert (reply.status, reply.json["message"]) == (404, 'deployments.apps "absent" not found')


async def test_a_scale_of_another_object(harness: ServerHarness) -> None:
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = await harness.make(
        APPS, {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    )
    uid = made["metadata"]["uid"]
    status, text = await put(harness, f"{APPS}/d/scale", "d", {"spec": {"replicas": -1}}, uid="5")
    expected = storage_error("/registry/deployments/default/d", "5", uid)
    assert (status, text) == (409, f'deployments.apps "d": {expected}')
    reply = await harness.patch(f"{APPS}/d/scale", {"metadata": {"uid": "5"}}, "application/merge-patch+json")
    assert reply.json["details"]["kind"] == "deployments/scale"
