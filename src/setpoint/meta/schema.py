"""The schema of a kind: the one description that decoding, patching, applying and documentation share."""

from __future__ import annotations

from enum import Enum
from typing import Any


class Shape(Enum):
    STRING = "string"
    BYTES = "bytes"  # base64 text
    BOOL = "bool"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT = "float"
    QUANTITY = "quantity"
    TIME = "time"  # RFC 3339, seconds
    MICROTIME = "microtime"  # RFC 3339, microseconds
    DURATION = "duration"
    INT_OR_STRING = "int-or-string"
    STRUCT = "struct"  # named fields
    MAP = "map"  # any string key, one element type
    LIST = "list"
    ANY = "any"  # any JSON, stored as given (raw extensions, FieldsV1, preserved unknown fields)


class Presence(Enum):
    """How a field with an empty value is written, which clients and apply ownership can see."""

    OMIT = "omit"  # an empty value is omitted: false, 0, "", [], {} and null all mean absent
    KEEP = "keep"  # a given value stays, including 0 and {}; only null means absent
    ALWAYS = "always"  # always written: an absent value as the empty value of its type


class ListType(Enum):
    ATOMIC = "atomic"  # owned and replaced as a whole
    SET = "set"  # unique scalars
    MAP = "map"  # structs, identified by `list_keys`


# Type and Field are not dataclasses, because those would take a part of the time of short commands.


class Type:
    __slots__ = (
        "atomic",
        "compiled",
        "default",
        "fields",
        "go",
        "item",
        "list_keys",
        "list_type",
        "name",
        "nullable",
        "preserve_unknown",
        "shape",
    )

    def __init__(
        self,
        shape: Shape,
        name: str = "",
        go: str = "",
        fields: dict[str, Field] | None = None,
        item: Type | None = None,
        list_type: ListType = ListType.ATOMIC,
        list_keys: tuple[str, ...] = (),
        atomic: bool = False,
        preserve_unknown: bool = False,
        nullable: bool = False,
        default: Any = None,
    ) -> None:
        self.shape = shape
        self.name = name
        """Definition name of a STRUCT, e.g. `io.k8s.api.core.v1.PodSpec`; empty when anonymous."""
        self.go = go
        """The type as the reference names it in decoding errors: `int32`, `map[string]string`, `v1.PodSpec`."""
        self.fields = {} if fields is None else fields
        """Fields of a STRUCT, in the order in which they are written."""
        self.item = item
        """Type of the elements of a LIST or MAP."""
        self.list_type = list_type
        self.list_keys = list_keys
        self.atomic = atomic
        """Whether apply owns and replaces a STRUCT or MAP as a whole."""
        self.preserve_unknown = preserve_unknown
        """Whether unknown fields of this STRUCT are preserved (custom resources)."""
        self.nullable = nullable
        """Whether an explicit null is preserved (custom resources)."""
        self.default = default
        """Value that replaces null in an element of a LIST or MAP of a custom resource."""
        self.compiled: dict[str, Any] = {}
        """Functions compiled from this Type, by the name of the compiler."""


class Field:
    __slots__ = ("default", "embedded", "merge_key", "name", "patch_strategy", "presence", "required", "type")

    def __init__(
        self,
        name: str,
        type: Type,
        presence: Presence = Presence.OMIT,
        required: bool = False,
        patch_strategy: frozenset[str] = frozenset(),
        merge_key: str = "",
        default: Any = None,
        embedded: str = "",
    ) -> None:
        self.name = name
        self.type = type
        self.presence = presence
        self.required = required
        self.patch_strategy = patch_strategy
        """Strategy for strategic merge patches: `merge`, `replace`, `retainKeys`."""
        self.merge_key = merge_key
        self.default = default
        """Default from the schema itself (list-map keys such as a port's `TCP`, custom resources)."""
        self.embedded = embedded
        """Embedded Go struct of the field, as decoding errors name it: `VolumeSource`."""


_OWNERSHIP = "managedFields"
"""Field whose field sets have no schema, but are always rebuilt by the code that tracks field ownership."""


def is_closed(type_: Type) -> bool:
    """Return whether decoding a value of this type shares no container with the input."""
    seen: set[int] = set()

    def closed(type_: Type) -> bool:
        if id(type_) in seen:
            return True
        seen.add(id(type_))
        if type_.shape is Shape.ANY or type_.preserve_unknown or (type_.shape is Shape.STRUCT and not type_.go):
            return False
        if type_.item is not None and not closed(type_.item):
            return False
        return all(name == _OWNERSHIP or closed(field.type) for name, field in type_.fields.items())

    return closed(type_)


def has_free_parts(type_: Type) -> bool:
    """Return whether a custom type has parts without a schema, in which numbers stay as they were read."""
    known: bool | None = type_.compiled.get("free")
    if known is None:
        known = type_.compiled["free"] = _free(type_)
    return known


def _free(type_: Type) -> bool:
    if type_.go:
        return False
    if type_.shape is Shape.ANY or type_.preserve_unknown or (type_.shape is Shape.MAP and type_.item is None):
        return True
    parts = [field.type for field in type_.fields.values()] + ([type_.item] if type_.item is not None else [])
    return any(map(_free, parts))
