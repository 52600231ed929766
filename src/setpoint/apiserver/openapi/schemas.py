"""From Types to the schemas of a document: definitions by name, as OpenAPI 2 or OpenAPI 3 writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from setpoint.kinds.descriptions import describe, describe_fields
from setpoint.kinds.schema_facts import schema_facts
from setpoint.kinds.tables import kinds, type_of
from setpoint.meta.schema import Field, ListType, Presence, Shape, Type

Schema = dict[str, Any]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
TIME, MICRO_TIME, PATCH = f"{_META}Time", f"{_META}MicroTime", f"{_META}Patch"
DURATION, FIELDS = f"{_META}Duration", f"{_META}FieldsV1"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
RAW = "io.k8s.apimachinery.pkg.runtime.RawExtension"
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
    Shape.MICROTIME: MICRO_TIME,
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

# Definitions that are no structs of the field tables: in OpenAPI 3, and in OpenAPI 2 where that differs.
_BASIC: dict[str, Schema] = {
    QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
    INT_OR_STRING: {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    TIME: {"type": "string", "format": "date-time"},
    MICRO_TIME: {"type": "string", "format": "date-time"},
    DURATION: {"type": "string"},
    FIELDS: {"type": "object"},
    RAW: {"type": "object"},
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
# Lists whose owners never said how they merge.
_UNMARKED = {f"{_META}APIResource.verbs"}


class SchemaWriter:
    """Writes definitions, and follows what they refer to. One writer makes one document.

    `custom` holds definitions beside the built-in ones: Types, or schemas that are complete as they are.
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
        """These definitions, those that `ref` was asked for, and all they lead to."""
        self._wanted.update(dict.fromkeys(definitions))
        made: dict[str, Schema] = {}
        while self._wanted:
            name = self._wanted.popitem()[0]
            if name not in made:
                made[name] = self._definition(name)
        return dict(sorted(made.items()))

    # -- definitions ----------------------------------------------------------------------------------------------

    def _definition(self, name: str) -> Schema:
        custom = self._custom.get(name)
        if isinstance(custom, dict):
            self._follow(custom)
            return custom
        said = describe(name)
        made: Schema = {"description": said} if said else {}
        if custom is not None:
            return made | self._struct(custom)
        basic = _BASIC.get(name)
        if basic is not None:
            return made | (basic if self._v3 else _BASIC_V2.get(name, basic))
        if name == VERSION_INFO:
            return made | self._version_info()
        return made | self._struct(type_of(name))

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
        made: Schema = {"type": "object"}
        fields = type_.fields
        required = [field.name for field in fields.values() if field.required]
        if required:
            made["required"] = required
        if fields:
            said = describe_fields(type_.name)
            made["properties"] = {
                name: self._property(type_.name, fields[name], said.get(name, "")) for name in sorted(fields)
            }
        if type_.preserve_unknown:
            made["x-kubernetes-preserve-unknown-fields"] = True
        if not type_.name:
            return made
        if type_.atomic:
            made["x-kubernetes-map-type"] = "atomic"
        union = self._facts.union.get(type_.name)
        if union:
            made["x-kubernetes-unions"] = union
        served = self._kinds(type_.name)
        if served:
            made["x-kubernetes-group-version-kind"] = served
        return made

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
        said = describe_fields(VERSION_INFO)
        properties: dict[str, Schema] = {}
        for name, always in sorted(_VERSION_FIELDS):
            made: Schema = {"description": said[name]} if name in said else {}
            properties[name] = made | {"type": "string"} | ({"default": ""} if always and self._v3 else {})
        required = [name for name, always in _VERSION_FIELDS if always]
        return {"type": "object", "required": required, "properties": properties}

    # -- fields ---------------------------------------------------------------------------------------------------

    def _property(self, owner: str, field: Field, said: str) -> Schema:
        type_ = field.type
        made: Schema = {"description": said} if said else {}
        if self._v3:
            self._default(made, owner, field)
        made |= self._value(type_, f"{owner}.{field.name}")
        if type_.shape is Shape.LIST:
            self._list(made, owner, field)
        elif type_.atomic and (type_.shape is Shape.MAP or (type_.name and not type_of(type_.name).atomic)):
            made["x-kubernetes-map-type"] = "atomic"
        marks = self._facts.mark.get(f"{owner}.{field.name}")
        if marks:
            made |= marks
        if field.merge_key:
            made["x-kubernetes-patch-merge-key"] = field.merge_key
        if field.patch_strategy:
            made["x-kubernetes-patch-strategy"] = ",".join(sorted(field.patch_strategy, key=_strategy_order))
        if self._v3 and "$ref" in made and len(made) > 1:
            # In OpenAPI 3.0 nothing may stand beside a reference.
            made["allOf"] = [{"$ref": made.pop("$ref")}]
        return made

    def _default(self, made: Schema, owner: str, field: Field) -> None:
        known = self._facts.default.get(f"{owner}.{field.name}", field.default)
        if known is None and field.presence is Presence.ALWAYS and not field.type.nullable:
            known = _EMPTY.get(field.type.shape)
        if known is not None:
            made["default"] = known

    def _list(self, made: Schema, owner: str, field: Field) -> None:
        type_ = field.type
        if type_.list_type is ListType.ATOMIC:
            if f"{owner}.{field.name}" in _UNMARKED or (field.name == "items" and owner.endswith("List")):
                return
        elif type_.list_keys:
            made["x-kubernetes-list-map-keys"] = list(type_.list_keys)
        made["x-kubernetes-list-type"] = type_.list_type.value

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
    """Which of the definitions that take any JSON a field has."""
    if at.endswith(".ManagedFieldsEntry.fieldsV1"):
        return FIELDS
    return JSON if at.startswith(f"{_EXTENSIONS}JSONSchemaProps.") else RAW


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
