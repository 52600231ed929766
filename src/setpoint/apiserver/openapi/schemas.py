"""Schemas of OpenAPI documents: of built-in kinds from their Types, of custom kinds from their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from setpoint.kinds.catalog import Resource
from setpoint.kinds.documentation_data import describe, describe_fields, schema_facts
from setpoint.kinds.tables import kinds, type_of
from setpoint.meta.schema import Field, ListType, Presence, Shape, Type

Schema = dict[str, Any]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
TIME, _MICRO_TIME, PATCH = f"{_META}Time", f"{_META}MicroTime", f"{_META}Patch"
DURATION, FIELDS = f"{_META}Duration", f"{_META}FieldsV1"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_RAW = "io.k8s.apimachinery.pkg.runtime.RawExtension"
JSON = f"{_EXTENSIONS}JSON"
VERSION_INFO = "io.k8s.apimachinery.pkg.version.Info"

_PLAIN: dict[Shape, Schema] = {
    Shape.STRING: {"type": "string"},
    Shape.BYTES: {"type": "string", "format": "byte"},
    Shape.BOOL: {"type": "boolean"},
    Shape.INT32: {"type": "integer", "format": "int32"},
    Shape.INT64: {"type": "integer", "format": "int64"},
    Shape.FLOAT: {"type": "number", "format": "double"},
}
_NAMED = {
    Shape.QUANTITY: QUANTITY,
    Shape.TIME: TIME,
    Shape.MICROTIME: _MICRO_TIME,
    Shape.DURATION: DURATION,
    Shape.INT_OR_STRING: INT_OR_STRING,
}
_EMPTY: dict[Shape, Any] = {
    Shape.STRUCT: {},
    Shape.STRING: "",
    Shape.BOOL: False,
    Shape.INT32: 0,
    Shape.INT64: 0,
    Shape.FLOAT: 0,
}

# Definitions that are not in the field tables: in OpenAPI 3, and in OpenAPI 2 where it differs.
_BASIC: dict[str, Schema] = {
    QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
    INT_OR_STRING: {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    TIME: {"type": "string", "format": "date-time"},
    _MICRO_TIME: {"type": "string", "format": "date-time"},
    DURATION: {"type": "string"},
    FIELDS: {"type": "object"},
    _RAW: {"type": "object"},
    PATCH: {"type": "object"},
    JSON: {},
    f"{_EXTENSIONS}JSONSchemaPropsOrArray": {},
    f"{_EXTENSIONS}JSONSchemaPropsOrBool": {},
    f"{_EXTENSIONS}JSONSchemaPropsOrStringArray": {},
}
_BASIC_V2: dict[str, Schema] = {
    QUANTITY: {"type": "string"},
    INT_OR_STRING: {"type": "string", "format": "int-or-string"},
}
_VERSION_FIELDS = (
    ("major", True),
    ("minor", True),
    ("emulationMajor", False),
    ("emulationMinor", False),
    ("minCompatibilityMajor", False),
    ("minCompatibilityMinor", False),
    ("gitVersion", True),
    ("gitCommit", True),
    ("gitTreeState", True),
    ("buildDate", True),
    ("goVersion", True),
    ("compiler", True),
    ("platform", True),
)
# Lists without a declared list type.
_WITHOUT_LIST_TYPE = {f"{_META}APIResource.verbs"}
_JUNCTORS = ("allOf", "oneOf", "anyOf", "not")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


class SchemaWriter:
    """Writes definitions and all those that they refer to; one writer makes one document.

    `custom` holds definitions besides the built-in ones: Types, or complete schemas.
    """

    def __init__(self, v3: bool, custom: Mapping[str, Type | Schema] | None = None, group_version: str = "") -> None:
        self.prefix = "#/components/schemas/" if v3 else "#/definitions/"
        self._v3 = v3
        self._custom = custom or {}
        self._group_version = group_version
        self._facts = schema_facts()
        self._wanted: dict[str, None] = {}

    def ref(self, definition: str) -> Schema:
        self._wanted[definition] = None
        return {"$ref": self.prefix + definition}

    def schemas(self, definitions: Iterable[str] = ()) -> dict[str, Schema]:
        """Return these definitions, those that `ref` was called for, and all those that they refer to."""
        self._wanted.update(dict.fromkeys(definitions))
        result: dict[str, Schema] = {}
        while self._wanted:
            name = self._wanted.popitem()[0]
            if name not in result:
                result[name] = self._definition(name)
        return dict(sorted(result.items()))

    # -- definitions ----------------------------------------------------------------------------------------------

    def _definition(self, name: str) -> Schema:
        custom = self._custom.get(name)
        if isinstance(custom, dict):
            self._follow(custom)
            return custom
        description = describe(name)
        result: Schema = {"description": description} if description else {}
        if custom is not None:
            return result | self._struct(custom)
        basic = _BASIC.get(name)
        if basic is not None:
            return result | (basic if self._v3 else _BASIC_V2.get(name, basic))
        if name == VERSION_INFO:
            return result | self._version_info()
        return result | self._struct(type_of(name))

    def _follow(self, schema: Any) -> None:
        if isinstance(schema, dict):
            target = schema.get("$ref")
            if isinstance(target, str):
                self._wanted[target.removeprefix(self.prefix)] = None
            for value in schema.values():
                self._follow(value)
        elif isinstance(schema, list):
            for value in schema:
                self._follow(value)

    def _struct(self, type_: Type) -> Schema:
        result: Schema = {"type": "object"}
        fields = type_.fields
        required = [field.name for field in fields.values() if field.required]
        if required:
            result["required"] = required
        if fields:
            descriptions = describe_fields(type_.name)
            result["properties"] = {
                name: self._property(type_.name, fields[name], descriptions.get(name, "")) for name in sorted(fields)
            }
        if type_.preserve_unknown:
            result["x-kubernetes-preserve-unknown-fields"] = True
        if not type_.name:
            return result
        if type_.atomic:
            result["x-kubernetes-map-type"] = "atomic"
        union = self._facts.union.get(type_.name)
        if union:
            result["x-kubernetes-unions"] = union
        served = self._kinds(type_.name)
        if served:
            result["x-kubernetes-group-version-kind"] = served
        return result

    def _kinds(self, name: str) -> list[dict[str, str]]:
        served = _kinds_by_definition().get(name, [])
        if len(served) == 1 or not self._v3:
            return served
        return [
            kind
            for kind in served
            if (not kind["group"] and kind["version"] == "v1")
            or f"{kind['group']}/{kind['version']}" == self._group_version
        ]

    def _version_info(self) -> Schema:
        descriptions = describe_fields(VERSION_INFO)
        properties: dict[str, Schema] = {}
        for name, always in sorted(_VERSION_FIELDS):
            result: Schema = {"description": descriptions[name]} if name in descriptions else {}
            properties[name] = result | {"type": "string"} | ({"default": ""} if always and self._v3 else {})
        required = [name for name, always in _VERSION_FIELDS if always]
        return {"type": "object", "required": required, "properties": properties}

    # -- fields ---------------------------------------------------------------------------------------------------

    def _property(self, owner: str, field: Field, description: str) -> Schema:
        type_ = field.type
        result: Schema = {"description": description} if description else {}
        if self._v3:
            self._default(result, owner, field)
        result |= self._value(type_, f"{owner}.{field.name}")
        if type_.shape is Shape.LIST:
            self._list(result, owner, field)
        elif type_.atomic and (type_.shape is Shape.MAP or (type_.name and not type_of(type_.name).atomic)):
            result["x-kubernetes-map-type"] = "atomic"
        marks = self._facts.mark.get(f"{owner}.{field.name}")
        if marks:
            result |= marks
        if field.merge_key:
            result["x-kubernetes-patch-merge-key"] = field.merge_key
        if field.patch_strategy:
            result["x-kubernetes-patch-strategy"] = ",".join(sorted(field.patch_strategy, key=_strategy_order))
        if self._v3 and "$ref" in result and len(result) > 1:
            # In OpenAPI 3.0 a reference may have no siblings.
            result["allOf"] = [{"$ref": result.pop("$ref")}]
        return result

    def _default(self, result: Schema, owner: str, field: Field) -> None:
        known = self._facts.default.get(f"{owner}.{field.name}", field.default)
        if known is None and field.presence is Presence.ALWAYS and not field.type.nullable:
            known = _EMPTY.get(field.type.shape)
        if known is not None:
            result["default"] = known

    def _list(self, result: Schema, owner: str, field: Field) -> None:
        type_ = field.type
        if type_.list_type is ListType.ATOMIC:
            if f"{owner}.{field.name}" in _WITHOUT_LIST_TYPE or (field.name == "items" and owner.endswith("List")):
                return
        elif type_.list_keys:
            result["x-kubernetes-list-map-keys"] = list(type_.list_keys)
        result["x-kubernetes-list-type"] = type_.list_type.value

    def _value(self, type_: Type, at: str) -> Schema:
        shape = type_.shape
        if shape is Shape.STRING:
            values = self._facts.enum.get(type_.go)
            return {"type": "string", "enum": values} if values else _PLAIN[shape]
        plain = _PLAIN.get(shape)
        if plain is not None:
            return plain
        if shape is Shape.STRUCT:
            return self.ref(type_.name) if type_.name else self._struct(type_)
        if shape is Shape.LIST:
            return {"type": "array", "items": self._value(_item(type_), at)}
        if shape is Shape.MAP:
            return {"type": "object", "additionalProperties": self._value(_item(type_), at)}
        if shape is Shape.ANY:
            return self.ref(type_.name or _any(at))
        return self.ref(_NAMED[shape])


def _item(type_: Type) -> Type:
    assert type_.item is not None
    return type_.item


def _any(at: str) -> str:
    """Return the definition of a field that takes any JSON."""
    if at.endswith(".ManagedFieldsEntry.fieldsV1"):
        return FIELDS
    return JSON if at.startswith(f"{_EXTENSIONS}JSONSchemaProps.") else _RAW


def _strategy_order(strategy: str) -> int:
    return ("merge", "replace", "retainKeys").index(strategy)


@lru_cache(maxsize=1)
def _kinds_by_definition() -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for key, definition in kinds().items():
        api_version, _, kind = key.rpartition("/")
        group, _, version = api_version.rpartition("/")
        found.setdefault(definition, []).append({"group": group, "kind": kind, "version": version})
    for served in found.values():
        served.sort(key=lambda kind: (kind["group"], kind["version"], kind["kind"]))
    return found


def custom_definition_name(group: str, version: str, kind: str) -> str:
    """Return `com.example.stable.v1.CronTab` for stable.example.com/v1 CronTab."""
    return ".".join([*reversed(group.split(".")), version, kind])


def custom_definition(resource: Resource, schema: Schema | None, v3: bool) -> Schema:
    """Return the definition of a custom kind: its own schema with the fields that every object has."""
    if schema is None or (not v3 and schema.get("x-kubernetes-preserve-unknown-fields")):
        # Old clients treat a list of properties as complete.
        result: Schema = {"type": "object"}
    else:
        result = _custom_v3(schema, "#/components/schemas/") if v3 else _custom_v2(schema)
        result["properties"] = {**result.get("properties", {}), **_object_fields("ObjectMeta", v3)}
    return result | {"x-kubernetes-group-version-kind": [_gvk(resource, resource.kind)]}


def custom_list_definition(resource: Resource, v3: bool) -> Schema:
    prefix = "#/components/schemas/" if v3 else "#/definitions/"
    item = custom_definition_name(resource.group, resource.version, resource.kind)
    description = describe_fields("List").get("items", "")
    items: Schema = {"description": description, "type": "array", "items": {"$ref": prefix + item}}
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
    descriptions = describe_fields("*")
    metadata: Schema = {"description": descriptions.get("metadata", "")}
    if v3:
        metadata["allOf"] = [{"$ref": f"#/components/schemas/{_META}{meta}"}]
    else:
        metadata["$ref"] = f"#/definitions/{_META}{meta}"
    return {
        "apiVersion": {"description": descriptions.get("apiVersion", ""), "type": "string"},
        "kind": {"description": descriptions.get("kind", ""), "type": "string"},
        "metadata": metadata,
    }


def _custom_v3(schema: Schema, prefix: str) -> Schema:
    result = _map_parts(schema, lambda part: _custom_v3(part, prefix))
    if result.get("x-kubernetes-int-or-string"):
        _unfold(result)
    if result.get("x-kubernetes-embedded-resource"):
        result["properties"] = {**result.get("properties", {}), **_object_fields("ObjectMeta", v3=True)}
        required = result.get("required", [])
        result["required"] = [*required, *(name for name in ("kind", "apiVersion") if name not in required)]
    return result


def _unfold(result: Schema) -> None:
    """Declare both types in the standard way too, for clients that do not know the extension."""
    if "anyOf" not in result:
        result["anyOf"] = _INT_OR_STRING
    elif result["anyOf"] != _INT_OR_STRING:
        result["allOf"] = [*result.get("allOf", []), {"anyOf": _INT_OR_STRING}]


def _custom_v2(schema: Schema) -> Schema:
    """Return the schema without what OpenAPI 2, or its clients, do not support."""
    result = _map_parts(schema, _custom_v2)
    for key in (*_JUNCTORS, "default"):
        result.pop(key, None)
    if result.pop("nullable", False):
        for key in ("type", "items", "properties"):
            result.pop(key, None)
    if result.get("x-kubernetes-preserve-unknown-fields"):
        result.pop("items", None)
        result.pop("properties", None)
        if result.get("type") == "object":
            del result["type"]
    if result.get("type") == "array" and "items" not in result:
        del result["type"]
    nullable = {name for name, part in schema.get("properties", {}).items() if part.get("nullable")}
    if nullable and "required" in result:
        result["required"] = [name for name in result["required"] if name not in nullable]
        if not result["required"]:
            del result["required"]
    if result.get("x-kubernetes-embedded-resource") and "properties" in result:
        result["properties"] |= _object_fields("ObjectMeta", v3=False)
    return result


def _map_parts(schema: Schema, change: Any) -> Schema:
    """Return a copy with its parts changed."""
    result = dict(schema)
    if "properties" in result:
        result["properties"] = {name: change(part) for name, part in sorted(result["properties"].items())}
    for key in ("items", "additionalProperties"):
        if isinstance(result.get(key), dict):
            result[key] = change(result[key])
    return result
