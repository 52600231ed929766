"""Custom objects through the API: pruning, defaulting and validation by their schema."""

from __future__ import annotations

from typing import Any

import pytest
from custom_resource_harness import CRDS, FOOS, GROUP, CustomResourceHarness, definition, foo, messages, of, version
from server_harness import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC, YAML, settle

STORES = ("memory", "lagging")

TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
PARTIAL = {"accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
TEXT: dict[str, Any] = {"type": "string"}


# -- pruning and defaults ---------------------------------------------------------------------------------------------


async def test_pruning_and_defaulting(harness: CustomResourceHarness) -> None:
    spec = of(
        a={"type": "string", "default": "x"},
        keep={"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"k": of(y=TEXT)}},
        list={"type": "array", "items": {"type": "object", "properties": {"d": {"type": "integer", "default": 1}}}},
        map={"type": "object", "additionalProperties": of(x=TEXT)},
        nothing={"type": "string", "nullable": True},
    )
    await harness.define(version(spec=spec))
    given = {
        "a": None,
        "gone": 1,
        "keep": {"free": {"deep": None}, "k": {"y": "1", "gone": 2}},
        "list": [{}, {"z": 1}],
        "map": {"one": {"x": "1", "gone": 3}},
        "nothing": None,
    }
    reply = await harness.post(FOOS, foo(spec=given) | {"top": 1})
    assert reply.json["spec"] == {
        "a": "x",
        "keep": {"free": {"deep": None}, "k": {"y": "1"}},
        "list": [{"d": 1}, {"d": 1}],
        "map": {"one": {"x": "1"}},
        "nothing": None,
    }
    assert [value for name, value in reply.headers if name == "Warning"] == [
        f'299 - "unknown field \\"{path}\\""'
        for path in ("spec.gone", "spec.keep.k.gone", "spec.list[1].z", "spec.map.one.gone", "top")
    ]
    assert "top" not in reply.json


async def test_writes_of_the_status_set_its_defaults(harness: CustomResourceHarness) -> None:
    status = of(phase={"type": "string", "default": "Pending"}, x=TEXT)
    await harness.define(version(spec=of(a=TEXT), root={"properties": {"status": status}}, subresources={"status": {}}))
    made = await harness.make(FOOS, foo(spec={"a": "1"}))
    patched = await harness.patch(f"{FOOS}/f/status?fieldManager=m", {"status": {"x": "1"}})
    assert patched.json["status"] == {"phase": "Pending", "x": "1"}
    (owned,) = (each["fieldsV1"] for each in patched.json["metadata"]["managedFields"] if each["manager"] == "m")
    assert owned == {"f:status": {".": {}, "f:phase": {}, "f:x": {}}}
    made["metadata"]["resourceVersion"] = patched.json["metadata"]["resourceVersion"]
    replaced = await harness.put(f"{FOOS}/f/status", {**made, "status": {"x": "2"}})
    assert replaced.json["status"] == {"phase": "Pending", "x": "2"}
    path = f"{FOOS}/f/status?fieldManager=other&force=true"
    applied = await harness.patch(path, foo() | {"status": {"x": "3"}}, content_type=APPLY)
    assert applied.json["status"] == {"phase": "Pending", "x": "3"}


async def test_field_validation_modes(harness: CustomResourceHarness) -> None:
    await harness.define(version(spec=of(a=TEXT)))
    body = b'{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"f","x":1},"spec":{"a":"1","a":"2","b":1}}'
    refused = await harness.post(f"{FOOS}?fieldValidation=Strict", body)
    assert refused.json["message"] == (
        'Foo in version "v1" cannot be handled as a Foo: strict decoding error: duplicate field "spec.a", '
        'unknown field "metadata.x", unknown field "spec.b"'
    )
    quiet = await harness.post(f"{FOOS}?fieldValidation=Ignore", body)
    assert (quiet.status, quiet.header("Warning")) == (201, "")


async def test_stored_objects_follow_a_changed_schema(harness: CustomResourceHarness) -> None:
    await harness.define(version(spec=of(a=TEXT, b=TEXT)))
    await harness.make(FOOS, foo(spec={"a": "1", "b": "2"}))
    await harness.redefine({"spec": {"versions": [version(spec=of(a=TEXT, c={"type": "string", "default": "new"}))]}})
    assert (await harness.get(f"{FOOS}/f")).json["spec"] == {"a": "1", "c": "new"}
    assert (await harness.get(FOOS)).json["items"][0]["spec"] == {"a": "1", "c": "new"}
    watcher = await harness.watch(FOOS)
    assert watcher.events[0]["object"]["spec"] == {"a": "1", "c": "new"}
    assert (await harness.get(f"{FOOS}/f")).json["metadata"]["generation"] == 1


async def test_numbers_are_stored_as_upstream_does(harness: CustomResourceHarness) -> None:
    await harness.define()
    body = b'{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"f"},"spec":{"a":1.0,"b":1.5,"c":2e3}}'
    made = (await harness.post(FOOS, body)).json["spec"]
    assert (made, type(made["a"]), type(made["c"])) == ({"a": 1, "b": 1.5, "c": 2000}, int, int)
    changed = await harness.patch(f"{FOOS}/f", b'{"spec":{"a":true}}')
    assert (changed.json["spec"]["a"], changed.json["metadata"]["generation"]) == (True, 2)


# -- validation -------------------------------------------------------------------------------------------------------


async def test_validation_messages(harness: CustomResourceHarness) -> None:
    spec = of(
        s={"type": "string", "maxLength": 2},
        i={"type": "integer", "minimum": 3},
        e={"type": "string", "enum": ["x"]},
        l={"type": "array", "maxItems": 1, "items": TEXT},
        r={"type": "object", "required": ["q"]},
        p={"type": "string", "pattern": "^a"},
        ios={"x-kubernetes-int-or-string": True},
        d={"type": "string", "format": "date"},
    )
    await harness.define(version(spec=spec))
    given = {"s": "xxx", "i": 1, "e": "y", "l": ["a", "b"], "r": {}, "p": "b", "ios": True, "d": "no"}
    assert messages(await harness.post(FOOS, foo(spec=given))) == [
        'spec.d: Invalid value: "no": spec.d in body must be of type date: "no"',
        'spec.e: Unsupported value: "y": supported values: "x"',
        "spec.i: Invalid value: 1: spec.i in body should be greater than or equal to 3",
        'spec.ios: Invalid value: "boolean": spec.ios in body must be of type integer,string: "boolean"',
        "spec.l: Too many: 2: must have at most 1 item",
        "spec.p: Invalid value: \"b\": spec.p in body should match '^a'",
        "spec.r.q: Required value",
        "spec.s: Too long: may not be more than 2 bytes",
    ]


async def test_sets_keys_and_embedded_objects(harness: CustomResourceHarness) -> None:
    spec = of(
        set={"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        keyed={
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k", "p"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": TEXT, "p": {**TEXT, "default": "TCP"}}},
        },
        pod={"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
    )
    await harness.define(version(spec=spec))
    given = {"set": ["a", "b", "a"], "keyed": [{"k": "x"}, {"k": "x", "p": "TCP"}], "pod": {"kind": "pod.s"}}
    assert messages(await harness.post(FOOS, foo(spec=given))) == [
        'spec.keyed[1]: Duplicate value: {"k":"x","p":"TCP"}',
        "spec.pod.apiVersion: Required value",
        'spec.pod.kind: Invalid value: "pod.s": may have mixed case, but should otherwise match: a DNS-1035 label must '
        "consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an "
        "alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
        "'[a-z]([-a-z0-9]*[a-z0-9])?')",
        'spec.set[2]: Duplicate value: "a"',
    ]
    bad = {"pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}}}
    reply = await harness.post(FOOS, foo(spec=bad))
    assert (reply.status, reply.json["message"]) == (
        400,
        'Foo in version "v1" cannot be handled as a Foo: spec.pod.metadata: Invalid value: {"labels":{"a":1}}: '
        "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
    )
    typed = {"pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "nonsense": 1}, "spec": {"x": 1}}}
    made = await harness.make(FOOS, foo(spec=typed))
    assert made["spec"]["pod"]["metadata"] == {"name": "p"}
    assert made["spec"]["pod"]["spec"] == {"x": 1}


async def test_unchanged_invalid_values_are_tolerated(harness: CustomResourceHarness) -> None:
    loose = of(s=TEXT, o=of(x=TEXT, y=TEXT), l={"type": "array", "items": TEXT})
    await harness.define(version(spec=loose))
    await harness.make(FOOS, foo(spec={"s": "long", "o": {"x": "long", "y": "1"}, "l": ["a", "b"]}))
    short = {"type": "string", "maxLength": 2}
    tight = of(s=short, o=of(x=short, y=TEXT), l={"type": "array", "maxItems": 1, "items": TEXT})
    await harness.redefine({"spec": {"versions": [version(spec=tight)]}})
    assert (await harness.patch(f"{FOOS}/f", {"metadata": {"labels": {"a": "b"}}})).status == 200
    assert (await harness.patch(f"{FOOS}/f", {"spec": {"o": {"y": "2"}}})).status == 200
    refused = await harness.patch(f"{FOOS}/f", {"spec": {"o": {"x": "other"}}})
    assert messages(refused) == ["spec.o.x: Too long: may not be more than 2 bytes"]
    assert messages(await harness.patch(f"{FOOS}/f", {"spec": {"l": ["a", "c"]}})) == [
        "spec.l: Too many: 2: must have at most 1 item"
    ]
    assert (await harness.post(FOOS, foo("g", {"s": "long"}))).status == 422


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({}, 400, "the object provided is unrecognized (must be of type Foo): Object 'Kind' is missing in '{}' ({})"),
        (
            {"kind": "Foo"},
            400,
            "the API version in the data () does not match the expected API version (example.com/v1)",
        ),
        (
            {"apiVersion": "example.com/v2", "kind": "Foo"},
            400,
            "the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)",
        ),
        (foo() | {"kind": "Bar"}, 422, 'Bar.example.com "f" is invalid: kind: Invalid value: "Bar": must be Foo'),
        (
            {"apiVersion": "example.com/v1", "kind": "Foo"},
            422,
            'Foo.example.com "" is invalid: metadata.name: Required value: name or generateName is required',
        ),
        (
            foo(metadata={"labels": {"a": 1}}),
            400,
            'Foo in version "v1" cannot be handled as a Foo: json: cannot unmarshal number into Go struct field '
            "ObjectMeta.labels of type string",
        ),
    ],
)
async def test_bodies_of_another_kind(harness: CustomResourceHarness, body: Any, code: int, said: str) -> None:
    await harness.define()
    reply = await harness.post(FOOS, body)
    assert (reply.status, reply.json["message"]) == (code, said)


# -- rules ------------------------------------------------------------------------------------------------------------


def _rules(*rules: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {**of(**properties), "x-kubernetes-validations": list(rules)}


async def test_validation_rules(harness: CustomResourceHarness) -> None:
    number = {"type": "integer"}
    spec = _rules(
        {"rule": "self.a < self.b", "message": "a before b"},
        {
            "rule": "self.a != 3",
            "messageExpression": "'not ' + self.t",
            "fieldPath": ".a",
            "reason": "FieldValueForbidden",
        },
        {"rule": "self.a != 4"},
        a=number,
        b=number,
        t={"type": "string", "maxLength": 9},
        c={**number, "x-kubernetes-validations": [{"rule": "self > 0", "message": "c counts"}]},
    )
    await harness.define(version(spec=spec))
    assert messages(await harness.post(FOOS, foo(spec={"a": 3, "b": 2, "c": 0, "t": "three"}))) == [
        "spec.a: Forbidden: not three",
        "spec.c: Invalid value: 0: c counts",
        "spec: Invalid value: a before b",
    ]
    assert messages(await harness.post(FOOS, foo(spec={"a": 4, "b": 5}))) == [
        "spec: Invalid value: failed rule: self.a != 4"
    ]
    missing = await harness.post(FOOS, foo(spec={"a": 1}))
    assert messages(missing)[0] == 'spec: Invalid value: "object": no such key: b evaluating rule: a before b'
    assert messages(await harness.post(FOOS, foo(spec={"a": "x"}))) == [
        "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
        "correct the existing errors to complete validation",
        'spec.a: Invalid value: "string": spec.a in body must be of type integer: "string"',
    ]


async def test_transition_rules(harness: CustomResourceHarness) -> None:
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "maxItems": 9,
        "items": {
            **_rules({"rule": "self.v >= oldSelf.v", "message": "v grows"}, k=TEXT, v={"type": "integer"}),
            "required": ["k"],
        },
    }
    fixed = {**TEXT, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "s is fixed"}]}
    first = {
        **TEXT,
        "x-kubernetes-validations": [
            {"rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": True, "message": "begin with first"}
        ],
    }
    await harness.define(version(spec=of(s=fixed, keyed=keyed, first=first)))
    assert messages(await harness.post(FOOS, foo(spec={"first": "x"}))) == [
        'spec.first: Invalid value: "x": begin with first'
    ]
    await harness.make(FOOS, foo(spec={"s": "a", "first": "first", "keyed": [{"k": "x", "v": 2}, {"k": "y", "v": 5}]}))
    assert (await harness.patch(f"{FOOS}/f", {"spec": {"first": "y"}})).status == 200
    changed = {"s": "b", "keyed": [{"k": "y", "v": 6}, {"k": "z", "v": 0}, {"k": "x", "v": 1}]}
    assert messages(await harness.patch(f"{FOOS}/f", {"spec": changed})) == [
        "spec.keyed[2]: Invalid value: v grows",
        'spec.s: Invalid value: "b": s is fixed',
    ]
    removed = await harness.patch(f"{FOOS}/f", {"spec": {"s": None}})
    assert removed.status == 200


