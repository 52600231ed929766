"""The whole life of every kind in the catalog, from a minimal object."""

from __future__ import annotations

from typing import Any

import pytest
from front_door import APPLY, FrontDoor
from minimal_objects import STORED, collection, minimal

from setpoint.kinds.catalog import Resource

NAMES = [f"{resource.plural}.{resource.group}/{resource.version}" for resource in STORED]
every_kind = pytest.mark.parametrize("resource", STORED, ids=NAMES)
with_status = pytest.mark.parametrize(
    "resource", [each for each in STORED if each.subresource("status")],
    ids=[name for each, name in zip(STORED, NAMES, strict=True) if each.subresource("status")],
)  # fmt: skip
_LABEL = {"metadata": {"labels": {"patched": "yes"}}}


async def made(door: FrontDoor, resource: Resource) -> tuple[str, dict[str, Any]]:
    body = minimal(resource)
    obj = await door.make(collection(resource), body)
    return f"{collection(resource)}/{body['metadata']['name']}", obj


@every_kind
async def test_from_creation_to_deletion(door: FrontDoor, resource: Resource) -> None:
    watcher = await door.watch(f"{collection(resource)}?resourceVersion={door.store.revision}")
    path, obj = await made(door, resource)
    assert (obj["kind"], obj["apiVersion"]) == (resource.kind, resource.api_version)
    assert obj["metadata"]["uid"] and obj["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert (await door.get(path)).json == obj
    name = obj["metadata"]["name"]
    items = [item for item in (await door.get(collection(resource))).json["items"] if item["metadata"]["name"] == name]
    assert [{"kind": obj["kind"], "apiVersion": obj["apiVersion"], **item} for item in items] == [obj]
    patched = await door.patch(path, _LABEL)
    assert patched.status == 200, patched.body
    assert patched.json["metadata"]["labels"]["patched"] == "yes"
    put = await door.put(path, patched.json)
    assert (put.status, put.json) == (200, patched.json), put.body
    for accept in ("application/json;as=Table;g=meta.k8s.io;v=v1", "application/yaml"):
        assert (await door.get(path, headers={"accept": accept})).status == 200
        assert (await door.get(collection(resource), headers={"accept": accept})).status == 200
    deleted = await door.delete(f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")
    assert deleted.status == 200, deleted.body
    left = await door.get(path)
    if left.status == 200:
        assert left.json["metadata"]["deletionTimestamp"]
    kinds = [event["type"] for event in watcher.events if event["object"]["metadata"]["name"] == name]
    assert kinds[:2] == ["ADDED", "MODIFIED"]
    assert kinds[-1] == ("DELETED" if left.status == 404 else "MODIFIED")


@every_kind
async def test_dry_runs_store_nothing(door: FrontDoor, resource: Resource) -> None:
    revision = door.store.revision
    body = minimal(resource)
    reply = await door.post(f"{collection(resource)}?dryRun=All", body)
    assert (reply.status, door.store.revision) == (201, revision), reply.body
    path, obj = await made(door, resource)
    revision, before = door.store.revision, (await door.get(path)).json
    assert (await door.patch(f"{path}?dryRun=All", _LABEL)).json["metadata"]["labels"]["patched"] == "yes"
    changed = {**obj, "metadata": {**obj["metadata"], "labels": {"put": "yes"}}}
    assert (await door.put(f"{path}?dryRun=All", changed)).status == 200
    config = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": obj["metadata"]["name"],
              "labels": {"applied": "yes"}}}  # fmt: skip
    applied = await door.patch(f"{path}?dryRun=All&fieldManager=m", config, APPLY)
    assert applied.status == 200, applied.body
    if resource.subresource("status"):
        assert (await door.put(f"{path}/status?dryRun=All", changed)).status == 200
    if "deletecollection" in resource.verbs:
        assert (await door.delete(f"{collection(resource)}?dryRun=All")).status == 200
    assert (await door.delete(f"{path}?dryRun=All")).status == 200
    assert (door.store.revision, (await door.get(path)).json) == (revision, before)


@every_kind
async def test_writing_the_same_again_changes_nothing(door: FrontDoor, resource: Resource) -> None:
    path, obj = await made(door, resource)
    if resource.strategy.writes_after_create(obj):
        assert (await door.patch(path, {})).json["metadata"]["resourceVersion"] > obj["metadata"]["resourceVersion"]
    current = (await door.get(path)).json
    revision = door.store.revision
    assert (await door.patch(path, {})).json == current
    assert (await door.put(path, current)).json == current
    bare = {**current, "metadata": {key: value for key, value in current["metadata"].items() if key != "managedFields"}}
    assert (await door.put(path, bare)).json == current
    assert door.store.revision == revision
    assert obj["metadata"]["uid"] == current["metadata"]["uid"]


@with_status
async def test_status_and_the_rest_stay_apart(door: FrontDoor, resource: Resource) -> None:
    path, _ = await made(door, resource)
    before = (await door.get(path)).json
    spec = {key: value for key, value in before.items() if key not in ("metadata", "status")}
    through_status = await door.put(f"{path}/status", {**before, "spec": _twisted(before.get("spec"))})
    if through_status.status == 200:
        after = through_status.json
        assert {key: value for key, value in after.items() if key not in ("metadata", "status")} == spec
    else:
        assert through_status.status in (400, 422), through_status.body
    now = (await door.get(path)).json
    status = now.get("status")
    through_main = await door.patch(path, {"status": {"conditions": None, "observedGeneration": None}})
    assert through_main.status == 200, through_main.body
    assert (await door.get(path)).json.get("status") == status


def _twisted(spec: Any) -> Any:
    """The same with every number one higher: a change that a status write must not make."""
    if isinstance(spec, dict):
        return {key: _twisted(value) for key, value in spec.items()}
    if isinstance(spec, list):
        return [_twisted(value) for value in spec]
    return spec + 1 if isinstance(spec, int) and not isinstance(spec, bool) else spec


@every_kind
async def test_wrong_uids_and_revisions_are_conflicts(door: FrontDoor, resource: Resource) -> None:
    path, obj = await made(door, resource)
    before = (await door.get(path)).json
    for meta in ({"uid": "other"}, {"resourceVersion": "1"}):
        changed = {**before, "metadata": {**before["metadata"], **meta}}
        assert (await door.put(path, changed)).status == 409
    for body in ({"preconditions": {"uid": "other"}}, {"preconditions": {"resourceVersion": "1"}}):
        assert (await door.delete(path, body)).status == 409
    assert (await door.get(path)).json == before
    assert (await door.post(collection(resource), minimal(resource))).status == 409
    assert obj["metadata"]["uid"] == before["metadata"]["uid"]
