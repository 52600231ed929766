"""Paths into objects that users write: `.spec.replicas`, `.spec.map['key']`."""

from __future__ import annotations

import re

from setpoint.meta.field import Errors, invalid
from setpoint.meta.objects import ObjView

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]']+'?[^.\[\]]*", re.DOTALL)


class PathError(ValueError):
    """The path does not fit the schema; the message says why."""


def validate_simple_path(path: str, at: str, errs: Errors) -> bool:
    if not path.startswith("."):
        errs.append(invalid(at, path, "must be a simple json path starting with ."))
        return False
    return True


def field_path(path: str, schema: ObjView) -> str:
    """Return the path as messages show it: `spec.map[key]`. Raises PathError."""
    shown = ""
    for key in follow(path, schema)[0]:
        properties = schema.get("properties")
        if properties:
            shown = f"{shown}.{key}" if shown else key
            schema = properties[key]
        else:
            shown = f"{shown}[{key}]"
            additional = schema.get("additionalProperties")
            schema = additional if isinstance(additional, dict) else {}
    return shown


def follow(path: str, schema: ObjView, brackets: bool = True) -> tuple[list[str], ObjView]:
    """Return the keys of the path and the schema it leads to. Raises PathError."""
    tokens = _TOKEN.findall(path)
    keys: list[str] = []
    position = 0

    def step(key: str) -> None:
        nonlocal schema
        properties, additional = schema.get("properties"), schema.get("additionalProperties")
        if properties:
            if key not in properties:
                raise PathError("does not refer to a valid field")
            schema = properties[key]
        elif additional is not None:
            schema = additional if isinstance(additional, dict) else {}
        else:
            raise PathError("does not refer to a valid field")
        keys.append(key)

    def following() -> str:
        nonlocal position
        position += 1
        if position >= len(tokens):
            raise PathError("unexpected end of JSON path")
        return str(tokens[position])

    while position < len(tokens):
        token = tokens[position]
        if token == ".":
            step(following())
        elif token == "[":
            if not brackets:
                raise PathError("array notation is not allowed")
            text = following()
            if len(text) < 2 or text[0] != "'" or text[-1] != "'":
                raise PathError(f"expected single quoted string but got {text}")
            step(re.sub(r"\\(.)", r"\1", text[1:-1]))
            if (close := following()) != "]":
                raise PathError(f"expected ] but got {close}")
        else:
            raise PathError(f"expected [ or . but got: {token}")
        position += 1
    return keys, schema
