"""What of several reasons to refuse a write is told, and in which words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from front_door import FrontDoor

from setpoint.apiserver.storage_paths import storage_path
from setpoint.kinds.catalog import Resource

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
HERE = "/api/v1/namespaces/default"
APPS = "/apis/apps/v1/namespaces/default/deployments"
APPLY = "application/apply-patch+yaml"
BAD = {"spec": {"leaseDurationSeconds": -1}}


@pytest.fixture
async def door() -> AsyncIterator[FrontDoor]:
    door = await FrontDoor.open()
    yield door
    await door.close()


def storage_error(key: str, given: str, found: str) -> str:
    return (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {given}, UID in object meta: {found}"
    )


async def put(
    door: FrontDoor, path: str, name: str, more: dict[str, Any] | None = None, **meta: str
) -> tuple[int, str]:
    reply = await door.request("PUT", path, {"metadata": {"name": name, **meta}, **(more or {})})
    return reply.status, reply.json.get("message", "").removeprefix("Operation cannot be fulfilled on ")


@pytest.mark.parametrize("more", [None, BAD])
async def test_a_uid_is_of_an_object_that_is_there(door: FrontDoor, more: dict[str, Any] | None) -> None:
    told = 'leases.coordination.k8s.io "x": '
    for revision in ({}, {"resourceVersion": "5"}):
        expected = told + storage_error("/registry/leases/default/x", "abc", "")
        assert await put(door, f"{LEASES}/x", "x", more, uid="abc", **revision) == (409, expected)
        expected = told + storage_error("/leases/default/x", "abc", "")
        assert await put(door, f"{LEASES}/x?dryRun=All", "x", more, uid="abc", **revision) == (409, expected)
    config = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: x, uid: abc, resourceVersion: '5'}"
    reply = await door.patch(f"{LEASES}/x?fieldManager=m", config.encode(), APPLY)
    assert reply.json["message"].endswith(
        "uid mismatch: the provided object specified uid abc, and no existing object was found"
    )


async def test_a_uid_of_another_object(door: FrontDoor) -> None:
    found = (await door.get(HERE)).json["metadata"]["uid"]
    expected = storage_error("/registry/namespaces/default", "5", found)
    assert await put(door, HERE, "default", uid="5") == (409, f'namespaces "default": {expected}')


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
def test_where_upstream_keeps_objects(group: str, plural: str, namespaced: bool, path: str) -> None:
    assert storage_path(Resource(group, "v1", "Kind", plural, namespaced=namespaced), "n", "o") == path


@pytest.mark.parametrize("dry", ["", "?dryRun=All"])
async def test_a_version_of_what_is_not_there_only_has_to_be_one(door: FrontDoor, dry: str) -> None:
    assert await put(door, f"{LEASES}/x{dry}", "x", resourceVersion="abc") == (
        500,
        'strconv.ParseUint: parsing "abc": invalid syntax',
    )
    assert (await put(door, f"{LEASES}/x{dry}", "x", BAD, resourceVersion="5"))[0] == 422
    assert await put(door, f"{LEASES}/x{dry}", "x", resourceVersion="5") == (201, "")


@pytest.mark.parametrize("meta", [{}, {"resourceVersion": "5"}])
async def test_an_empty_list_is_owned_by_whoever_creates_with_put(door: FrontDoor, meta: dict[str, str]) -> None:
    reply = await door.request("PUT", f"{ROLES}/r", {"metadata": {"name": "r", **meta}, "rules": []})
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
async def test_evictions_of_what_is_not_there(door: FrontDoor, eviction: dict[str, Any], told: tuple[int, str]) -> None:
    reply = await door.post(f"{HERE}/pods/p/eviction", eviction)
    assert (reply.status, reply.json["message"][: len(told[1])]) == told


@pytest.mark.parametrize(
    "config",
    ["{", "{}", "apiVersion: v1\nkind: Pod", "metadata: {name: other}", "spec: {replicas: x}", "spec: {no: 1}"],
)
async def test_what_is_applied_to_the_scale_of_nothing_is_not_looked_at(door: FrontDoor, config: str) -> None:
    head = "apiVersion: autoscaling/v1\nkind: Scale\n" if config[0] in "ms" else ""
    reply = await door.patch(f"{APPS}/absent/scale?fieldManager=m", f"{head}{config}".encode(), APPLY)
    assert (reply.status, reply.json["message"]) == (404, 'deployments.apps "absent" not found')


async def test_a_scale_of_another_object(door: FrontDoor) -> None:
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = await door.make(
        APPS, {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    )
    uid = made["metadata"]["uid"]
    status, text = await put(door, f"{APPS}/d/scale", "d", {"spec": {"replicas": -1}}, uid="5")
    expected = storage_error("/registry/deployments/default/d", "5", uid)
    assert (status, text) == (409, f'deployments.apps "d": {expected}')
    reply = await door.patch(f"{APPS}/d/scale", {"metadata": {"uid": "5"}}, "application/merge-patch+json")
    assert reply.json["details"]["kind"] == "deployments/scale"
