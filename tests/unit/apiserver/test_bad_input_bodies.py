"""Invalid bodies: a clear Status, nothing stored, no traceback, bounded memory and time."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import orjson
import pytest
from server_harness import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC, YAML, Reply, ServerHarness

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def status_of(reply: Reply, *codes: int) -> str:
    """The message of a refusal."""
    status = reply.json
    assert reply.status in codes, (reply.status, reply.body[:500])
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", reply.status)
    assert isinstance(status["message"], str) and status["message"]
    return str(status["message"])


async def refused(
    harness: ServerHarness, body: Any, *codes: int, path: str = CONFIGMAPS, content_type: str = ""
) -> str:
    before = harness.store.revision
    reply = await harness.post(path, body, content_type or "application/json")
    assert harness.store.revision == before
    return status_of(reply, *codes)


def bomb(depth: int, width: int = 9) -> bytes:
    lines = [b"a0: &a0 [" + b",".join([b"x"] * width) + b"]"]
    for level in range(1, depth):
        lines.append(b"a%d: &a%d [" % (level, level) + b",".join([b"*a%d" % (level - 1)] * width) + b"]")
    return b"\n".join(lines)


MALFORMED = [
    b"",
    b" ",
    b"{",
    b"}",
    b"[",
    b"{]",
    b'{"a":}',
    b'{"metadata":{"name":"x"}',
    b'{"metadata":{"name":"x"}} x',
    b'{"metadata":{"name":"x"}}{}',
    b"{'a':1}",
    b"[]",
    b"1",
    b'"x"',
    b"true",
    b'{"metadata":{"name":"x"},}',
    b'{"a":01}',
    b'{"a":"\\x"}',
    b'{"a":"\t"}',
    b'{"a":NaN}',
    b'{"a":Infinity}',
    b'{"a":-Infinity}',
    b'{"a":1e400}',
    b'\xef\xbb\xbf{"metadata":{"name":"x"}}',
    b"k8s\x00\n\x0c",
    b"apiVersion: v1",
    b"\x00",
    b"\xff\xfe",
]


@pytest.mark.parametrize("body", MALFORMED, ids=repr)
async def test_malformed_json(harness: ServerHarness, body: bytes) -> None:
    message = await refused(harness, body, 400)
    assert message.startswith("the object provided is unrecognized (must be of type ConfigMap): ")


WRONG_TYPES: list[tuple[str, str]] = [
    ('{"metadata":[]}', "array into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
    ('{"metadata":"x"}', "string into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
    ('{"metadata":{"name":1}}', "number into Go struct field ObjectMeta.metadata.name of type string"),
    ('{"metadata":{"labels":[]}}', "array into Go struct field ObjectMeta.metadata.labels of type map[string]string"),
    ('{"metadata":{"labels":{"a":1}}}', "number into Go struct field ObjectMeta.metadata.labels of type string"),
    ('{"metadata":{"finalizers":[{}]}}', "object into Go struct field ObjectMeta.metadata.finalizers of type string"),
    ('{"metadata":{"generation":"1"}}', "string into Go struct field ObjectMeta.metadata.generation of type int64"),
    ('{"metadata":{"generation":1.5}}', "number 1.5 into Go struct field ObjectMeta.metadata.generation of type int64"),
    (f'{{"metadata":{{"generation":{2**70}}}}}', f"number {2**70} into Go struct field ObjectMeta.metadata.generation"),
    ('{"data":[]}', "array into Go struct field ConfigMap.data of type map[string]string"),
    ('{"data":{"a":1}}', "number into Go struct field ConfigMap.data of type string"),
    ('{"immutable":"true"}', "string into Go struct field ConfigMap.immutable of type bool"),
    ('{"kind":1}', "number into Go struct field .kind of type string"),
    ('{"apiVersion":[]}', "array into Go struct field .apiVersion of type string"),
]


@pytest.mark.parametrize(("body", "said"), WRONG_TYPES, ids=[body for body, _ in WRONG_TYPES])
async def test_wrong_types_name_the_field(harness: ServerHarness, body: str, said: str) -> None:
    assert f"json: cannot unmarshal {said}" in await refused(harness, body.encode(), 400)


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a%2fb", "A", "a\x00", "a\n", "a" * 254, "é", "\ufffd", " "])
async def test_invalid_names(harness: ServerHarness, name: str) -> None:
    assert "metadata.name: Invalid value" in await refused(harness, {"metadata": {"name": name}}, 422)


async def test_invalid_utf8_becomes_replacement_characters(harness: ServerHarness) -> None:
    for number, value in enumerate((b'"\\ud800"', b'"\xff"', b'"a\\udc00b"')):
        reply = await harness.post(CONFIGMAPS, b'{"metadata":{"name":"c%d"},"data":{"k":%b}}' % (number, value))
        assert reply.status == 201
        assert "\ufffd" in reply.json["data"]["k"]
    await refused(harness, b'{"metadata":{"name":"c-\xff"}}', 422)
    await refused(harness, b'{"metadata":{"name":"c"},"data":{"\\ud800":"x"}}', 422)


async def test_duplicate_keys_are_warned_of_or_rejected(harness: ServerHarness) -> None:
    body = b'{"metadata":{"name":"c"},"data":{"a":"1","a":"2"}}'
    await refused(harness, body, 400, path=f"{CONFIGMAPS}?fieldValidation=Strict")
    reply = await harness.post(CONFIGMAPS, body)
    assert reply.status == 201 and reply.json["data"] == {"a": "2"}
    assert 'duplicate field \\"data.a\\"' in reply.warnings[0]


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"a":' * 100_000, b'{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b"[[],"[:2] * 100_000],
)
async def test_deeply_nested_json(harness: ServerHarness, body: bytes) -> None:
    started = time.process_time()
    await refused(harness, body, 400)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "body",
    [
        b"a: [",
        b"\t",
        b"\x00",
        b"\xff",
        b"*a",
        b"a: *b",
        b"&a [*a]",
        b"a: &a {b: *a}",
        b"- a",
        b"x",
        b"1: 2\n- 3",
        b"[" * 100_000,
        b"{" * 100_000,
        b"- " * 20_000,
        b"!!python/object/apply:os.system ['true']",
        b"metadata: {name: c}\n\tdata: x",
        b"a: .nan\nmetadata: {name: c}",
        b"metadata: {name: 1}",
        bomb(10),
        bomb(200, 3),
    ],
    ids=lambda body: repr(body[:40]),
)
async def test_malformed_yaml(harness: ServerHarness, body: bytes) -> None:
    started = time.process_time()
    await refused(harness, body, 400, content_type=YAML)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "body", [bomb(10), bomb(40, 5), b"a: &a " + b"x" * 100_000 + b"\nb: [" + b"*a, " * 90_000 + b"]"]
)
async def test_yaml_alias_bombs_are_rejected_early(harness: ServerHarness, body: bytes) -> None:
    """CVE-2019-11253, CVE-2019-11254."""
    apply_to = f"{CONFIGMAPS}/c?fieldManager=m"
    await refused(harness, b"[", 400, content_type=YAML)  # what is loaded on first use does not count
    tracemalloc.start()
    started = time.process_time()
    try:
        await refused(harness, body, 400, content_type=YAML)
        head = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"
        reply = await harness.patch(apply_to, head + body, APPLY)
        assert 400 <= reply.status <= 500 and reply.json["kind"] == "Status"
        assert tracemalloc.get_traced_memory()[1] < 50 * 2**20
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < 4


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/xml",
        "x",
        "application/json;;;",
        "text/yaml",
        "application/cbor",
        "*/*",
        "multipart/form-data",
        "application/protobuf",
        "application/json-patch+json",
        ";" * 100_000,
    ],
    ids=lambda value: value[:40],
)
async def test_content_types(harness: ServerHarness, content_type: str) -> None:
    await refused(harness, {"metadata": {"name": "c"}}, 415, content_type=content_type)
    if content_type != JSON_PATCH:
        status_of(await harness.patch(f"{CONFIGMAPS}/c", b"{}", content_type), 415)


async def test_an_unexpected_body_is_ignored(harness: ServerHarness) -> None:
    await harness.make(CONFIGMAPS, {"metadata": {"name": "c"}})
    assert (await harness.request("GET", f"{CONFIGMAPS}/c", b"\x00garbage")).status == 200
    assert (await harness.request("GET", CONFIGMAPS, b"{")).status == 200


async def test_a_kind_name_or_namespace_that_differs_from_the_url(harness: ServerHarness) -> None:
    for body in (
        {"kind": "Pod", "apiVersion": "v1"},
        {"kind": "ConfigMap", "apiVersion": "a/b/c"},
        {"kind": "ConfigMap", "apiVersion": "nope/v1"},
        {"kind": "ConfigMapList", "apiVersion": "v1", "items": []},
        {"metadata": {"name": "c", "namespace": "other"}},
        {"metadata": {"name": "c", "namespace": ".."}},
    ):
        await refused(harness, body, 400)
    await refused(harness, {"metadata": {"name": "c", "resourceVersion": "1"}}, 500)
    await refused(harness, {"metadata": {"name": "c"}}, 404, path="/api/v1/namespaces/absent/configmaps")


# -- patches ----------------------------------------------------------------------------------------------------------

_ADD = {"op": "add", "path": "/data/x", "value": "1"}
JSON_PATCHES: list[tuple[Any, tuple[int, ...]]] = [
    (b"", (400,)),
    (b"{}", (400, 422)),
    (b"[1]", (400, 422)),
    (b'"x"', (400, 422)),
    (b"[{", (400,)),
    ([{"op": "zap", "path": "/data"}], (422,)),
    ([{"op": 1, "path": "/data"}], (400, 422)),
    ([{"op": "add", "path": 1, "value": 1}], (400, 422)),
    ([_ADD] * 10_001, (413,)),
    (
        [{**_ADD, "value": "x" * 2**20}, *[{"op": "copy", "from": "/data/x", "path": f"/data/y{i}"} for i in range(9)]],
        (413, 422),
    ),
    ([{**_ADD, "value": ["x"]}, *[{"op": "copy", "from": "/data/x", "path": "/data/x/-"}] * 60], (413, 422)),
    ([{"op": "add", "path": "/a" * 100_000, "value": 1}], (422,)),
    ([{"op": "remove", "path": ""}], (400, 422)),
    ([{"op": "replace", "path": "", "value": []}], (422,)),
    ([{"op": "replace", "path": "/metadata", "value": "x"}], (422,)),
    ([{"op": "replace", "path": "/metadata/name", "value": "z"}], (400,)),
    ([{"op": "remove", "path": "/metadata/name"}], (400,)),
    ([{"op": "remove", "path": "/metadata"}], (400,)),
    ([{"op": "replace", "path": "/kind", "value": "Pod"}], (422,)),
    ([{"op": "replace", "path": "/kind", "value": 1}], (422,)),
    (
        [
            {"op": "add", "path": "/metadata/finalizers", "value": []},
            {"op": "add", "path": f"/metadata/finalizers/{10**30}", "value": "x"},
        ],
        (422,),
    ),
    (
        [
            {"op": "add", "path": "/metadata/finalizers", "value": []},
            {"op": "add", "path": f"/metadata/finalizers/{10**9}", "value": "x"},
        ],
        (422,),
    ),
    (b'[{"op":"add","path":"/data/x","value":' + b"[" * 9000 + b"]" * 9000 + b"}]", (400, 422)),
    (b"[" * 100_000, (400,)),
    ([{"op": "move", "from": "/metadata", "path": "/metadata/labels"}], (400, 422)),
]


@pytest.mark.parametrize(("body", "codes"), JSON_PATCHES, ids=lambda value: str(value)[:50])
async def test_json_patches(harness: ServerHarness, body: Any, codes: tuple[int, ...]) -> None:
    """CVE-2019-1002100 among them."""
    made = await harness.make(CONFIGMAPS, {"metadata": {"name": "c"}, "data": {"a": "b"}})
    started = time.process_time()
    status_of(await harness.patch(f"{CONFIGMAPS}/c", body, JSON_PATCH), *codes)
    assert time.process_time() - started < 4
    assert (await harness.get(f"{CONFIGMAPS}/c")).json == made


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"1",
        b"{",
        {"metadata": None},
        {"metadata": "x"},
        {"metadata": {"name": "z"}},
        {"metadata": {"namespace": "other"}},
        {"metadata": {"resourceVersion": "1"}},
        {"metadata": {"resourceVersion": "x"}},
        {"metadata": {"resourceVersion": "9" * 30}},
        {"kind": "Pod"},
        {"apiVersion": "v2"},
        {"data": 1},
        {"data": {"a": 1}},
        {"data": {"a\x00": "x"}},
        {"metadata": {"labels": {"a b": "c"}}},
        {"metadata": {"ownerReferences": [{}]}},
        {"metadata": {"creationTimestamp": "x"}},
        {"metadata": {"uid": "z"}},
        b'{"a":' * 9000 + b"1" + b"}" * 9000,
    ],
    ids=lambda body: str(body)[:50],
)
async def test_merge_patches(harness: ServerHarness, body: Any) -> None:
    made = await harness.make(CONFIGMAPS, {"metadata": {"name": "c"}, "data": {"a": "b"}})
    status_of(await harness.patch(f"{CONFIGMAPS}/c", body, MERGE_PATCH), 400, 409, 422, 500)
    assert (await harness.get(f"{CONFIGMAPS}/c")).json == made


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"1",
        {"$patch": "zap"},
        {"$patch": 1},
        {"spec": {"containers": "x"}},
        {"spec": {"containers": [1]}},
        {"spec": {"containers": [{"image": "x"}]}},
        {"spec": {"containers": [{"name": {}, "image": "x"}]}},
        {"spec": {"containers": [{"$patch": "zap"}]}},
        {"spec": {"containers": [{"$patch": "delete"}]}},
        {"spec": {"$setElementOrder/containers": "x"}},
        {"spec": {"$setElementOrder/containers": [1]}},
        {"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "c", "image": "z"}]}},
        {"spec": {"$retainKeys": "x"}},
        {"spec": {"$retainKeys": ["a"], "nodeName": "b"}},
        {"spec": {"$patch": "replace"}},
        {"spec": None},
        {"metadata": None},
        b'{"a":' * 9000 + b"1" + b"}" * 9000,
    ],
    ids=lambda body: str(body)[:50],
)
async def test_strategic_patches(harness: ServerHarness, body: Any) -> None:
    pods = "/api/v1/namespaces/default/pods"
    made = await harness.make(pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    status_of(await harness.patch(f"{pods}/p", body, STRATEGIC), 400, 409, 422, 500)
    assert (await harness.get(f"{pods}/p")).json == made


_FIELDS: list[Any] = [
    {"q:z": {}},
    {"f:data": 1},
    {"f:data": {"k:": {}}},
    {"k:{": {}},
    {"v:x": {}},
    {"i:x": {}},
    {"": {}},
    {"f:": {}},
    [],
    1,
    "x",
    {"f:data": {".": 1}},
    {"k:[]": {}},
    {"k:1": {}},
    {"v:": {}},
    {f"f:{i}": {} for i in range(2000)},
]


@pytest.mark.parametrize("fields", _FIELDS, ids=lambda value: str(value)[:40])
async def test_crafted_field_ownership(harness: ServerHarness, fields: Any) -> None:
    """Whatever ownership a client makes up: never an exception, and later writes still work."""
    made = await harness.make(CONFIGMAPS, {"metadata": {"name": "c"}, "data": {"a": "b"}})
    entry = {"manager": "x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    deep: Any = {}
    for _ in range(200):
        deep = {"f:a": deep}
    for managed in (
        [entry],
        [{**entry, "fieldsType": "zap"}],
        [{**entry, "operation": "zap"}],
        [{**entry, "fieldsV1": deep}],
        [{"manager": "x"}],
        [{**entry, "time": "2026-01-01T00:00:00Z", "apiVersion": "nope/v9"}],
        [entry] * 50,
        [{**entry, "manager": "m" * 2000}],
    ):
        body = {"metadata": {"managedFields": managed}, "data": {"z": str(len(str(managed)))}}
        reply = await harness.patch(f"{CONFIGMAPS}/c", body)
        assert reply.status in (200, 400, 422), reply.body
        reply = await harness.put(f"{CONFIGMAPS}/c", {**made, "metadata": {"name": "c", "managedFields": managed}})
        assert reply.status in (200, 400, 422), reply.body
        reply = await harness.post(CONFIGMAPS, {"metadata": {"generateName": "g-", "managedFields": managed}})
        assert reply.status in (201, 400, 422), reply.body
        config = orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "n"}})
        reply = await harness.patch(f"{CONFIGMAPS}/c?fieldManager=me&force=true", config, APPLY)
        assert reply.status == 200, reply.body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"1",
        b"x",
        b"kind: ConfigMap",
        b"apiVersion: v1\nkind: 1",
        b"apiVersion: []\nkind: ConfigMap",
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: x",
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: []",
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 1}",
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: z}",
        *(
            b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%b}%b" % pair
            for pair in (
                (b", namespace: 1", b""),
                (b", namespace: other", b""),
                (b", managedFields: [{}]", b""),
                (b", managedFields: x", b""),
                (b", resourceVersion: 1", b""),
                (b", resourceVersion: x", b""),
                (b", labels: []", b""),
                (b", labels: {a: 1}", b""),
                (b", finalizers: [1]", b""),
                (b", finalizers: [a.b/c, a.b/c]", b""),
                (b", ownerReferences: [{uid: a}, {uid: a}]", b""),
                (b", creationTimestamp: x", b""),
                (b"", b"\ndata: [a]"),
                (b"", b"\ndata: {a: 1}"),
                (b"", b"\nzz: 1"),
                (b"", b"\nbinaryData: {a: '%%%'}"),
                (b"", b"\ndata: " + b"[" * 5000),
                (b"", b"\nzz: .nan"),
            )
        ),
    ],
    ids=lambda body: repr(body[-50:]),
)
async def test_applied_objects(harness: ServerHarness, body: bytes) -> None:
    made = await harness.make(CONFIGMAPS, {"metadata": {"name": "c"}, "data": {"a": "b"}})
    status_of(await harness.patch(f"{CONFIGMAPS}/c?fieldManager=me&force=true", body, APPLY), 400, 409, 422, 500)
    assert (await harness.get(f"{CONFIGMAPS}/c")).json == made


@pytest.mark.parametrize(
    "body",
    [
        b"x",
        b"[]",
        b"{" * 1000,
        {"kind": "Zap"},
        {"kind": 1},
        {"apiVersion": "a/b/c"},
        {"gracePeriodSeconds": "x"},
        {"propagationPolicy": "zap"},
        {"preconditions": "x"},
        {"preconditions": {"uid": 1}},
        {"dryRun": "All"},
        {"preconditions": {"uid": "x"}},
        {"preconditions": {"resourceVersion": "x"}},
        {"dryRun": ["x"]},
        {"orphanDependents": True, "propagationPolicy": "Orphan"},
    ],
    ids=lambda body: str(body)[:50],
)
async def test_delete_options(harness: ServerHarness, body: Any) -> None:
    made = await harness.make(CONFIGMAPS, {"metadata": {"name": "c"}})
    status_of(await harness.delete(f"{CONFIGMAPS}/c", body), 400, 409, 422)
    assert (await harness.get(f"{CONFIGMAPS}/c")).json == made
