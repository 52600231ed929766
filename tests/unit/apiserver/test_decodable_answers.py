"""Every response can be decoded by a generic client: kind and apiVersion where upstream writes them, no duplicate keys.

Items of a list of a built-in kind have neither kind nor apiVersion; clients take them from the list. Custom objects
have both everywhere."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from minimal_objects import STORED, collection, minimal
from server_harness import ServerHarness, settle

from setpoint.apiserver.encoding import stamp_offset
from setpoint.kinds.catalog import Resource
from setpoint.store.interface import Put

NAMES = [f"{resource.plural}.{resource.group}/{resource.version}" for resource in STORED]
every_kind = pytest.mark.parametrize("resource", STORED, ids=NAMES)
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIALS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA = ("PartialObjectMetadata", "meta.k8s.io/v1")
EVENTS = ("/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), names
    return dict(pairs)


def read(body: bytes) -> Any:
    """Decoded; a key that an object has twice is a failure."""
    return json.loads(body, object_pairs_hook=_once)


def type_of(obj: dict[str, Any]) -> tuple[Any, Any]:
    return obj.get("kind"), obj.get("apiVersion")


async def check_every_form(harness: ServerHarness, resource: Resource, path: str) -> None:
    """`path`: of an object that is there."""
    own = (resource.kind, resource.api_version)
    where, name = path.rsplit("/", 1)

    async def get(url: str, accept: str = "application/json") -> Any:
        reply = await harness.get(url, headers={"accept": accept})
        assert reply.status == 200, reply.body
        return read(reply.body)

    def mine(items: list[Any]) -> Any:
        return next(item for item in items if item["metadata"]["name"] == name)

    assert type_of(await get(path)) == own
    listed = await get(where)
    assert type_of(listed) == (resource.list_kind, resource.api_version)
    item = mine(listed["items"])
    assert type_of(item) == (own if resource.is_custom else (None, None))
    assert not {"kind", "apiVersion"} & item.keys() or resource.is_custom
    assert type_of(await get(path, PARTIAL)) == METADATA
    assert type_of(mine((await get(where, PARTIALS))["items"])) == METADATA
    for url in (where, path):
        for include, wanted in (("Object", own), ("Metadata", METADATA)):
            rows = (await get(f"{url}?includeObject={include}", TABLE))["rows"]
            assert type_of(mine([row["object"] for row in rows])) == wanted
    for accept, wanted in (("application/json", own), (PARTIAL, METADATA)):
        watcher = await harness.watch(f"{where}?resourceVersion=0", headers={"accept": accept})
        await settle()
        objects = [read(line)["object"] for line in bytes(watcher.raw).splitlines()]
        assert type_of(mine(objects)) == wanted
        await watcher.close()


@every_kind
async def test_every_representation_has_its_type_where_upstream_writes_it(
    harness: ServerHarness, resource: Resource
) -> None:
    body = minimal(resource)
    made = await harness.post(collection(resource), body)
    assert type_of(read(made.body)) == (resource.kind, resource.api_version)
    path = f"{collection(resource)}/{body['metadata']['name']}"
    changed = await harness.put(path, read((await harness.get(path)).body))
    assert type_of(read(changed.body)) == (resource.kind, resource.api_version)
    await check_every_form(harness, resource, path)
    # The same objects in the other versions of the kind.
    for other in STORED:
        if other is not resource and other.storage_prefix == resource.storage_prefix:
            await check_every_form(harness, other, f"{collection(other)}/{body['metadata']['name']}")


async def test_events_that_were_stored_with_their_version(harness: ServerHarness) -> None:
    event = next(one for one in STORED if (one.group, one.plural) == ("", "events"))
    made = await harness.make(EVENTS[0], minimal(event))
    name = made["metadata"]["name"]
    key = f"core/events/default/{name}"
    stored = await harness.store.get(key)
    assert stored is not None
    value = orjson.loads(stored.value)
    meta = value.pop("metadata")
    del meta["resourceVersion"]
    former, stamp = stamp_offset(orjson.dumps({"metadata": meta, "apiVersion": "v1", **value}))
    await harness.store.txn([Put(key, former, stored.mod_revision, stamp)])
    for resource in STORED:
        if resource.storage_prefix == event.storage_prefix:
            await check_every_form(harness, resource, f"{collection(resource)}/{name}")
    # Whoever writes it next does not bring it back.
    assert (await harness.patch(f"{EVENTS[0]}/{name}", {"metadata": {"labels": {"a": "b"}}})).status == 200
    again = await harness.store.get(key)
    assert again is not None and "apiVersion" not in orjson.loads(again.value)


async def test_custom_objects_have_their_type_everywhere() -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")]
    names = {"plural": "foos", "kind": "Foo"}
    definition = {
        "metadata": {"name": "foos.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions},
    }
    async with ServerHarness.running() as harness:
        await harness.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        await settle(60)
        where = "/apis/example.com/{}/namespaces/default/foos"
        obj = {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": {"a": 1}}
        await harness.make(where.format("v1"), obj)
        for name in ("v1", "v2"):
            resource = harness.api.resources.served[("example.com", name, "foos")]
            await check_every_form(harness, resource, f"{where.format(name)}/f")
