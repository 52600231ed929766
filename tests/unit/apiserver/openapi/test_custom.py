"""Custom kinds in OpenAPI documents: complete in OpenAPI 3, reduced for old clients in OpenAPI 2."""

from __future__ import annotations

from typing import Any

import orjson

from setpoint.apiserver.openapi.service import OpenApi
from setpoint.kinds.catalog import SCALE, STATUS, Resource
from setpoint.meta.schema import Field, Shape, Type

_NAME = "com.example.things.v1.Widget"
_WIDGET = Resource("things.example.com", "v1", "Widget", "widgets", subresources=(STATUS, SCALE))
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size", "maybe"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "default": 3},
                "maybe": {"type": "string", "nullable": True},
                "port": {"x-kubernetes-int-or-string": True},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {}}},
                "either": {"type": "string", "oneOf": [{"pattern": "a"}, {"pattern": "b"}]},
                "inner": {"type": "object", "x-kubernetes-embedded-resource": True},
            },
        }
    },
}


def documents(schema: Any) -> tuple[Any, Any]:
    openapi = OpenApi()
    openapi.add(_WIDGET, schema)
    return orjson.loads(openapi._write("apis/things.example.com/v1", "json")), orjson.loads(
        openapi._write("v2", "json")
    )


def test_openapi_3_contains_the_schema() -> None:
    made = documents(_SCHEMA)[0]["components"]["schemas"][_NAME]
    assert made["x-kubernetes-group-version-kind"] == [
        {"group": "things.example.com", "kind": "Widget", "version": "v1"}
    ]
    assert made["properties"]["metadata"]["allOf"][0]["$ref"].endswith(".ObjectMeta")
    spec = made["properties"]["spec"]["properties"]
    assert spec["size"] == {"type": "integer", "minimum": 1, "default": 3}
    assert spec["maybe"]["nullable"] is True
    assert spec["port"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert spec["inner"]["required"] == ["kind", "apiVersion"]


def test_openapi_2_omits_what_old_clients_do_not_support() -> None:
    made = documents(_SCHEMA)[1]["definitions"][_NAME]
    assert made["properties"]["metadata"]["$ref"].endswith(".ObjectMeta")
    spec = made["properties"]["spec"]
    assert spec["required"] == ["size"]
    assert spec["properties"]["size"] == {"type": "integer", "minimum": 1}
    assert spec["properties"]["maybe"] == {}
    assert spec["properties"]["port"] == {"x-kubernetes-int-or-string": True}
    assert spec["properties"]["open"] == {"x-kubernetes-preserve-unknown-fields": True}
    assert spec["properties"]["either"] == {"type": "string"}


def test_paths_of_custom_kinds() -> None:
    v3, v2 = documents(_SCHEMA)
    root = "/apis/things.example.com/v1/namespaces/{namespace}/widgets"
    expected = {
        "/apis/things.example.com/v1/widgets",
        root,
        *(f"{root}/{{name}}{end}" for end in ("", "/status", "/scale")),
    }
    assert set(v3["paths"]) == expected
    assert {path for path in v2["paths"] if "things.example.com" in path} == expected
    patch = v2["paths"][f"{root}/{{name}}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["consumes"]
    assert patch["produces"] == ["application/json", "application/yaml"]
    scale = v3["paths"][f"{root}/{{name}}/scale"]["get"]
    assert scale["x-kubernetes-group-version-kind"]["kind"] == "Widget"
    assert "io.k8s.api.autoscaling.v1.Scale" in v3["components"]["schemas"]


def test_a_kind_without_a_schema() -> None:
    v3, v2 = documents(None)
    for made in (v3["components"]["schemas"][_NAME], v2["definitions"][_NAME]):
        assert made["type"] == "object"
        assert "properties" not in made


def test_a_type_instead_of_a_schema() -> None:
    size = Field("size", Type(Shape.INT64), required=True)
    type_ = Type(Shape.STRUCT, fields={"size": size}, preserve_unknown=True)
    made = documents(type_)[0]["components"]["schemas"][_NAME]
    assert made["properties"] == {"size": {"type": "integer", "format": "int64"}}
    assert made["required"] == ["size"]
    assert made["x-kubernetes-preserve-unknown-fields"] is True


def test_custom_kinds_in_protobuf() -> None:
    openapi = OpenApi()
    openapi.add(_WIDGET, _SCHEMA)
    assert _NAME.encode() in openapi._write("v2", "protobuf")
    assert _NAME.encode() in openapi._write("apis/things.example.com/v1", "protobuf")
