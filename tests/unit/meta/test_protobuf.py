"""Protobuf bodies decode to the same object as JSON; invalid ones are rejected in linear time."""

from __future__ import annotations

import struct
import time
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.kinds.protobuf_numbers import has_protobuf_form, protobuf_fields
from setpoint.kinds.tables import definition_for, type_of
from setpoint.meta.decode import decode
from setpoint.meta.protobuf import ProtobufError, open_envelope, read_message
from setpoint.meta.schema import Shape, Type


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def sized(number: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def entry(field: int, key: str, value: bytes | str) -> bytes:
    return sized(field, sized(1, key) + sized(2, value))


def envelope(api_version: str, kind: str, content: bytes) -> bytes:
    return (
        b"k8s\x00" + sized(1, sized(1, api_version) + sized(2, kind)) + sized(2, content) + sized(3, "") + sized(4, "")
    )


def kind(group: str, version: str, name: str) -> Type:
    return type_of(definition_for(group, version, name))


def read(type_: Type, content: bytes) -> Any:
    return read_message(type_, content, 0, len(content), protobuf_fields)


POD = kind("", "v1", "Pod")
CONFIG_MAP = kind("", "v1", "ConfigMap")
SCHEMA = type_of("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")


# -- envelope ---------------------------------------------------------------------------------------------------------


def test_envelope() -> None:
    body = envelope("apps/v1", "Deployment", b"content")
    opened = open_envelope(body)
    assert (opened.api_version, opened.kind) == ("apps/v1", "Deployment")
    assert body[opened.start : opened.end] == b"content"


def test_an_envelope_may_be_empty() -> None:
    assert open_envelope(b"k8s\x00" + sized(9, "later")) == ("", "", 0, 0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "empty data"),
        (b"k8s\x01x", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (b"k8s\x00", "empty body"),
        (b"k8s\x00\xff\xff", "unexpected EOF"),
        (b"k8s\x00\x08\x01", "proto: wrong wireType = 0 for field TypeMeta"),
        (b"k8s\x00" + b"\xff" * 12, "proto: integer overflow"),
    ],
)
def test_broken_envelopes(body: bytes, message: str) -> None:
    with pytest.raises(ProtobufError) as caught:
        open_envelope(body)
    assert str(caught.value) == message


# -- values -----------------------------------------------------------------------------------------------------------


def test_strings_maps_and_bytes() -> None:
    content = sized(1, sized(1, "c") + entry(11, "k", "v")) + entry(2, "a", "ä") + entry(3, "b", b"\xff\x00")
    assert read(CONFIG_MAP, content + number(4, 1)) == {
        "metadata": {"name": "c", "labels": {"k": "v"}},
        "data": {"a": "ä"},
        "binaryData": {"b": "/wA="},
        "immutable": True,
    }


def test_map_entries_may_lack_a_part() -> None:
    assert read(CONFIG_MAP, sized(2, sized(1, "k")) + sized(2, sized(2, "v"))) == {"data": {"k": "", "": "v"}}
    quota = kind("", "v1", "ResourceQuota")
    assert read(quota, sized(2, sized(1, sized(1, "cpu")))) == {"spec": {"hard": {"cpu": "0"}}}


def test_fields_that_json_inlines() -> None:
    """A volume's source, a probe's handler and a key selector's name are separate messages in protobuf."""
    volume = sized(1, "v") + sized(2, sized(2, b""))
    handler = sized(2, sized(2, number(1, 0) + number(2, 80) + sized(3, "")))
    source = sized(4, sized(1, sized(1, "secret")) + sized(2, "key"))
    container = sized(1, "c") + sized(10, sized(1, handler) + number(3, 7)) + sized(7, sized(1, "E") + sized(3, source))
    assert read(POD, sized(2, sized(1, volume) + sized(2, container)))["spec"] == {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [
            {
                "name": "c",
                "livenessProbe": {"httpGet": {"port": 80}, "timeoutSeconds": 7},
                "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "key"}}}],
            }
        ],
    }


def test_nested_inlined_fields() -> None:
    binding = kind("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding")
    rule = sized(1, "n") + sized(2, sized(1, "CREATE") + sized(2, sized(1, "apps") + sized(3, "pods")))
    value = read(binding, sized(2, sized(3, sized(3, rule))))
    assert value["spec"]["matchResources"]["resourceRules"] == [
        {"resourceNames": ["n"], "operations": ["CREATE"], "apiGroups": ["apps"], "resources": ["pods"]}
    ]


def test_numbers_keep_their_sign_and_size() -> None:
    service = kind("", "v1", "Service")
    port = number(3, 2**32 - 1)
    assert read(service, sized(2, sized(1, port)))["spec"]["ports"] == [{"port": -1}]
    assert read(POD, sized(2, number(4, -(2**63))))["spec"] == {"terminationGracePeriodSeconds": -(2**63)}


@pytest.mark.parametrize(
    "content", [number(4, 1) + number(4, 300), sized(4, varint(1) + varint(300)), number(4, 1) + sized(4, varint(300))]
)
def test_repeated_numbers_may_be_packed(content: bytes) -> None:
    security = type_of("io.k8s.api.core.v1.PodSecurityContext")
    assert read(security, content) == {"supplementalGroups": [1, 300]}


