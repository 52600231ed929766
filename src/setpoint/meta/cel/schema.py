"""Schemas as types: which fields an object has, how its JSON is read, and how large it can be.

A structural schema is compiled once. Where its JSON already is what CEL computes with, values are used as they are;
where something below has to be read differently (times, bytes, numbers, sets), objects and lists are wrapped, and
what is inside is converted when it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from setpoint.meta.cel import types as t
from setpoint.meta.cel.cost import Path, Sizer
from setpoint.meta.cel.json_values import (
    Reading,
    TypedObject,
    read_list,
    read_map,
    read_number,
    reader_of_format,
)
from setpoint.meta.cel.lexer import escape_property
from setpoint.meta.cel.sizes import SizeRange
from setpoint.meta.cel.types import StructType, Type

MAX_REQUEST_BYTES = 3 * 1024 * 1024
_MAX_LENGTH = MAX_REQUEST_BYTES - 2
_STRING = {"type": "string"}
_FORMATS: dict[str, tuple[Type, int, int]] = {
    # format: (type, shortest as JSON, longest as JSON)
    "duration": (t.DURATION, 3, 32),
    "date": (t.TIMESTAMP, 12, 12),
    "date-time": (t.TIMESTAMP, 21, 32),
}


@dataclass(slots=True, eq=False)
class SchemaType:
    """A compiled schema. `type` is the CEL type; `value` converts JSON to it."""

    type: Type
    max_size: int = 0
    """Maximum size in characters, elements or entries."""
    min_bytes: int = 0
    """Minimum number of bytes as JSON."""
    read: Reading | None = None
    """Function that converts JSON to a value; None if JSON is used directly."""
    fields: dict[str, SchemaType] = field(default_factory=dict)
    element: SchemaType | None = None
    structs: list[StructType] = field(default_factory=list)
    """Object types in the schema, which an environment must declare."""

    def value(self, document: Any) -> Any:
        """Return the JSON as an expression sees it. The JSON is not copied and must not change meanwhile."""
        if document is None or self.read is None:
            return document
        return self.read(document)

    def size(self, path: Path) -> SizeRange | None:
        """Return the size range of the value at a path, which is relative to this type."""
        node: SchemaType | None = self
        for name in path:
            if node is None:
                return None
            if name in ("@items", "@values"):
                node = node.element
            elif name == "@keys":
                node = _KEY if node.element is not None and node.type.kind is t.Kind.MAP else None
            else:
                node = node.fields.get(name)
        return None if node is None else SizeRange(0, node.max_size)


_KEY = SchemaType(t.STRING, 0, 2)


def sizer(root: SchemaType) -> Sizer:
    """Return the sizes for a cost estimate from the schema.

    The variable at the start of a path is ignored: the rules of a schema have `self` and `oldSelf`, and both have its
    type."""

    def size(path: Path, _: Type) -> SizeRange | None:
        return root.size(path[1:]) if path else None

    return size


def schema_type(schema: Mapping[str, Any], *, name: str = "selfType", root: bool = False) -> SchemaType | None:
    """Return the type of a (structural) schema, or None where expressions cannot access such a value.

    `root` marks the schema of a whole resource, which has apiVersion, kind, metadata.name and metadata.generateName
    regardless of the schema. `name` becomes the name of its type.
    """
    return _compile(schema, name, root)


def with_type_and_metadata(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a resource with apiVersion, kind and metadata."""
    properties = schema.get("properties") or {}
    metadata = properties.get("metadata") or {}
    inner = metadata.get("properties") or {}
    if (
        _has_type(properties.get("kind"), "string")
        and _has_type(properties.get("apiVersion"), "string")
        and _has_type(metadata, "object")
        and _has_type(inner.get("name"), "string")
        and _has_type(inner.get("generateName"), "string")
    ):
        return schema
    known = {"name": _STRING, "generateName": _STRING}
    more = {"kind": _STRING, "apiVersion": _STRING, "metadata": {"type": "object", "properties": known}}
    return {**schema, "properties": {**properties, **more}}


def _has_type(schema: Any, name: str) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == name


