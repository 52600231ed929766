"""Explain the fields of a kind from the server's OpenAPI documents, in kubectl's two layouts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.meta.goformat import plain
from setpoint.meta.objects import Obj

_NO_BREAK = "\u00a0"


def wrap(text: str, limit: int) -> str:
    """Wrap a text. Words longer than a line are not split. Spaces at a break are removed, others are preserved."""
    out: list[str] = []
    at = 0
    word, blanks = "", ""
    for char in text:
        if char == "\n":
            if word:
                out += [blanks, word]
            elif at + len(blanks) <= limit:
                out.append(blanks)
            out.append(char)
            word, blanks, at = "", "", 0
        elif char.isspace() and char != _NO_BREAK:
            if not blanks or word:
                at += len(blanks) + len(word)
                out += [blanks, word]
                word, blanks = "", ""
            blanks += char
        else:
            word += char
            if at + len(word) + len(blanks) > limit and len(word) < limit:
                out.append("\n")
                at, blanks = 0, ""
    if word:
        out += [blanks, word]
    elif at + len(blanks) <= limit:
        out.append(blanks)
    return "".join(out)


def indent(text: str, by: int) -> str:
    blanks = " " * by
    return blanks + text.replace("\n", "\n" + blanks)


_GVK = "x-kubernetes-group-version-kind"
_METHODS = ("get", "post", "put", "patch", "delete")
_FEW = 4


class Explainer:
    """Explains the kinds of one document. `most` is the maximum depth of listed fields; 0 is unlimited."""

    def __init__(self, document: Obj, recursive: bool = False, most: int = 0) -> None:
        self._document, self._recursive, self._most = document, recursive, most

    def explain(self, group: str, version: str, plural: str, path: list[str]) -> Iterator[str]:
        """Yield the text in parts, because a missing field is detected only after the header. Raise Failed."""
        kind = self._kind(group, version, plural)
        if kind.get("group"):
            yield f"GROUP:      {kind['group']}\n"
        yield f"KIND:       {kind.get('kind', '')}\nVERSION:    {kind.get('version', '')}\n\n"
        schemas = (self._document.get("components") or {}).get("schemas") or {}
        for name in sorted(schemas):
            if kind in (schemas[name].get(_GVK) or ()):
                text = self._output(schemas[name], path, frozenset())
                if not text:
                    raise Failed(f'field "{path[-1]}" does not exist')
                yield text + "\n"
                return
        raise Failed(f"GVK {plain(kind)} not found in OpenAPI schema")

    def _kind(self, group: str, version: str, plural: str) -> Obj:
        start = f"/apis/{group}/{version}" if group else f"/api/{version}"
        found: Obj = {}
        for end in (plural, f"{plural}/{{name}}"):
            for place in (f"{start}/{end}", f"{start}/namespaces/{{namespace}}/{end}"):
                item = (self._document.get("paths") or {}).get(place) or {}
                found = next((item[one][_GVK] for one in _METHODS if (item.get(one) or {}).get(_GVK)), found)
        if not found:
            shown = f"{group}/{version}, Resource={plural}"
            raise Failed(f"GVR ({shown}) not found in OpenAPI schema")
        return found

    def _output(self, schema: Obj, path: list[str], history: frozenset[str]) -> str:
        """Return the text for a field; empty if it does not exist."""
        reference = schema.get("$ref") or ""
        resolved = self._resolved(reference) or schema
        if not path:
            return self._described(resolved)
        if reference and reference in history:
            return ""
        onward = history | {reference}
        inside = (resolved.get("properties") or {}).get(path[0])
        if inside:
            head = ""
            if len(path) == 1:
                head = f"FIELD: {path[0]} <{self._type(inside)}>\n{_long_enum(inside)}\n\n"
            return head + self._output(inside, path[1:], frozenset())
        if resolved.get("items"):
            return self._output(resolved["items"], path, onward)
        if isinstance(resolved.get("additionalProperties"), dict) and resolved["additionalProperties"]:
            return self._output(resolved["additionalProperties"], path, onward)
        for one in resolved.get("allOf") or ():
            if text := self._output(one, path, onward):
                return text
        return ""

    def _described(self, schema: Obj) -> str:
        text = f"DESCRIPTION:\n{indent(wrap(self._description(schema) or '<empty>', 76), 4)}\n"
        if outside := schema.get("externalDocs"):
            text += "\n" + _external(outside, 0)
        fields = self._fields(schema, 1, frozenset())
        return text + (f"FIELDS:\n{fields}" if fields else "")

    def _description(self, schema: Obj) -> str:
        found = self._resolved(schema.get("$ref") or "") or schema
        text = f"{found['description']}\n" if found.get("description") else ""
        return text + "".join(map(self._description, _parts(found)))

    def _fields(self, schema: Obj, level: int, history: frozenset[str]) -> str:
        reference = schema.get("$ref") or ""
        if reference and reference in history:
            return ""
        onward = history | {reference}
        resolved = self._resolved(reference) or schema
        text: list[str] = []
        properties = resolved.get("properties") or {}
        for name in sorted(properties):
            text.append(self._field(name, properties[name], name in (resolved.get("required") or ()), level))
            if self._recursive and (self._most == 0 or level < self._most):
                text.append(self._fields(properties[name], level + 1, onward))
        text += [self._fields(one, level, onward) for one in _parts(resolved)]
        return "".join(text)

    def _field(self, name: str, schema: Obj, required: bool, level: int) -> str:
        by = level * 2
        line = indent(name, by) + f"\t<{self._type(schema)}>" + (" -required-" if required else "")
        line += _short_enum(schema, by) + "\n"
        if self._recursive:
            return line
        line += indent(wrap(schema.get("description") or "<no description>", 78 - by), by + 2) + "\n"
        if outside := schema.get("externalDocs"):
            line += "\n" + _external(outside, by + 2)
        return line + "\n"

    def _type(self, schema: Obj) -> str:
        """Return a readable type name: `string`, `[]Container`, `map[string]Quantity`."""
        if schema.get("items"):
            return f"[]{self._type(schema['items'])}"
        if isinstance(schema.get("additionalProperties"), dict) and schema["additionalProperties"]:
            return f"map[string]{self._type(schema['additionalProperties'])}"
        several: list[Obj] = schema.get("allOf") or []
        if len(several) == 1 and not schema.get("properties"):
            return self._type(several[0])
        if reference := schema.get("$ref"):
            behind = self._resolved(reference)
            if behind is None or behind.get("type") in (None, "", "object"):
                return reference.rpartition("/")[2].rpartition(".")[2] or "Object"
            return str(behind["type"])
        kind = schema.get("type")
        return "Object" if kind in (None, "", "object") else str(kind)

    def _resolved(self, reference: str) -> Obj | None:
        if not reference.startswith("#"):
            return None
        found: Any = self._document
        for part in reference[1:].split("/"):
            if part:
                found = found.get(part)
                if not isinstance(found, dict):
                    return None
        return found if found else None


def _parts(schema: Obj) -> list[Obj]:
    """Return the schemas of `allOf`, `anyOf` and `oneOf`."""
    found: list[Obj] = list(schema.get("allOf") or ())
    if schema.get("items"):
        found.append(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict) and schema["additionalProperties"]:
        found.append(schema["additionalProperties"])
    return found


def _long_enum(schema: Obj) -> str:
    values = schema.get("enum") or ()
    return "ENUM:" + "".join(f"\n    {_value(one)}" for one in values) if values else ""


def _short_enum(schema: Obj, by: int) -> str:
    values = schema.get("enum") or ()
    if not values:
        return ""
    return "\n" + " " * by + "enum: " + ", ".join(map(_value, values[:_FEW])) + (", ...." if len(values) > _FEW else "")


def _value(value: Any) -> str:
    return '""' if value == "" else plain(value)


def _external(documents: Obj, by: int) -> str:
    text = indent("EXTERNAL DOCS:", by) + "\n"
    if documents.get("description"):
        text += indent(wrap(documents["description"], 78 - by if by else 76), by + 2 if by else 4) + "\n"
    if documents.get("url"):
        text += indent(f"URL: {documents['url']}", by + 2 if by else 4) + "\n"
    return text


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
            schema = {"reference": self._behind, "array": lambda one: one.get("items") or {}, "map": _values}[shape](
                schema
            )
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
