"""The shapes of the built-in kinds, from the field tables in `data/fields.jsonl` (which a tool in `tools/` makes).

The file is read on first use and a definition is parsed when a Type needs it. The same question always gets the same
Type object, so what is compiled from it is compiled once.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from setpoint.meta.json_codec import decode_json
from setpoint.meta.schema import Field, ListType, Presence, Shape, Type

_SCALARS = {
    "string": (Shape.STRING, "string"),
    "bytes": (Shape.BYTES, "[]uint8"),
    "bool": (Shape.BOOL, "bool"),
    "int32": (Shape.INT32, "int32"),
    "int64": (Shape.INT64, "int64"),
    "float": (Shape.FLOAT, "float64"),
    "quantity": (Shape.QUANTITY, "resource.Quantity"),
    "time": (Shape.TIME, "v1.Time"),
    "microtime": (Shape.MICROTIME, "v1.MicroTime"),
    "duration": (Shape.DURATION, "v1.Duration"),
    "int-or-string": (Shape.INT_OR_STRING, "intstr.IntOrString"),
    "any": (Shape.ANY, "any"),
}
_PRESENCE = {presence.value: presence for presence in Presence}
_LIST_TYPES = {"": ListType.ATOMIC, "set": ListType.SET, "map": ListType.MAP}

_SCHEMA = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
_SCHEMA_UNIONS = {f"{_SCHEMA}OrBool", f"{_SCHEMA}OrArray", f"{_SCHEMA}OrStringArray"}

_types: dict[tuple[Any, ...], Type] = {}
"""Types by everything that distinguishes them, so that equal fields share one. Entries are added with `setdefault` when
they are complete, because two threads may look one up at once."""


class _Struct(Type):
    """A STRUCT that reads its fields from the tables when they are first asked for: a server needs a fraction of the
    definitions that its kinds refer to."""

    __slots__ = ()

    def __init__(self, definition: str, atomic: bool, nullable: bool) -> None:
        super().__init__(Shape.STRUCT, definition, _go_name(definition), atomic=atomic, nullable=nullable)
        del self.fields

    def __getattr__(self, name: str) -> Any:
        if name != "fields":
            raise AttributeError(name)
        self.fields = _fields(self.name)
        return self.fields


@lru_cache(maxsize=1)
def _data() -> tuple[dict[str, str], dict[str, bytes]]:
    """Return the definition by kind, and the unparsed line of each definition."""
    kinds, *lines = Path(__file__).with_name("data").joinpath("fields.jsonl").read_bytes().splitlines()
    return decode_json(kinds), {line[2 : line.index(b'"', 2)].decode(): line for line in lines}


def definition_for(group: str, version: str, kind: str) -> str:
    """Return the definition such as `io.k8s.api.apps.v1.Deployment`. Raises KeyError if there is no such built-in
    kind."""
    return _data()[0][f"{group}/{version}/{kind}" if group else f"{version}/{kind}"]


def kinds() -> dict[str, str]:
    """Return the definition by `group/version/Kind` (`v1/Pod` in the core group), of every built-in kind there is."""
    return _data()[0]


def type_of(definition: str) -> Type:
    """Return the STRUCT of a definition; KeyError if there is none."""
    return _struct(definition, atomic=False, nullable=False)


def _struct(definition: str, atomic: bool, nullable: bool, granular: bool = False) -> Type:
    """Return a struct. A field may override its type: `atomic` and `nullable` add to the definition, `granular` removes
    its atomicity."""
    key = (definition, atomic, nullable, granular)
    known = _types.get(key)
    if known is not None:
        return known
    atomic_itself = not _data()[1][definition].endswith(b"]]")  # a flag follows the fields
    return _types.setdefault(key, _Struct(definition, not granular and (atomic or atomic_itself), nullable))


@cache
def _fields(definition: str) -> dict[str, Field]:
    """Return the fields of a definition, which all its variants share."""
    _, rows, *_ = decode_json(_data()[1][definition])
    return {name: _field(name, text, presence, rest[0] if rest else {}) for name, text, presence, *rest in rows}


def _go_name(definition: str) -> str:
    """Return Go's name `v1.PodSpec`: the last package and the name."""
    return ".".join(definition.rsplit(".", 2)[1:])


def _field(name: str, text: str, presence: str, more: dict[str, Any]) -> Field:
    strategy = more.get("strategy", "")
    return Field(
        name,
        _type(text, more.get("go", ""), more),
        _PRESENCE[presence],
        more.get("required", False),
        frozenset(strategy.split(",")) if strategy else frozenset(),
        more.get("merge_key", ""),
        more.get("default"),
        more.get("embedded", ""),
    )


def _type(text: str, go: str, more: dict[str, Any]) -> Type:
    """Return the Type of a field; `more` holds settings of the outermost layer."""
    atomic, nullable = more.get("atomic", False), more.get("null", False)
    list_type, keys = more.get("list", ""), tuple(more.get("keys", ()))
    if text[0] not in "[{" and text not in _SCALARS and text not in _SCHEMA_UNIONS:
        return _struct(text, atomic, nullable, more.get("granular", False))
    key = (text, go, atomic, nullable, list_type, keys)
    known = _types.get(key)
    if known is None:
        made = _make(text, go, atomic, nullable)
        made.list_type, made.list_keys = _LIST_TYPES[list_type], keys
        known = _types.setdefault(key, made)
    return known


def _make(text: str, go: str, atomic: bool, nullable: bool) -> Type:
    if text.startswith("[]"):
        item = _type(text[2:], go[2:].lstrip("*") if go.startswith("[]") else "", {})
        return Type(Shape.LIST, go=go or f"[]{item.go}", item=item, nullable=nullable)
    if text.startswith("{}"):
        item = _type(text[2:], go.partition("]")[2].lstrip("*") if go.startswith("map[") else "", {})
        return Type(Shape.MAP, go=go or f"map[string]{item.go}", item=item, atomic=atomic, nullable=nullable)
    if text in _SCHEMA_UNIONS:
        return Type(Shape.ANY, text, _go_name(text), item=_struct(_SCHEMA, False, False), nullable=nullable)
    shape, plain = _SCALARS[text]
    return Type(shape, go=go or plain, nullable=nullable)