def _compile(schema: Mapping[str, Any], name: str, resource: bool) -> SchemaType | None:
    if schema.get("x-kubernetes-int-or-string"):
        longest = schema.get("maxLength")
        return SchemaType(t.DYN, _MAX_LENGTH if longest is None else max(longest, 0) * 4, 1)
    if resource:
        schema = with_type_and_metadata(schema)
    kind = schema.get("type")
    if kind == "object":
        return _object(schema, name)
    if kind == "array":
        return _array(schema, name)
    if kind == "string":
        return _string(schema)
    if kind == "boolean":
        return SchemaType(t.BOOL, 0, 4)
    if kind == "integer":
        return SchemaType(t.INT, 0, 1)
    if kind == "number":
        return SchemaType(t.DOUBLE, 0, 1, read_number)
    return None


def _string(schema: Mapping[str, Any]) -> SchemaType:
    name = schema.get("format") or ""
    longest = schema.get("maxLength")
    if name == "byte":
        return SchemaType(t.BYTES, _MAX_LENGTH if longest is None else max(longest, 0), 2, reader_of_format("byte"))
    if name in _FORMATS:
        kind, min_bytes, max_size = _FORMATS[name]
        return SchemaType(kind, max_size, min_bytes, reader_of_format(name))
    if longest is not None:
        max_size = max(longest, 0) * 4
    elif schema.get("enum"):
        max_size = max((len(value.encode()) for value in schema["enum"] if isinstance(value, str)), default=0)
    else:
        max_size = _MAX_LENGTH
    return SchemaType(t.STRING, max_size, 2)


def _array(schema: Mapping[str, Any], name: str) -> SchemaType | None:
    items = schema.get("items")
    if not isinstance(items, Mapping):
        return None
    element = _compile(items, f"{name}.@idx", bool(items.get("x-kubernetes-embedded-resource")))
    if element is None:
        return None
    limit = schema.get("maxItems")
    max_size = _MAX_LENGTH // (element.min_bytes + 1) if limit is None else max(limit, 0)
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    read = read_list(schema.get("x-kubernetes-list-type") or "", keys, element.read)
    return SchemaType(t.list_of(element.type), max_size, 2, read, element=element, structs=element.structs)


def _object(schema: Mapping[str, Any], name: str) -> SchemaType | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        element = _compile(additional, f"{name}.@elem", bool(additional.get("x-kubernetes-embedded-resource")))
        if element is None:
            return None
        limit = schema.get("maxProperties")
        max_size = _MAX_LENGTH // (element.min_bytes + 6) if limit is None else max(limit, 0)
        kind = t.map_of(t.STRING, element.type)
        return SchemaType(kind, max_size, 2, read_map(element.read), element=element, structs=element.structs)
    required = frozenset(schema.get("required") or ())
    min_bytes = 2
    fields: dict[str, SchemaType] = {}
    access: dict[str, tuple[str, Reading | None]] = {}
    structs: list[StructType] = []
    for key, prop in (schema.get("properties") or {}).items():
        identifier = escape_property(key)
        compiled = _compile(prop, f"{name}.{identifier}", bool(prop.get("x-kubernetes-embedded-resource")))
        if compiled is None:
            continue
        if identifier is not None:
            fields[identifier] = compiled
            access[identifier] = (key, compiled.read)
            structs.extend(compiled.structs)
        if key in required and prop.get("default") is None:
            min_bytes += len(key.encode()) + compiled.min_bytes + 4
    plain = all(key == identifier and read is None for identifier, (key, read) in access.items())
    read = None if plain else _object_reader(access)
    struct = StructType(name, {key: value.type for key, value in fields.items()}, access=access)
    return SchemaType(t.struct(name), 0, min_bytes, read, fields=fields, structs=[struct, *structs])


def _object_reader(access: dict[str, tuple[str, Reading | None]]) -> Callable[[Any], Any]:
    by_key = {key: (identifier, read) for identifier, (key, read) in access.items()}
    return lambda document: TypedObject(document, access, by_key) if isinstance(document, dict) else document


def all_structs(*schemas: SchemaType | None) -> Iterator[StructType]:
    """Yield the object types of several schemas."""
    for schema in schemas:
        if schema is not None:
            yield from schema.structs
