"""The shapes of the built-in kinds, from the field tables in `data/fields.jsonl` (which a tool in `tools/` makes).

The file is read on first use and a definition is parsed when a Type needs it. The same question always gets the same
Type object, so what is compiled from it is compiled once.
"""

from __future__ import annotations

from functools import lru_cache
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

_Types = dict[tuple[Any, ...], Type]

_types: _Types = {}
"""Types by everything that distinguishes them, so that equal fields share one.

A Type is added when it is complete with everything that it refers to, because two threads may look it up at once."""


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
    known = _types.get((definition, False, False, False))
    if known is not None:
        return known
    made: _Types = {}
    _struct(made, definition, atomic=False, nullable=False)
    for key, type_ in made.items():
        _types.setdefault(key, type_)
    return _types[(definition, False, False, False)]


def _struct(made: _Types, definition: str, atomic: bool, nullable: bool, granular: bool = False) -> Type:
    """Build a struct; `made` holds incomplete types.

    A field may override its type: `atomic` and `nullable` add to the definition, `granular` removes its atomicity."""
    key = (definition, atomic, nullable, granular)
    known = _types.get(key) or made.get(key)
    if known is not None:
        return known
    if atomic or nullable or granular:
        plain = _struct(made, definition, False, False)
        whole = not granular and (atomic or plain.atomic)
        variant = Type(Shape.STRUCT, plain.name, plain.go, plain.fields, atomic=whole, nullable=nullable)
        return made.setdefault(key, variant)
    _, rows, *flags = decode_json(_data()[1][definition])
    struct = made[key] = Type(Shape.STRUCT, definition, _go_name(definition), atomic=bool(flags))
    for name, text, presence, *rest in rows:
        struct.fields[name] = _field(made, name, text, presence, rest[0] if rest else {})
    return struct


def _go_name(definition: str) -> str:
    """Return Go's name `v1.PodSpec`: the last package and the name."""
    return ".".join(definition.rsplit(".", 2)[1:])


def _field(made: _Types, name: str, text: str, presence: str, more: dict[str, Any]) -> Field:
    strategy = more.get("strategy", "")
    return Field(
        name,
        _type(made, text, more.get("go", ""), more),
        _PRESENCE[presence],
        more.get("required", False),
        frozenset(strategy.split(",")) if strategy else frozenset(),
        more.get("merge_key", ""),
        more.get("default"),
        more.get("embedded", ""),
    )


def _type(made: _Types, text: str, go: str, more: dict[str, Any]) -> Type:
    """Return the Type of a field; `more` holds settings of the outermost layer."""
    atomic, nullable = more.get("atomic", False), more.get("null", False)
    list_type, keys = more.get("list", ""), tuple(more.get("keys", ()))
    if text[0] not in "[{" and text not in _SCALARS and text not in _SCHEMA_UNIONS:
        return _struct(made, text, atomic, nullable, more.get("granular", False))
    key = (text, go, atomic, nullable, list_type, keys)
    known = _types.get(key) or made.get(key)
    if known is None:
        known = _make(made, text, go, atomic, nullable)
        known.list_type, known.list_keys = _LIST_TYPES[list_type], keys
        made[key] = known
    return known


def _make(made: _Types, text: str, go: str, atomic: bool, nullable: bool) -> Type:
    if text.startswith("[]"):
        item = _type(made, text[2:], go[2:].lstrip("*") if go.startswith("[]") else "", {})
        return Type(Shape.LIST, go=go or f"[]{item.go}", item=item, nullable=nullable)
    if text.startswith("{}"):
        item = _type(made, text[2:], go.partition("]")[2].lstrip("*") if go.startswith("map[") else "", {})
        return Type(Shape.MAP, go=go or f"map[string]{item.go}", item=item, atomic=atomic, nullable=nullable)
    if text in _SCHEMA_UNIONS:
        return Type(Shape.ANY, text, _go_name(text), item=_struct(made, _SCHEMA, False, False), nullable=nullable)
    shape, plain = _SCALARS[text]
    return Type(shape, go=go or plain, nullable=nullable)
