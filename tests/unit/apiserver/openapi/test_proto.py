"""The protobuf form has the content of the JSON form, in the fields of gnostic's messages."""

from __future__ import annotations

from typing import Any

from setpoint.apiserver.openapi import proto
from setpoint.apiserver.openapi.service import OpenApi


def fields(message: bytes) -> list[tuple[int, Any]]:
    """Yield (number, value) of each field; nested messages are bytes."""
    found: list[tuple[int, Any]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 2:
            size = varint()
            found.append((number, message[at : at + size]))
            at += size
        elif kind == 1:
            found.append((number, message[at : at + 8]))
            at += 8
        else:
            assert kind == 0
            found.append((number, varint()))
    return found


def one(message: bytes, *path: int) -> Any:
    value: Any = message
    for number in path:
        value = next(given for found, given in fields(value) if found == number)
    return value


def named(message: bytes, number: int, name: str) -> Any:
    return next(one(pair, 2) for found, pair in fields(message) if found == number and one(pair, 1) == name.encode())


def test_definitions_of_openapi_2() -> None:
    document = OpenApi()._write("v2", "protobuf")
    assert one(document, 1) == b"2.0"
    definitions = one(document, 9)
    container = named(definitions, 1, "io.k8s.api.core.v1.Container")
    assert one(container, 22, 1) == b"object"
    assert one(container, 19) == b"name"
    ports = named(one(container, 25), 1, "ports")
    assert one(ports, 22, 1) == b"array"
    assert one(ports, 23, 1, 1) == b"#/definitions/io.k8s.api.core.v1.ContainerPort"
    assert one(named(ports, 31, "x-kubernetes-list-map-keys"), 2) == b'["containerPort","protocol"]'
    labels = named(one(named(definitions, 1, "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"), 25), 1, "labels")
    assert one(labels, 21, 1, 22, 1) == b"string"


def test_operations_of_openapi_2() -> None:
    path = named(one(OpenApi()._write("v2", "protobuf"), 8), 2, "/api/v1/namespaces")
    create = one(path, 4)
    assert one(create, 5) == b"createCoreV1Namespace"
    assert one(named(one(create, 9), 1, "201"), 1, 2, 1, 1).endswith(b".Namespace")
    assert b"fieldValidation" in create


def test_openapi_3() -> None:
    document = OpenApi()._write("apis/apps/v1", "protobuf")
    assert one(document, 1) == b"3.0.0"
    spec = one(named(one(document, 5, 1), 1, "io.k8s.api.apps.v1.DeploymentSpec"), 1)
    strategy = one(named(one(spec, 31), 1, "strategy"), 1)
    assert one(strategy, 26, 2, 1) == b"#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"
    assert one(named(strategy, 36, "x-kubernetes-patch-strategy"), 2) == b'"retainKeys"'
    item = named(one(document, 4), 1, "/apis/apps/v1/namespaces/{namespace}/deployments")
    create = one(item, 6)
    assert one(create, 5) == b"createAppsV1NamespacedDeployment"
    body = one(create, 7, 1)
    assert one(body, 3) == 1
    assert one(named(one(body, 2), 1, "*/*"), 1, 2, 1).endswith(b".Deployment")


def test_numbers_and_defaults() -> None:
    schema = {"type": "integer", "minimum": -1.5, "maxLength": 300, "default": 3, "nullable": True}
    document = {"components": {"schemas": {"A": schema, "B": {"default": {}}, "C": {"default": False}}}}
    schemas = one(proto.document_v3(document), 5, 1)
    a = one(named(schemas, 1, "A"), 1)
    assert one(a, 13) == b"\x00\x00\x00\x00\x00\x00\xf8\xbf"
    assert one(a, 16 - 1) == 300
    assert one(a, 1) == 1
    assert one(a, 33, 1) == b"\x00\x00\x00\x00\x00\x00\x08\x40"
    assert one(named(schemas, 1, "B"), 1) == b""
    assert one(named(schemas, 1, "C"), 1, 33, 2) == 0
