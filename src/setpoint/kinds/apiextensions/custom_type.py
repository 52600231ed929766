"""The Type of a custom kind, from the schema of its definition: what decoding, patching and applying go by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.tables import type_of
from setpoint.meta.schema import Field, ListType, Presence, Shape, Type

Schema = Mapping[str, Any]
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_SCALARS = {"string": Shape.STRING, "boolean": Shape.BOOL, "integer": Shape.INT64, "number": Shape.FLOAT}
_LIST_TYPES = {"set": ListType.SET, "map": ListType.MAP}


def custom_type(schema: Schema | None, preserve: bool = False, defaults: bool = True) -> Type:
    """Return the Type of a whole object.

    `preserve` says that the definition preserves unknown fields everywhere. `defaults` says whether decoding applies
    defaults; it does not after a conversion, because the other version has its own."""
    if schema is None or preserve:
        # Nothing is pruned, and there are no defaults to apply.
        return Type(Shape.STRUCT, fields=_object_fields({}, defaults, root=True), preserve_unknown=True)
    return Type(
        Shape.STRUCT,
        fields=_object_fields(schema.get("properties") or {}, defaults, root=True),
        preserve_unknown=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
    )


def _field(name: str, schema: Schema, defaults: bool) -> Field:
    default = schema.get("default") if defaults else None
    return Field(name, _type(schema, defaults), Presence.KEEP, default=default)


def _object_fields(properties: Mapping[str, Schema], defaults: bool, root: bool = False) -> dict[str, Field]:
    """Return the fields including those of every object; a schema cannot redefine metadata, which the root always
    has."""
    fields = {name: Field(name, Type(Shape.STRING, go="string"), Presence.KEEP) for name in ("apiVersion", "kind")}
    fields["metadata"] = Field("metadata", type_of(_META), Presence.KEEP, default={} if root else None)
    return fields | {name: _field(name, part, defaults) for name, part in properties.items() if name not in fields}


def _type(schema: Schema, defaults: bool, preserve: bool = False) -> Type:
    """Return the Type of a schema. `preserve` says that an enclosing list preserves unknown fields of its items."""
    kind, nullable = schema.get("type", ""), bool(schema.get("nullable"))
    preserve = preserve or bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    properties, others, items = schema.get("properties"), schema.get("additionalProperties"), schema.get("items")
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    default = schema.get("default") if defaults else None
    if schema.get("x-kubernetes-int-or-string"):
        return Type(Shape.INT_OR_STRING, nullable=nullable, default=default)
    if kind == "array" or (not kind and isinstance(items, Mapping)):
        return Type(
            Shape.LIST,
            item=_type(items, defaults, preserve) if isinstance(items, Mapping) else Type(Shape.ANY),
            list_type=_LIST_TYPES.get(schema.get("x-kubernetes-list-type", ""), ListType.ATOMIC),
            list_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
            nullable=nullable,
            default=default,
        )
    if schema.get("x-kubernetes-embedded-resource"):
        fields = _object_fields(properties or {}, defaults)
        return Type(
            Shape.STRUCT, fields=fields, atomic=atomic, preserve_unknown=preserve, nullable=nullable, default=default
        )
    if others and not properties:
        item = _type(others, defaults) if isinstance(others, Mapping) else None
        return Type(Shape.MAP, item=item, atomic=atomic, nullable=nullable, default=default)
    if preserve and not properties:
        return Type(Shape.ANY, atomic=atomic, nullable=nullable, default=default)
    if kind == "object" or properties:
        return Type(
            Shape.STRUCT,
            fields={name: _field(name, part, defaults) for name, part in (properties or {}).items()},
            atomic=atomic,
            preserve_unknown=preserve or bool(others),
            nullable=nullable,
            default=default,
        )
    return Type(_SCALARS.get(kind, Shape.ANY), nullable=nullable, default=default)