async def test_a_new_rule_tolerates_unchanged_values(harness: CustomResourceHarness) -> None:
    await harness.define(version(spec=of(a={"type": "integer"}, b=TEXT)))
    await harness.make(FOOS, foo(spec={"a": 1}))
    rule = {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5", "message": "more"}]}
    await harness.redefine({"spec": {"versions": [version(spec=of(a=rule, b=TEXT))]}})
    reply = await harness.patch(f"{FOOS}/f", {"spec": {"b": "x"}})
    assert (reply.status, reply.header("Warning")) == (200, '299 - "spec.a: Invalid value: 1: more"')
    assert (await harness.patch(f"{FOOS}/f", {"spec": {"a": 2}})).status == 422


async def test_rules_have_a_budget(harness: CustomResourceHarness) -> None:
    many = {"type": "array", "maxItems": 1000, "items": {"type": "string", "maxLength": 10}}
    rule = {"rule": "self.l.all(x, self.l.exists(y, x == y))", "message": "of itself"}
    refused = await harness.post(CRDS, definition(version(spec={**of(l=many), "x-kubernetes-validations": [rule]})))
    text = messages(refused)[0]
    assert "x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of" in text
    few = {**many, "maxItems": 300}
    await harness.define(version(spec={**of(l=few), "x-kubernetes-validations": [rule]}))
    assert (await harness.post(FOOS, foo(spec={"l": [str(i) for i in range(30)]}))).status == 201


# -- writing ----------------------------------------------------------------------------------------------------------


async def test_generation_ignores_metadata_and_status(harness: CustomResourceHarness) -> None:
    await harness.define(
        version(
            root={"properties": {"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}},
            subresources={"status": {}},
        )
    )
    made = await harness.make(FOOS, foo(spec={"a": 1}, status={"x": 1}))
    assert "status" not in made
    labelled = await harness.patch(f"{FOOS}/f", {"metadata": {"labels": {"a": "b"}}, "status": {"x": 2}})
    assert (labelled.json["metadata"]["generation"], "status" in labelled.json) == (1, False)
    written = await harness.patch(
        f"{FOOS}/f/status", {"status": {"x": 3}, "spec": {"a": 9}, "metadata": {"labels": {"c": "d"}}}
    )
    assert (written.json["metadata"]["generation"], written.json["spec"], written.json["status"]) == (
        1,
        {"a": 1},
        {"x": 3},
    )
    assert written.json["metadata"]["labels"] == {"a": "b"}
    assert (await harness.patch(f"{FOOS}/f", {"spec": {"a": 2}})).json["metadata"]["generation"] == 2
    assert (await harness.put(f"{FOOS}/f", foo(spec={"a": 3}))).status == 422  # the revision is required


async def test_patch_types(harness: CustomResourceHarness) -> None:
    await harness.define()
    await harness.make(FOOS, foo(spec={"a": 1, "l": [1]}))
    assert (await harness.patch(f"{FOOS}/f", {"spec": {"b": 2}}, MERGE_PATCH)).json["spec"] == {
        "a": 1,
        "l": [1],
        "b": 2,
    }
    added = await harness.patch(f"{FOOS}/f", [{"op": "add", "path": "/spec/l/-", "value": 2}], JSON_PATCH)
    assert added.json["spec"]["l"] == [1, 2]
    refused = await harness.patch(f"{FOOS}/f", {"spec": {}}, STRATEGIC)
    assert (refused.status, refused.json["message"]) == (
        415,
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    )
    assert (
        await harness.post(FOOS, b"apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: written}\n", YAML)
    ).status == 201


async def test_patches_in_another_version(harness: CustomResourceHarness) -> None:
    """A patch does not fail because of fields that its version does not have, whether or not the object was read
    before."""
    text = {"type": "string"}
    await harness.define(
        version("v1", of(a=text, d={"type": "string", "default": "one"})),
        version("v2", of(a=text, b={"type": "string", "default": "two"}), storage=False),
    )
    for name, read_first in (("read", True), ("unread", False)):
        await harness.make(FOOS, foo(name, {"a": "1"}))
        path = f"{FOOS.replace('/v1/', '/v2/')}/{name}"
        if read_first:
            assert (await harness.get(path)).json["spec"] == {"a": "1"}
        reply = await harness.patch(path, {"spec": {"b": "x"}})
        assert (reply.status, reply.warnings, reply.json["spec"]) == (200, [], {"a": "1"})
        assert (await harness.get(f"{FOOS}/{name}")).json["spec"] == {"a": "1", "d": "one"}


async def test_field_names_are_never_executed(harness: CustomResourceHarness) -> None:
    """Decoders are generated code: no part of a definition may end up in it unquoted."""
    text = {"type": "string", "default": "d"}
    names = ["'); raise SystemExit('", '"', "\\", "a b", "__class__", "{0}", "\n x = 1"]
    await harness.define(version("v1", of(**dict.fromkeys(names, text))))
    made = await harness.make(FOOS, foo("f", {names[0]: "x", "unknown": 1}))
    assert made["spec"] == dict.fromkeys(names, "d") | {names[0]: "x"}


async def test_apply_follows_the_schema(harness: CustomResourceHarness) -> None:
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": TEXT, "v": TEXT}},
    }
    await harness.define(version(spec=of(keyed=keyed, whole={"type": "array", "items": TEXT}, s=TEXT)))

    async def apply(manager: str, spec: Any, more: str = "") -> Any:
        return await harness.patch(f"{FOOS}/f?fieldManager={manager}{more}", foo(spec=spec), APPLY)

    assert (await apply("one", {"keyed": [{"k": "a", "v": "1"}], "whole": ["x"]})).status == 201
    merged = await apply("two", {"keyed": [{"k": "b", "v": "2"}]})
    assert merged.json["spec"]["keyed"] == [{"k": "a", "v": "1"}, {"k": "b", "v": "2"}]
    conflict = await apply("two", {"keyed": [{"k": "a", "v": "9"}], "whole": ["y"]})
    assert conflict.status == 409
    assert {cause["field"] for cause in conflict.json["details"]["causes"]} == {'.spec.keyed[k="a"].v', ".spec.whole"}
    forced = await apply("two", {"whole": ["y"]}, "&force=true")
    assert forced.json["spec"] == {"keyed": [{"k": "a", "v": "1"}], "whole": ["y"]}
    owners = {entry["manager"]: entry["fieldsV1"] for entry in forced.json["metadata"]["managedFields"]}
    assert owners["two"] == {"f:spec": {"f:whole": {}}}
    unknown = await apply("two", {"s": "x", "nope": 1})
    assert (unknown.status, "field not declared in schema" in unknown.json["message"]) == (500, True)


async def test_only_apply_reports_invalid_nulls(harness: CustomResourceHarness) -> None:
    with_default, may_be_null = {"type": "string", "default": "x"}, {"type": "string", "nullable": True}
    parts = {"type": "array", "items": of(s=TEXT)}
    await harness.define(version(spec=of(s=TEXT, default=with_default, nullable=may_be_null, parts=parts)))
    nulls = {"s": None, "default": None, "nullable": None, "parts": [{"s": None}]}
    made = await harness.make(FOOS, foo(spec=nulls))
    assert made["spec"] == {"default": "x", "nullable": None, "parts": [{}]}
    refused = await harness.patch(f"{FOOS}/f?fieldManager=me&force=true", foo(spec=nulls), APPLY)
    assert messages(refused) == [
        'spec.parts[0].s: Invalid value: "null": spec.parts[0].s in body must be of type string: "null"',
        'spec.s: Invalid value: "null": spec.s in body must be of type string: "null"',
    ]
    fine = {"default": None, "nullable": None}
    applied = await harness.patch(f"{FOOS}/g?fieldManager=me", foo("g", spec=fine), APPLY)
    assert applied.json["spec"] == {"default": "x", "nullable": None}


async def test_scale_uses_the_paths_of_the_definition(harness: CustomResourceHarness) -> None:
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.sel"}
    await harness.define(
        version(
            root={"properties": {"status": of(size={"type": "integer"}, sel=TEXT)}},
            spec=of(size={"type": "integer"}),
            subresources={"status": {}, "scale": paths},
        )
    )
    await harness.make(FOOS, foo(spec={"size": 2}))
    await harness.patch(f"{FOOS}/f/status", {"status": {"size": 1, "sel": "a=b"}})
    scale = (await harness.get(f"{FOOS}/f/scale")).json
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 2},
        {"replicas": 1, "selector": "a=b"},
    )
    assert (await harness.patch(f"{FOOS}/f/scale", {"spec": {"replicas": 5}})).json["spec"] == {"replicas": 5}
    assert (await harness.get(f"{FOOS}/f")).json["spec"] == {"size": 5}
    assert messages(await harness.patch(f"{FOOS}/f/scale", {"spec": {"replicas": -1}})) == [
        ".spec.size: Invalid value: -1: should be a non-negative integer"
    ]
    await harness.make(FOOS, foo("none"))
    absent = await harness.get(f"{FOOS}/none/scale")
    assert absent.json["message"] == 'Internal error occurred: the spec replicas field ".spec.size" does not exist'
    empty = await harness.patch(f"{FOOS}/none/scale", {"metadata": {"labels": {}}})
    assert (empty.status, empty.json["message"]) == (400, 'the spec replicas field ".spec.size" cannot be empty')
    table = (await harness.get(f"{FOOS}/f/scale", headers=TABLE)).json
    assert table["rows"][0]["cells"][:3] == ["f", 5, 1]


