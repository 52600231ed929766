"""The life cycle of every kind in the catalog, from a minimal object."""

from __future__ import annotations

from typing import Any

import pytest
from minimal_objects import STORED, collection, minimal
from server_harness import APPLY, ServerHarness

from setpoint.kinds.catalog import Resource

NAMES = [f"{resource.plural}.{resource.group}/{resource.version}" for resource in STORED]
every_kind = pytest.mark.parametrize("resource", STORED, ids=NAMES)
with_status = pytest.mark.parametrize(
    "resource",
    [each for each in STORED if each.subresource("status")],
    ids=[name for each, name in zip(STORED, NAMES, strict=True) if each.subresource("status")],
)
_LABEL = {"metadata": {"labels": {"patched": "yes"}}}


async def made(harness: ServerHarness, resource: Resource) -> tuple[str, dict[str, Any]]:
    body = minimal(resource)
    obj = await harness.make(collection(resource), body)
    return f"{collection(resource)}/{body['metadata']['name']}", obj


@every_kind
async def test_from_creation_to_deletion(harness: ServerHarness, resource: Resource) -> None:
    watcher = await harness.watch(f"{collection(resource)}?resourceVersion={harness.store.revision}")
    path, obj = await made(harness, resource)
    assert (obj["kind"], obj["apiVersion"]) == (resource.kind, resource.api_version)
    assert obj["metadata"]["uid"] and obj["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert (await harness.get(path)).json == obj
    name = obj["metadata"]["name"]
    items = [
        item for item in (await harness.get(collection(resource))).json["items"] if item["metadata"]["name"] == name
    ]
    assert [{"kind": obj["kind"], "apiVersion": obj["apiVersion"], **item} for item in items] == [obj]
    patched = await harness.patch(path, _LABEL)
    assert patched.status == 200, patched.body
    assert patched.json["metadata"]["labels"]["patched"] == "yes"
    put = await harness.put(path, patched.json)
    assert (put.status, put.json) == (200, patched.json), put.body
    for accept in ("application/json;as=Table;g=meta.k8s.io;v=v1", "application/yaml"):
        assert (await harness.get(path, headers={"accept": accept})).status == 200
        assert (await harness.get(collection(resource), headers={"accept": accept})).status == 200
    deleted = await harness.delete(f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")
    assert deleted.status == 200, deleted.body
    left = await harness.get(path)
    if left.status == 200:
        assert left.json["metadata"]["deletionTimestamp"]
    kinds = [event["type"] for event in watcher.events if event["object"]["metadata"]["name"] == name]
    assert kinds[:2] == ["ADDED", "MODIFIED"]
    assert kinds[-1] == ("DELETED" if left.status == 404 else "MODIFIED")


@every_kind
async def test_dry_runs_store_nothing(harness: ServerHarness, resource: Resource) -> None:
    revision = harness.store.revision
    body = minimal(resource)
    reply = await harness.post(f"{collection(resource)}?dryRun=All", body)
    assert (reply.status, harness.store.revision) == (201, revision), reply.body
    path, obj = await made(harness, resource)
    revision, before = harness.store.revision, (await harness.get(path)).json
    assert (await harness.patch(f"{path}?dryRun=All", _LABEL)).json["metadata"]["labels"]["patched"] == "yes"
    changed = {**obj, "metadata": {**obj["metadata"], "labels": {"put": "yes"}}}
    assert (await harness.put(f"{path}?dryRun=All", changed)).status == 200
    config = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": obj["metadata"]["name"], "labels": {"applied": "yes"}},
    }
    applied = await harness.patch(f"{path}?dryRun=All&fieldManager=m", config, APPLY)
    assert applied.status == 200, applied.body
    if resource.subresource("status"):
        assert (await harness.put(f"{path}/status?dryRun=All", changed)).status == 200
    if "deletecollection" in resource.verbs:
        assert (await harness.delete(f"{collection(resource)}?dryRun=All")).status == 200
    assert (await harness.delete(f"{path}?dryRun=All")).status == 200
    assert (harness.store.revision, (await harness.get(path)).json) == (revision, before)


@every_kind
async def test_writing_the_same_again_changes_nothing(harness: ServerHarness, resource: Resource) -> None:
    path, obj = await made(harness, resource)
    if resource.strategy.writes_after_create(obj):
        assert (await harness.patch(path, {})).json["metadata"]["resourceVersion"] > obj["metadata"]["resourceVersion"]
    current = (await harness.get(path)).json
    revision = harness.store.revision
    assert (await harness.patch(path, {})).json == current
    assert (await harness.put(path, current)).json == current
    bare = {**current, "metadata": {key: value for key, value in current["metadata"].items() if key != "managedFields"}}
    assert (await harness.put(path, bare)).json == current
    assert harness.store.revision == revision
    assert obj["metadata"]["uid"] == current["metadata"]["uid"]


@with_status
async def test_status_and_spec_are_written_separately(harness: ServerHarness, resource: Resource) -> None:
    path, _ = await made(harness, resource)
    before = (await harness.get(path)).json
    spec = {key: value for key, value in before.items() if key not in ("metadata", "status")}
    through_status = await harness.put(f"{path}/status", {**before, "spec": _twisted(before.get("spec"))})
    if through_status.status == 200:
        after = through_status.json
        assert {key: value for key, value in after.items() if key not in ("metadata", "status")} == spec
    else:
        assert through_status.status in (400, 422), through_status.body
    now = (await harness.get(path)).json
    status = now.get("status")
    through_main = await harness.patch(path, {"status": {"conditions": None, "observedGeneration": None}})
    assert through_main.status == 200, through_main.body
    assert (await harness.get(path)).json.get("status") == status


def _twisted(spec: Any) -> Any:
    """The same with every number one higher: a change that a status write must not make."""
    if isinstance(spec, dict):
        return {key: _twisted(value) for key, value in spec.items()}
    if isinstance(spec, list):
        return [_twisted(value) for value in spec]
    return spec + 1 if isinstance(spec, int) and not isinstance(spec, bool) else spec


@every_kind
async def test_wrong_uids_and_revisions_are_conflicts(harness: ServerHarness, resource: Resource) -> None:
    path, obj = await made(harness, resource)
    before = (await harness.get(path)).json
    for meta in ({"uid": "other"}, {"resourceVersion": "1"}):
        changed = {**before, "metadata": {**before["metadata"], **meta}}
        assert (await harness.put(path, changed)).status == 409
    for body in ({"preconditions": {"uid": "other"}}, {"preconditions": {"resourceVersion": "1"}}):
        assert (await harness.delete(path, body)).status == 409
    assert (await harness.get(path)).json == before
    assert (await harness.post(collection(resource), minimal(resource))).status == 409
    assert obj["metadata"]["uid"] == before["metadata"]["uid"]
