"""Definitions of custom resources, from the schema that their CustomResourceDefinition gives."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.catalog import Resource
from setpoint.kinds.descriptions import describe_fields

Schema = dict[str, Any]
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_JUNCTORS = ("allOf", "oneOf", "anyOf", "not")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


def definition_name(group: str, version: str, kind: str) -> str:
    """`com.example.stable.v1.CronTab` for stable.example.com/v1 CronTab."""
    return ".".join([*reversed(group.split(".")), version, kind])


def definition(resource: Resource, schema: Schema | None, v3: bool) -> Schema:
    """The definition of a kind: its own schema with the fields that every object has."""
    if schema is None or (not v3 and schema.get("x-kubernetes-preserve-unknown-fields")):
        # Old clients take a list of properties for a complete one.
        made: Schema = {"type": "object"}
    else:
        made = _v3(schema, "#/components/schemas/") if v3 else _v2(schema)
        made["properties"] = {**made.get("properties", {}), **_object_fields("ObjectMeta", v3)}
    return made | {"x-kubernetes-group-version-kind": [_gvk(resource, resource.kind)]}


def list_definition(resource: Resource, v3: bool) -> Schema:
    prefix = "#/components/schemas/" if v3 else "#/definitions/"
    item = definition_name(resource.group, resource.version, resource.kind)
    said = describe_fields("List").get("items", "")
    items: Schema = {"description": said, "type": "array", "items": {"$ref": prefix + item}}
    return {
        "description": f"A list of {resource.kind} objects.",
        "type": "object",
        "required": ["items"],
        "properties": {**_object_fields("ListMeta", v3), "items": items},
        "x-kubernetes-group-version-kind": [_gvk(resource, resource.list_kind)],
    }


def _gvk(resource: Resource, kind: str) -> dict[str, str]:
    return {"group": resource.group, "kind": kind, "version": resource.version}


def _object_fields(meta: str, v3: bool) -> dict[str, Schema]:
    said = describe_fields("*")
    metadata: Schema = {"description": said.get("metadata", "")}
    if v3:
        metadata["allOf"] = [{"$ref": f"#/components/schemas/{_META}{meta}"}]
    else:
        metadata["$ref"] = f"#/definitions/{_META}{meta}"
    return {
        "apiVersion": {"description": said.get("apiVersion", ""), "type": "string"},
        "kind": {"description": said.get("kind", ""), "type": "string"},
        "metadata": metadata,
    }


def _v3(schema: Schema, prefix: str) -> Schema:
    made = _map(schema, lambda part: _v3(part, prefix))
    if made.get("x-kubernetes-int-or-string"):
        _unfold(made)
    if made.get("x-kubernetes-embedded-resource"):
        made["properties"] = {**made.get("properties", {}), **_object_fields("ObjectMeta", v3=True)}
        required = made.get("required", [])
        made["required"] = [*required, *(name for name in ("kind", "apiVersion") if name not in required)]
    return made


def _unfold(made: Schema) -> None:
    """Both types are said in the standard way too, for those who do not know the extension."""
    if "anyOf" not in made:
        made["anyOf"] = _INT_OR_STRING
    elif made["anyOf"] != _INT_OR_STRING:
        made["allOf"] = [*made.get("allOf", []), {"anyOf": _INT_OR_STRING}]


def _v2(schema: Schema) -> Schema:
    """Without what OpenAPI 2 has no word for, or clients of it stumble over."""
    made = _map(schema, _v2)
    for key in (*_JUNCTORS, "default"):
        made.pop(key, None)
    if made.pop("nullable", False):
        for key in ("type", "items", "properties"):
            made.pop(key, None)
    if made.get("x-kubernetes-preserve-unknown-fields"):
        made.pop("items", None)
        made.pop("properties", None)
        if made.get("type") == "object":
            del made["type"]
    if made.get("type") == "array" and "items" not in made:
        del made["type"]
    nullable = {name for name, part in schema.get("properties", {}).items() if part.get("nullable")}
    if nullable and "required" in made:
        made["required"] = [name for name in made["required"] if name not in nullable]
        if not made["required"]:
            del made["required"]
    if made.get("x-kubernetes-embedded-resource") and "properties" in made:
        made["properties"] |= _object_fields("ObjectMeta", v3=False)
    return made


def _map(schema: Schema, change: Any) -> Schema:
    """A copy with its parts changed."""
    made = dict(schema)
    if "properties" in made:
        made["properties"] = {name: change(part) for name, part in sorted(made["properties"].items())}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = change(made[key])
    return made
