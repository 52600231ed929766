"""The older layout of `explain`, from an OpenAPI v2 document."""

from __future__ import annotations

import re
from typing import Any

from setpoint.cli.failures import Failed

Obj = dict[str, Any]
_GVK = "x-kubernetes-group-version-kind"
_WIDTH = 80
_BULLET = re.compile(r"(\d+\.?|-|\*)\s")
_PREFIX = "#/definitions/"


class ExplainerV2:
    """Explains kinds of an OpenAPI v2 document. `most` is the maximum depth of listed fields; 0 is unlimited."""

    def __init__(self, document: Obj, recursive: bool = False, most: int = 0) -> None:
        self._definitions: dict[str, Obj] = document.get("definitions") or {}
        self._recursive, self._most = recursive, most

    def explain(self, group: str, version: str, kind: str, path: list[str]) -> str:
        """Return the text for a field. Raise Failed."""
        wanted = {"group": group, "version": version, "kind": kind}
        schema = next((one for one in self._definitions.values() if wanted in (one.get(_GVK) or ())), None)
        if schema is None:
            raise Failed(f'couldn\'t find resource for "{group}/{version}, Kind={kind}"')
        api_version = f"{group}/{version}" if group else version
        lines = [f"KIND:     {kind}", f"VERSION:  {api_version}", ""]
        return "\n".join(lines + self._model(self._found(schema, path), path[-1] if path else "")) + "\n"

    def _found(self, schema: Obj, path: list[str]) -> Obj:
        while path:
            shape = _shape(schema)
            if shape == "reference":
                schema = self._behind(schema)
            elif shape == "array":
                schema = schema.get("items") or {}
            elif shape == "map":
                schema = _values(schema)
            elif shape == "object":
                if path[0] not in schema["properties"]:
                    raise Failed(f'field "{path[0]}" does not exist')
                schema, path = schema["properties"][path[0]], path[1:]
            else:
                return schema
        return schema

    def _model(self, schema: Obj, name: str) -> list[str]:
        descriptions: list[str] = []
        type_ = ""
        while (shape := _shape(schema)) in ("reference", "array", "map"):
            descriptions.append(schema.get("description") or "")
            if shape != "reference":
                type_ = type_ or self._type(schema)
            schema = {
                "reference": self._behind, "array": lambda one: one.get("items") or {}, "map": _values
            }[shape](schema)  # fmt: skip
        descriptions.append(schema.get("description") or "")
        type_ = type_ or self._type(schema)
        lines: list[str] = []
        if shape == "object" and name:
            lines += [f"RESOURCE: {name} <{type_}>", ""]
        elif shape == "primitive":
            lines += [f"FIELD:    {name} <{type_}>", ""]
        lines += ["DESCRIPTION:", *_described(descriptions)]
        if shape == "object":
            lines += ["", "FIELDS:"]
            lines += self._names(schema, 3, 1, ()) if self._recursive else self._fields(schema)
        return lines

    def _fields(self, schema: Obj) -> list[str]:
        lines: list[str] = []
        for name in sorted(schema["properties"]):
            field = schema["properties"][name]
            required = " -required-" if name in (schema.get("required") or ()) else ""
            lines.append(f"   {name}\t<{self._type(field)}>{required}")
            lines += _indented(wrapped(field.get("description") or "", _WIDTH - 5), 5)
            lines.append("")
        return lines

    def _names(self, schema: Obj, by: int, depth: int, seen: tuple[str, ...]) -> list[str]:
        shape = _shape(schema)
        if shape == "reference":
            name = schema["$ref"]
            return [] if name in seen else self._names(self._behind(schema), by, depth, (*seen, name))
        if shape in ("array", "map"):
            return self._names(schema.get("items") or {} if shape == "array" else _values(schema), by, depth, seen)
        lines: list[str] = []
        for name in sorted(schema.get("properties") or {}):
            field = schema["properties"][name]
            lines.append(f"{' ' * by}{name}\t<{self._type(field)}>")
            if not self._most or depth < self._most:
                lines += self._names(field, by + 3, depth + 1, seen)
        return lines

    def _type(self, schema: Obj) -> str:
        shape = _shape(schema)
        if shape == "reference":
            return self._type(self._behind(schema))
        if shape == "array":
            return f"[]{self._type(schema.get('items') or {})}"
        if shape == "map":
            return f"map[string]{self._type(_values(schema))}"
        return {"object": "Object", "primitive": str(schema.get("type"))}.get(shape, "")

    def _behind(self, schema: Obj) -> Obj:
        return self._definitions.get(schema["$ref"].removeprefix(_PREFIX)) or {}


def _shape(schema: Obj) -> str:
    if schema.get("$ref"):
        return "reference"
    kind = schema.get("type")
    if kind == "array":
        return "array"
    if kind in (None, "object"):
        if schema.get("properties") is not None:
            return "object"
        return "map" if kind else "anything"
    return "primitive"


def _values(schema: Obj) -> Obj:
    found = schema.get("additionalProperties")
    return found if isinstance(found, dict) else {}


def _described(descriptions: list[str]) -> list[str]:
    lines: list[str] = []
    for index, one in enumerate(descriptions):
        if one:
            lines += [""] * (index != 0) + _indented(wrapped(one, _WIDTH - 5), 5)
    return lines or ["     <empty>"]


def _indented(lines: list[str], by: int) -> list[str]:
    return [" " * by + line if line else "" for line in lines]


def wrapped(text: str, width: int) -> list[str]:
    """Wrap a text; indented lines are unchanged, and bullets and texts after a colon start a new line."""
    out: list[str] = []
    words: list[str] = []
    last = ""

    def flush() -> None:
        nonlocal last
        if words:
            last = ""
            out.append(" ".join(words))
            words.clear()

    for line in text.split("\n"):
        if line.startswith("    "):
            flush()
            out.append(line)
            continue
        if out and not line.strip():
            flush()
            out.append("")
            continue
        if last.endswith(":") or not line.strip() or _BULLET.match(line.strip()):
            flush()
        for word in line.split():
            if words and len(" ".join([*words, word])) > width:
                flush()
            last = word
            words.append(word)
    flush()
    return out