def test_times() -> None:
    lease = kind("coordination.k8s.io", "v1", "Lease")

    def renewed(content: bytes) -> Any:
        return decode(lease, read(lease, sized(2, sized(4, content))))["spec"]["renewTime"]

    assert renewed(number(1, 1_700_000_000) + number(2, 123_456_789)) == "2023-11-14T22:13:20.123456Z"
    assert renewed(number(1, 1_700_000_000) + number(2, -1_234_567)) == "2023-11-14T22:13:19.998766Z"
    assert renewed(b"") is None
    with pytest.raises(ProtobufError, match="year outside of range"):
        renewed(number(1, 2**62))
    meta = read(POD, sized(1, sized(9, number(1, 1_700_000_000) + number(2, -5))))["metadata"]
    assert meta == {"deletionTimestamp": "2023-11-14T22:13:20Z"}


def test_quantities_and_int_or_string() -> None:
    limits = sized(8, entry(1, "cpu", sized(1, "1000m")))
    assert read(POD, sized(2, sized(2, limits)))["spec"]["containers"] == [{"resources": {"limits": {"cpu": "1"}}}]
    budget = kind("policy", "v1", "PodDisruptionBudget")
    assert read(budget, sized(2, sized(1, number(1, 1) + number(2, 5) + sized(3, "50%"))))["spec"] == {
        "minAvailable": "50%"
    }
    assert read(budget, sized(2, sized(1, b""))) == {"spec": {"minAvailable": 0}}
    for wrong in (sized(1, "abc"), sized(1, "")):
        with pytest.raises(ProtobufError, match="quantities must match"):
            read(POD, sized(2, sized(2, sized(8, entry(1, "cpu", wrong)))))


def test_raw_json() -> None:
    revision = kind("apps", "v1", "ControllerRevision")
    assert read(revision, sized(2, sized(1, '{"a": [1]}'))) == {"data": {"a": [1]}}
    assert read(revision, sized(2, b"")) == {"data": None}
    with pytest.raises(ProtobufError, match="invalid character"):
        read(revision, sized(2, sized(1, "{bad")))


def test_lists_in_maps() -> None:
    review = kind("authorization.k8s.io", "v1", "SubjectAccessReview")
    assert read(review, sized(2, entry(5, "scopes", sized(1, "a") + sized(1, "b"))))["spec"] == {
        "extra": {"scopes": ["a", "b"]}
    }


def test_schemas() -> None:
    string = sized(5, "string")
    assert read(SCHEMA, sized(24, sized(1, string))) == {"items": {"type": "string"}}
    assert read(SCHEMA, sized(24, sized(2, string) + sized(2, string))) == {"items": [{"type": "string"}] * 2}
    assert read(SCHEMA, sized(30, number(1, 1))) == {"additionalProperties": True}
    assert read(SCHEMA, sized(30, b"")) == {"additionalProperties": False}
    assert read(SCHEMA, sized(30, number(1, 1) + sized(2, string))) == {"additionalProperties": {"type": "string"}}
    assert read(SCHEMA, entry(32, "d", sized(2, "x"))) == {"dependencies": {"d": ["x"]}}
    assert read(SCHEMA, bytes([9 << 3 | 1]) + struct.pack("<d", 1.5)) == {"maximum": 1.5}
    assert read(SCHEMA, sized(8, sized(1, "5")) + sized(20, sized(1, '"a"'))) == {"default": 5, "enum": ["a"]}
    assert read(SCHEMA, number(38, 1) + sized(3, "#/a")) == {
        "x-kubernetes-preserve-unknown-fields": True,
        "$ref": "#/a",
    }
    with pytest.raises(ProtobufError, match="NaN"):
        read(SCHEMA, bytes([9 << 3 | 1]) + struct.pack("<d", float("nan")))


def test_empty_values_are_left_to_the_decoder() -> None:
    deployment = kind("apps", "v1", "Deployment")
    content = sized(1, sized(1, "d") + sized(2, "")) + sized(2, number(1, 0) + number(5, 0) + sized(4, sized(1, "")))
    spec = decode(deployment, read(deployment, content))["spec"]
    assert spec["replicas"] == 0  # a pointer to zero is not nothing
    assert "minReadySeconds" not in spec
    assert spec["strategy"] == {}


def test_a_message_may_come_in_parts() -> None:
    content = sized(1, sized(1, "c")) + sized(1, entry(11, "k", "v")) + sized(1, sized(1, "d"))
    assert read(CONFIG_MAP, content) == {"metadata": {"name": "d", "labels": {"k": "v"}}}


def test_unknown_fields_are_skipped() -> None:
    group = bytes([15 << 3 | 3]) + sized(1, "in") + bytes([15 << 3 | 4])
    rest = number(99, 2**60) + sized(98, b"\xff\xff") + varint(97 << 3 | 1) + bytes(8) + varint(96 << 3 | 5) + bytes(4)
    assert read(CONFIG_MAP, group + rest + sized(1, sized(1, "c"))) == {"metadata": {"name": "c"}}


