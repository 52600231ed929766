"""Responses in protobuf equal those in JSON: objects, lists, watches, partial objects, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from minimal_objects import STORED, collection, minimal
from server_harness import ServerHarness, settle

from setpoint.apiserver.rendering import decode_value
from setpoint.kinds.catalog import Resource
from setpoint.kinds.protobuf_numbers import protobuf_fields
from setpoint.kinds.tables import type_of
from setpoint.meta.decode import decode
from setpoint.meta.protobuf import open_envelope, read_message
from setpoint.meta.protobuf.wire import LENGTH, fields

PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPTED = {"accept": f"{PROTOBUF},application/json"}
PARTIAL = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIALS = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
NAMES = [f"{resource.plural}.{resource.group}/{resource.version}" for resource in STORED]
PODS = "/api/v1/namespaces/default/pods"
POD = {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def metadata(data: bytes, start: int, end: int) -> Any:
    type_ = type_of("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    [(_, first, last)] = fields(data, start, end, "PartialObjectMetadata", {1: (LENGTH, "metadata")})
    return decode(type_, read_message(type_, data, first, last, protobuf_fields))


def events(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """The type and the whole body of each event in the frames of a watch."""
    at = 0
    while at < len(raw):
        end = at + 4 + int.from_bytes(raw[at : at + 4])
        found = {number: raw[first:last] for number, first, last in fields(raw, at + 4, end, "WatchEvent", _EVENT)}
        [(_, first, last)] = fields(found[2], 0, len(found[2]), "RawExtension", {1: (LENGTH, "raw")})
        yield found[1].decode(), found[2][first:last]
        at = end


_EVENT = {1: (LENGTH, "type"), 2: (LENGTH, "object")}


def plain(value: Any) -> Any:
    """Without empty lists and maps: protobuf cannot tell them from absent ones."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if each not in (None, [], {})}
    return [plain(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("resource", STORED, ids=NAMES)
async def test_every_kind_in_every_form(harness: ServerHarness, resource: Resource) -> None:
    made = await harness.post(collection(resource), minimal(resource), headers=ACCEPTED)
    assert (made.status, made.header("content-type")) == (201, PROTOBUF)
    obj = decode_value(made.body)
    path = f"{collection(resource)}/{obj['metadata']['name']}"
    assert plain(obj) == plain((await harness.get(path)).json)
    assert decode_value((await harness.get(path, headers=ACCEPTED)).body) == obj
    listed = await harness.get(collection(resource), headers=ACCEPTED)
    assert listed.header("content-type") == PROTOBUF
    assert plain(decode_value(listed.body)) == plain((await harness.get(collection(resource))).json)
    watcher = await harness.watch(f"{collection(resource)}?resourceVersion=0", headers=ACCEPTED)
    found = [decode_value(body) for kind, body in events(bytes(watcher.raw)) if kind == "ADDED"]
    assert plain(obj) in plain(found)
    await watcher.close()


async def test_a_watch_sends_changes_bookmarks_and_errors(harness: ServerHarness) -> None:
    await harness.make(PODS, POD)
    both = [
        await harness.watch(
            f"{PODS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            headers=ACCEPTED,
        )
        for _ in range(2)
    ]
    await harness.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "c"}}})
    await harness.delete(f"{PODS}/p?gracePeriodSeconds=0")
    await settle()
    told = [(kind, decode_value(body)) for kind, body in events(bytes(both[0].raw))]
    assert [kind for kind, _ in told] == ["ADDED", "BOOKMARK", "MODIFIED", "MODIFIED", "DELETED"]
    assert told[1][1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert told[2][1]["metadata"]["labels"] == {"a": "c"}
    # The same bytes serve every watch of this form.
    assert both[0].pieces[2] is both[1].pieces[2]
    await harness.store.compact(harness.store.revision)
    late = await harness.watch(f"{PODS}?resourceVersion=1", headers=ACCEPTED)
    [(kind, body)] = events(bytes(late.raw))
    assert (kind, decode_value(body)["code"]) == ("ERROR", 410)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_partial_objects(harness: ServerHarness, version: str) -> None:
    await harness.make(PODS, POD)
    wanted = (await harness.get(f"{PODS}/p")).json["metadata"]
    form = f"{PROTOBUF};{PARTIAL[:-2]}{version}"
    body = (await harness.get(f"{PODS}/p", headers={"accept": form})).body
    opened = open_envelope(body)
    assert (opened.api_version, opened.kind) == (f"meta.k8s.io/{version}", "PartialObjectMetadata")
    assert plain(metadata(body, opened.start, opened.end)) == plain(wanted)
    body = (await harness.get(PODS, headers={"accept": f"{PROTOBUF};{PARTIALS[:-2]}{version}"})).body
    opened = open_envelope(body)
    parts = {number: (start, end) for number, start, end in fields(body, opened.start, opened.end, "", _LIST)}
    assert plain(metadata(body, *parts[2 if version == "v1" else 1])) == plain(wanted)
    watcher = await harness.watch(PODS, headers={"accept": form})
    [(kind, body)] = events(bytes(watcher.raw))
    opened = open_envelope(body)
    assert (kind, plain(metadata(body, opened.start, opened.end))) == ("ADDED", plain(wanted))
    await watcher.close()


_LIST = {1: (LENGTH, "metadata"), 2: (LENGTH, "items")}


async def test_errors_are_statuses(harness: ServerHarness) -> None:
    reply = await harness.get(f"{PODS}/none", headers=ACCEPTED)
    assert (reply.status, reply.header("content-type")) == (404, PROTOBUF)
    assert plain(decode_value(reply.body)) == plain((await harness.get(f"{PODS}/none")).json)


@pytest.mark.parametrize(
    ("path", "accept", "status", "content_type"),
    [
        (PODS, PROTOBUF, 200, PROTOBUF),
        (PODS, f"application/json;q=0.5,{PROTOBUF}", 200, PROTOBUF),
        (PODS, f"application/json,{PROTOBUF}", 200, "application/json"),
        (PODS, f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1", 406, "application/json"),
        (PODS, f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,application/json", 200, "application/json"),
        ("/apis/example.com/v1/namespaces/default/foos", f"{PROTOBUF},application/json", 200, "application/json"),
        ("/apis/example.com/v1/namespaces/default/foos", f"{PROTOBUF};{PARTIALS}", 200, PROTOBUF),
    ],
)
async def test_negotiation_of_protobuf(path: str, accept: str, status: int, content_type: str) -> None:
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = {"plural": "foos", "kind": "Foo"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    definition = {
        "metadata": {"name": "foos.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions},
    }
    async with ServerHarness.running() as harness:
        await harness.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        await settle(60)
        reply = await harness.get(path, headers={"accept": accept})
    assert (reply.status, reply.header("content-type")) == (status, content_type)


async def test_a_long_list_is_encoded_in_slices(harness: ServerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        await harness.make(PODS, POD | {"metadata": {"name": f"p-{number}", "annotations": {"text": "x" * 2000}}})
    slicer, waits = harness.api.resources.registries[("", "v1", "pods")].env.slicer, 0

    async def wait(cost: float) -> None:
        nonlocal waits
        waits += 1

    monkeypatch.setattr(slicer, "wait", wait)
    listed = await harness.get(PODS, headers=ACCEPTED)
    assert len(decode_value(listed.body)["items"]) == 40
    assert waits >= 5
    waits = 0
    assert (await harness.get(PODS, headers=ACCEPTED)).body == listed.body
    assert waits == 0, "what was encoded once is kept"
