"""The schema of a kind: the one description that decoding, patching, applying and documentation share.

A `Type` is a node of a (possibly recursive) graph; a `Field` is a named edge of a STRUCT. Built-in kinds get their
graph from the field tables in `kinds`, custom kinds from their CustomResourceDefinition. Types are built once and are
immutable afterwards, so everything compiled from one (decoder, differ, merger) is cached for as long as the Type lives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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

    OMIT = "omit"  # an empty value is left out: false, 0, "", [], {} and null are all "not there"
    KEEP = "keep"  # what was given stays, 0 and {} too; only null is "not there"
    ALWAYS = "always"  # always written: if nothing was given, the empty value of its type


class ListType(Enum):
    ATOMIC = "atomic"  # owned and replaced whole
    SET = "set"  # scalars, each once
    MAP = "map"  # structs, identified by `list_keys`


@dataclass(slots=True, eq=False)
class Type:
    shape: Shape
    name: str = ""
    """Definition name of a STRUCT, e.g. `io.k8s.api.core.v1.PodSpec`; empty when anonymous."""
    go: str = ""
    """The type as the reference names it in decoding errors: `int32`, `map[string]string`, `v1.PodSpec`."""
    fields: dict[str, Field] = field(default_factory=dict)
    """Fields of a STRUCT, in the order in which they are written."""
    item: Type | None = None
    """Type of the elements of a LIST or MAP."""
    list_type: ListType = ListType.ATOMIC
    list_keys: tuple[str, ...] = ()
    atomic: bool = False
    """Whether apply owns and replaces a STRUCT or MAP as a whole."""
    preserve_unknown: bool = False
    """Whether unknown fields of this STRUCT are preserved (custom resources)."""
    nullable: bool = False
    """Whether an explicit null is preserved (custom resources)."""
    default: Any = None
    """Value that replaces null in an element of a LIST or MAP of a custom resource."""
    compiled: dict[str, Any] = field(default_factory=dict)
    """Functions compiled from this Type, by the name of the compiler."""


@dataclass(slots=True, eq=False)
class Field:
    name: str
    type: Type
    presence: Presence = Presence.OMIT
    required: bool = False
    patch_strategy: frozenset[str] = frozenset()
    """Strategy for strategic merge patches: `merge`, `replace`, `retainKeys`."""
    merge_key: str = ""
    default: Any = None
    """Default from the schema itself (list-map keys such as a port's `TCP`, custom resources)."""
    embedded: str = ""
    """Embedded Go struct of the field, as decoding errors name it: `VolumeSource`."""