def test_invalid_utf8_is_replaced_byte_by_byte() -> None:
    assert read(CONFIG_MAP, entry(2, "k", b"a\xff\xe2\x82b")) == {"data": {"k": "a\ufffd\ufffd\ufffdb"}}


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x0a\x05ab", "unexpected EOF"),
        (b"\x0a", "unexpected EOF"),
        (b"\x20", "unexpected EOF"),
        (sized(1, b"\x0a\x05ab"), "unexpected EOF"),
        (b"\x08\x01", "proto: wrong wireType = 0 for field ObjectMeta"),
        (sized(1, number(5, 1)), "proto: wrong wireType = 0 for field UID"),
        (sized(4, "true"), "proto: wrong wireType = 2 for field Immutable"),
        (b"\x0c", "proto: ConfigMap: wiretype end group for non-group"),
        (b"\x02\x01", "proto: ConfigMap: illegal tag 0 (wire type 2)"),
        (bytes([15 << 3 | 3]), "unexpected EOF"),
        (bytes([15 << 3 | 7]), "proto: illegal wireType 7"),
        (varint(99 << 3 | 1) + bytes(7), "unexpected EOF"),
        (sized(99, "abc")[:-1], "unexpected EOF"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "proto: negative length found during unmarshaling"),
        (varint(99 << 3 | 2) + varint(2**63 - 1), "proto: negative length found during unmarshaling"),
        (b"\x0a" + varint(2**40), "unexpected EOF"),
        (number(4, 0)[:1] + b"\xff" * 11, "proto: integer overflow"),
    ],
)
def test_error_messages_are_upstreams(content: bytes, message: str) -> None:
    with pytest.raises(ProtobufError) as caught:
        read(CONFIG_MAP, content)
    assert str(caught.value) == message


def test_depth_is_bounded() -> None:
    content = b""
    for _ in range(5_000):
        content = sized(28, content)
    with pytest.raises(ProtobufError, match="max depth"):
        read(SCHEMA, content)


@pytest.mark.parametrize(
    "content",
    [sized(1, b"") * 2**17, entry(2, "", "") * 2**15, bytes([15 << 3 | 3]) * 2**18],
    ids=["parts", "entries", "groups"],
)
def test_large_bodies_cost_time_and_memory_by_their_size(content: bytes) -> None:
    tracemalloc.start()
    started = time.process_time()
    try:
        with suppress(ProtobufError):
            read(CONFIG_MAP, content)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < 5


@settings(max_examples=tries(120, 500))
@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_an_error(data: bytes) -> None:
    for type_ in (POD, CONFIG_MAP, SCHEMA):
        with suppress(ProtobufError):
            read(type_, data)
    with suppress(ProtobufError):
        open_envelope(b"k8s\x00" + data)


_NESTED = st.recursive(
    st.binary(max_size=12),
    lambda inner: st.lists(st.tuples(st.integers(1, 45), inner), max_size=6).map(
        lambda parts: b"".join(sized(at, content) for at, content in parts)
    ),
    max_leaves=30,
)


@settings(max_examples=tries(120, 500))
@given(_NESTED)
def test_messages_of_messages_decode_or_are_refused(content: bytes) -> None:
    for type_ in (POD, SCHEMA, kind("apps", "v1", "Deployment"), kind("", "v1", "PersistentVolume")):
        try:
            value = read(type_, content)
        except ProtobufError:
            continue
        decode(type_, value)  # whatever was read fits its type


# -- the table of numbers ---------------------------------------------------------------------------------------------


def test_every_field_of_every_kind_has_a_number() -> None:
    """Every number also belongs to an existing field."""
    seen: set[tuple[str, str]] = set()

    def names(type_: Type, definition: str) -> set[str]:
        found: set[str] = set()
        for field in protobuf_fields(definition):
            found |= names(type_, field.name) if field.in_place else {field.name}
        return found

    def walk(type_: Type) -> None:
        if type_.item is not None:
            walk(type_.item)
        if type_.shape is not Shape.STRUCT or (type_.name, "") in seen:
            return
        seen.add((type_.name, ""))
        assert names(type_, type_.name) | {"apiVersion", "kind"} == set(type_.fields) | {"apiVersion", "kind"}, (
            type_.name
        )
        for field in type_.fields.values():
            walk(field.type)

    for group, version, name in [
        ("", "v1", "Pod"),
        ("apps", "v1", "StatefulSet"),
        ("batch", "v1", "CronJob"),
        ("", "v1", "Node"),
        ("", "v1", "PersistentVolume"),
        ("resource.k8s.io", "v1", "ResourceClaim"),
        ("", "v1", "Service"),
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        ("autoscaling", "v2", "HorizontalPodAutoscaler"),
        ("apiregistration.k8s.io", "v1", "APIService"),
        ("networking.k8s.io", "v1", "Ingress"),
    ]:
        walk(kind(group, version, name))
    assert len(seen) > 200
    assert not has_protobuf_form("io.k8s.apimachinery.pkg.apis.meta.v1.Table")
