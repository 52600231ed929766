"""Objects survive a round trip through protobuf, for every kind and every shape of a field."""

from __future__ import annotations

from base64 import b64encode
from random import Random
from typing import Any

import pytest

from setpoint.kinds.protobuf_numbers import has_protobuf_form, protobuf_fields
from setpoint.kinds.tables import kinds, type_of
from setpoint.meta.decode import decode
from setpoint.meta.protobuf import open_envelope, read_message
from setpoint.meta.protobuf.writing import varint, write_envelope, write_message, write_watch_event
from setpoint.meta.schema import Shape, Type

DEFINITIONS = sorted({name for name in kinds().values() if has_protobuf_form(name)})
_TEXTS = ("a", "", "ä€", "x" * 200)
_VALUES: dict[Shape, tuple[Any, ...]] = {
    Shape.STRING: _TEXTS,
    Shape.BYTES: tuple(b64encode(each).decode() for each in (b"\0", b"\xff" * 300)),
    Shape.BOOL: (True, False),
    Shape.INT32: (0, 1, -1, 2**31 - 1, -(2**31)),
    Shape.INT64: (0, 127, 128, -1, 2**63 - 1, -(2**63)),
    Shape.FLOAT: (0.5, -3.25),
    Shape.QUANTITY: ("0", "100m", "1Gi"),
    Shape.TIME: ("2026-01-02T03:04:05Z", "1969-12-31T23:59:59Z"),
    Shape.MICROTIME: ("2026-01-02T03:04:05.000006Z",),
    Shape.DURATION: ("1h0m0s", "15s"),
    Shape.INT_OR_STRING: (0, 80, -1, "http", "25%"),
    Shape.ANY: ({"a": [1, {"b": None}]}, "text", [1]),
}


def an_object(type_: Type, random: Random, depth: int = 0) -> Any:
    shape = type_.shape
    if shape is Shape.STRUCT:
        # One field in a few below the top: schemas contain schemas.
        share = 1.0 if depth < 3 else 0.3 if depth < 6 else 0.0
        fields = [field for field in type_.fields.values() if random.random() < share]
        # The type of an object is in the envelope, and that of an item in its list.
        typed = {field.name for field in protobuf_fields(type_.name)}
        fields = [field for field in fields if field.name not in ("kind", "apiVersion") or field.name in typed]
        return {field.name: an_object(field.type, random, depth + 1) for field in fields}
    if shape is Shape.LIST:
        assert type_.item is not None
        return [an_object(type_.item, random, depth + 1) for _ in range(random.randint(1, 2))]
    if shape is Shape.MAP:
        assert type_.item is not None
        return {key: an_object(type_.item, random, depth + 1) for key in ("", "b", "a")[: random.randint(1, 3)]}
    if shape is Shape.ANY and type_.item is not None:
        schema = {"type": "string"}
        others = {"Bool": (True, False), "Array": ([schema],), "StringArray": (["a", "b"],)}
        return random.choice((schema, *others[type_.name.partition("PropsOr")[2]]))
    return random.choice(_VALUES[shape])


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_write_and_read_round_trip(definition: str) -> None:
    type_, random = type_of(definition), Random(definition)
    for _ in range(3):
        obj = decode(type_, an_object(type_, random))
        data = write_message(type_, obj, protobuf_fields)
        assert decode(type_, read_message(type_, data, 0, len(data), protobuf_fields)) == obj


def test_the_bytes_of_a_message() -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], "hostNetwork": True}}
    data = write_message(type_of("io.k8s.api.core.v1.Pod"), pod, protobuf_fields)
    assert data == b"\x0a\x03\x0a\x01p" + b"\x12\x07" + b"\x12\x03\x0a\x01c" + b"\x58\x01"


def test_absent_and_empty_differ_where_they_do_in_go() -> None:
    type_ = type_of("io.k8s.api.apps.v1.DeploymentSpec")
    assert write_message(type_, {}, protobuf_fields) == b""
    assert write_message(type_, {"replicas": None}, protobuf_fields) == b""
    assert write_message(type_, {"replicas": 0}, protobuf_fields) == b"\x08\x00"
    volume = type_of("io.k8s.api.core.v1.Volume")
    assert write_message(volume, {"name": "v", "emptyDir": {}}, protobuf_fields) == b"\x0a\x01v\x12\x02\x12\x00"


def test_an_envelope_and_a_watch_event() -> None:
    body = write_envelope("apps/v1", "Deployment", b"content")
    opened = open_envelope(body)
    assert (opened.api_version, opened.kind) == ("apps/v1", "Deployment")
    assert body[opened.start : opened.end] == b"content"
    event = write_watch_event("ADDED", body)
    assert int.from_bytes(event[:4]) == len(event) - 4
    inner = b"\x0a" + varint(len(body)) + body
    assert event[4:] == b"\x0a\x05ADDED" + b"\x12" + varint(len(inner)) + inner


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (-1, b"\xff" * 9 + b"\x01"), (2**63 - 1, b"\xff" * 8 + b"\x7f")],
)
def test_varints(value: int, data: bytes) -> None:
    assert varint(value) == data