# -- reading ----------------------------------------------------------------------------------------------------------


async def test_tables_have_the_columns_of_the_definition(harness: CustomResourceHarness) -> None:
    columns = [
        {"name": "S", "type": "string", "jsonPath": ".spec.s"},
        {"name": "N", "type": "integer", "jsonPath": ".spec.n", "priority": 1, "description": "how many"},
        {"name": "Ready", "type": "string", "jsonPath": '.spec.c[?(@.type=="Ready")].status'},
        {"name": "O", "type": "string", "jsonPath": ".spec.o"},
        {"name": "When", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Wrong", "type": "date", "jsonPath": ".spec.s"},
        {"name": "B", "type": "boolean", "jsonPath": ".spec.s"},
    ]
    await harness.define(version(additionalPrinterColumns=columns))
    await harness.make(FOOS, foo(spec={"s": "x", "n": 2, "c": [{"type": "Ready", "status": "True"}], "o": {"a": 1}}))
    await harness.make(FOOS, foo("g"))
    await harness.clock.advance(120)
    table = (await harness.get(FOOS, headers=TABLE)).json
    assert [(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"]][:3] == [
        ("Name", "string", 0),
        ("S", "string", 0),
        ("N", "integer", 1),
    ]
    assert [row["cells"] for row in table["rows"]] == [
        ["f", "x", 2, "True", '{"a":1}', "2m", "<invalid>", None],
        ["g", None, None, None, None, "2m", None, None],
    ]
    plain = await harness.redefine({"spec": {"versions": [version()]}})
    assert plain.status == 200
    assert [c["name"] for c in (await harness.get(FOOS, headers=TABLE)).json["columnDefinitions"]] == ["Name", "Age"]
    partial = (await harness.get(f"{FOOS}/f", headers=PARTIAL)).json
    assert (partial["kind"], "spec" in partial) == ("PartialObjectMetadata", False)


async def test_selectable_fields(harness: CustomResourceHarness) -> None:
    await harness.define(
        version(
            spec=of(s=TEXT, b={"type": "boolean"}), selectableFields=[{"jsonPath": ".spec.s"}, {"jsonPath": ".spec.b"}]
        )
    )
    await harness.make(FOOS, foo("a", {"s": "x", "b": True}))
    await harness.make(FOOS, foo("b", {"s": "y"}))

    async def names(selector: str) -> list[str]:
        listed = (await harness.get(f"{FOOS}?fieldSelector={selector}")).json["items"]
        return [item["metadata"]["name"] for item in listed]

    assert await names("spec.s=x") == ["a"]
    assert await names("spec.b=true") == ["a"]
    assert await names("spec.b!=true") == ["b"]
    refused = await harness.get(f"{FOOS}?fieldSelector=spec.other=1")
    assert (refused.status, refused.json["message"]) == (400, "field label not supported: spec.other")
    watcher = await harness.watch(f"{FOOS}?fieldSelector=spec.s=x")
    await harness.patch(f"{FOOS}/b", {"spec": {"s": "x"}})
    await harness.patch(f"{FOOS}/a", {"spec": {"s": "z"}})
    await settle()
    assert watcher.summary == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_scope_cannot_be_bypassed_by_paths(harness: CustomResourceHarness) -> None:
    """A resource cannot be accessed in another scope (CVE-2019-11247, CVE-2022-3162)."""
    await harness.define()
    await harness.define(version(subresources={"status": {}}), plural="globals", kind="Global", scope="Cluster")
    await harness.make(FOOS, foo())
    await harness.make(f"/apis/{GROUP}/v1/globals", {**foo("x"), "kind": "Global"})
    before = harness.store.revision
    for path in (
        f"/apis/{GROUP}/v1/foos/f",
        f"/apis/{GROUP}/v1/namespaces/default/globals",
        f"/apis/{GROUP}/v9/foos",
        f"/apis/{GROUP}/v1/bars",
        f"/apis/{GROUP}/v1/namespaces/default/globals/x",
    ):
        reply = await harness.get(path)
        assert (reply.status, reply.body) == (404, b"404 page not found\n"), path
    for method in ("GET", "PUT", "PATCH", "DELETE", "POST"):
        body = None if method in ("GET", "DELETE") else foo("x")
        kind = MERGE_PATCH if method == "PATCH" else "application/json"
        for path in ("globals", "globals/x", "globals/x/status", "globals?watch=1"):
            reply = await harness.request(method, f"/apis/{GROUP}/v1/namespaces/default/{path}", body, kind)
            assert reply.status == 404, (method, path)
    assert harness.store.revision == before
    absent = await harness.get(f"{FOOS}/f/status")
    assert absent.json["message"] == 'foos.example.com "f" not found'
    await harness.define(plural="foosball", kind="Foosball")
    listed = (await harness.get(f"/apis/{GROUP}/v1/foos")).json["items"]
    assert len(listed) == 1  # no plural's keys run into another's


async def test_discovery_and_openapi_follow_the_definition(harness: CustomResourceHarness) -> None:
    before = (await harness.get("/openapi/v3")).json["paths"]
    await harness.define(version(subresources={"status": {}}), names={"shortNames": ["fo"], "categories": ["all"]})
    listed = (await harness.get(f"/apis/{GROUP}/v1")).json["resources"]
    assert [row["name"] for row in listed] == ["foos", "foos/status"]
    assert (listed[0]["shortNames"], listed[0]["categories"]) == (["fo"], ["all"])
    accept = {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    aggregated = (await harness.get("/apis", headers=accept)).json["items"][-1]
    assert aggregated["metadata"]["name"] == GROUP
    assert aggregated["versions"][0]["resources"][0]["responseKind"] == {"group": GROUP, "version": "v1", "kind": "Foo"}
    after = (await harness.get("/openapi/v3")).json["paths"]
    assert set(after) - set(before) == {f"apis/{GROUP}/v1"}
    document = (await harness.get(f"/openapi/v3/apis/{GROUP}/v1")).json
    assert "com.example.v1.Foo" in document["components"]["schemas"]
    assert "com.example.v1.Foo" in (await harness.get("/openapi/v2")).json["definitions"]
    await harness.delete(f"{CRDS}/foos.{GROUP}")
    await settle(60)
    assert set((await harness.get("/openapi/v3")).json["paths"]) == set(before)


@pytest.mark.parametrize("scope", ["Namespaced", "Cluster"])
async def test_unsupported_field_selectors(harness: CustomResourceHarness, scope: str) -> None:
    await harness.define(
        version(selectableFields=[{"jsonPath": ".spec.a"}], spec=of(a={"type": "string"})), scope=scope
    )
    where = FOOS if scope == "Namespaced" else FOOS.replace("/namespaces/default", "")
    for method, query in (("GET", ""), ("GET", "&watch=1"), ("DELETE", "")):
        reply = await harness.request(method, f"{where}?fieldSelector=spec.b=1{query}")
        assert (reply.status, reply.message) == (400, "field label not supported: spec.b")
    assert (await harness.get(f"{where}?fieldSelector=spec.a=1")).status == 200
    namespaced = await harness.get(f"{where}?fieldSelector=metadata.namespace=default")
    assert namespaced.status == (200 if scope == "Namespaced" else 400)
