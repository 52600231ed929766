"""Values that mutation policies build: `Object{spec: Object.spec{...}}` and `JSONPatch{op: "add", ...}`."""

from __future__ import annotations

from typing import Any

from setpoint.meta.cel import types as t
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.types import StructType
from setpoint.meta.cel.values import CelError, Message

OBJECT = t.struct("Object")
JSON_PATCH_TYPE = t.struct("JSONPatch")
_OPERATION = {"op": t.STRING, "path": t.STRING, "from": t.STRING, "value": t.DYN}


def _operation(fields: dict[str, Any]) -> Message:
    for name in ("op", "path", "from"):
        if name in fields and type(fields[name]) is not str:
            raise CelError(f"unexpected type {type(fields[name]).__name__} for JSONPatchType '{name}' field")
    return Message(JSON_PATCH_TYPE, fields)


_JSON_PATCH = StructType("JSONPatch", _OPERATION, construct=_operation)


def resolve_patch_type(name: str) -> StructType | None:
    """Return the types by name: `Object` and everything below it can have any field."""
    if name == "JSONPatch":
        return _JSON_PATCH
    if name == "Object" or name.startswith("Object."):
        return StructType(name, {}, is_open=True)
    return None


def _escape_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


JSON_PATCH = Library(
    "kubernetes.jsonpatch",
    (("string_jsonpatch_escapeKey_string", "jsonpatch.escapeKey(string) -> string", _escape_key),),
)
