"""Objects as JSON, YAML and KYAML documents.

KYAML is YAML in flow style with quoted strings, and keys that are quoted only if they are ambiguous.
"""

from __future__ import annotations

import re
from typing import Any

from setpoint.cli.printing.interface import (
    Printable,
    PrintProblem,
    WatchEvent,
    as_document,
    list_items,
)
from setpoint.meta.gojson import number
from setpoint.meta.objects import Obj

_STEP = "  "
_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\r": "\\r",
    "\v": "\\v",
    "\x00": "\\0",
    "\x1b": "\\e",
    "\x85": "\\N",
    "\xa0": "\\_",
    "\u2028": "\\L",
    "\u2029": "\\P",
    '"': '\\"',
    "\\": "\\\\",
    "\t": "\t",
}
_WORDS = frozenset(
    ("", "~", "null", "true", "false", "t", "f", "y", "n", "yes", "no", "on", "off", ".inf", "-.inf", "+.inf", ".nan")
)
_NUMBER = re.compile(
    r"[+-]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|inf(inity)?|nan"
    r"|0[xX][0-9a-fA-F.]+[pP][+-]?[0-9]+)",
    re.IGNORECASE,
)
_BASE_60 = re.compile(r"[+-]?[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ][0-9:.]+(Z|[+-][0-9:]+)?)?")


def write(value: Any) -> str:
    """Return a document with its leading line of dashes."""
    out: list[str] = ["---\n"]
    _node(value, 0, out)
    out.append("\n")
    return "".join(out)


def _node(value: Any, depth: int, out: list[str]) -> None:
    if isinstance(value, dict):
        _mapping(value, depth, out)
    elif isinstance(value, list):
        _sequence(value, depth, out)
    elif isinstance(value, str):
        out.append(_text(value, depth + 1))
    elif value is None:
        out.append("null")
    elif isinstance(value, bool):
        out.append("true" if value else "false")
    elif isinstance(value, float) or not -(2**63) <= value < 2**63:
        out.append(number(float(value)))
    else:
        out.append(str(value))


def _mapping(value: dict[str, Any], depth: int, out: list[str]) -> None:
    if not value:
        out.append("{}")
        return
    inner = _STEP * (depth + 1)
    out.append("{\n")
    for key in sorted(value):
        out.append(f"{inner}{_key(key)}: ")
        _node(value[key], depth + 1, out)
        out.append(",\n")
    out.append(_STEP * depth + "}")


def _sequence(value: list[Any], depth: int, out: list[str]) -> None:
    if not value:
        out.append("[]")
    elif all(isinstance(one, dict | list) for one in value):  # brackets are joined with their content
        out.append("[")
        for at, one in enumerate(value):
            out.append(", " if at else "")
            _node(one, depth, out)
        out.append("]")
    else:
        out.append("[\n")
        for one in value:
            out.append(_STEP * (depth + 1))
            _node(one, depth + 1, out)
            out.append(",\n")
        out.append(_STEP * depth + "]")


def _key(key: str) -> str:
    if _is_bare(key):
        return key
    return '"' + "".join({"\n": "\\n", "\t": "\\t"}.get(char) or _escaped(char) for char in key) + '"'


def _is_bare(key: str) -> bool:
    plain = key.replace("_", "")
    ambiguous = (
        (len(key) <= 5 and key.lower() in _WORDS)
        or _NUMBER.fullmatch(plain)
        or _BASE_60.fullmatch(key)
        or _DATE.fullmatch(key)
    )
    if ambiguous:
        return False
    last = len(key) - 1
    return all(
        char.isalpha() or char.isnumeric() or char == "_" or (char in "-./" and 0 < at < last)
        for at, char in enumerate(key)
    )


def _text(text: str, depth: int) -> str:
    """Return a quoted string; a multi-line string has one line for each of its lines, which YAML folds again."""
    if "\n" not in text:
        return '"' + "".join(map(_escaped, text)) + '"'
    indent = _STEP * depth
    lines = text.split("\n")
    last = lines.pop()
    out = ['"\\\n']
    for line in lines:
        out.append(_line(line, indent) + "\\n\\\n" if line else f"{indent} \\n\\\n")
    if last:
        out.append(_line(last, indent) + "\\\n")
    return "".join(out) + indent + '"'


def _line(line: str, indent: str) -> str:
    # Leading spaces of a line would be lost; without any, an additional one keeps the lines aligned.
    return indent + ("\\" if line[0].isspace() else " ") + "".join(map(_escaped, line))


def _escaped(char: str) -> str:
    escape = _ESCAPES.get(char)
    if escape is not None:
        return escape
    if char.isprintable():
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not valid UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x20 or code == 0x7F else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class JsonPrinter:
    def __init__(self, show_managed_fields: bool = False) -> None:
        self._all = show_managed_fields

    def print(self, obj: Printable) -> str:
        from setpoint.meta.gojson import compact, indented

        if isinstance(obj, WatchEvent):
            return f'{{"type":{compact(obj.type)},"object":{compact(obj.object)}}}\n'
        return indented(_prepared(obj, self._all)) + "\n"

    def flush(self) -> str:
        return ""


class YamlPrinter:
    """Prints YAML documents, separated by lines of dashes."""

    def __init__(self, show_managed_fields: bool = False) -> None:
        self._all = show_managed_fields
        self._count = 0

    def print(self, obj: Printable) -> str:
        from setpoint.meta.gojson import go_round_trip
        from setpoint.meta.yaml_write import write

        document = as_document(obj) if isinstance(obj, WatchEvent) else _prepared(obj, self._all)
        self._count += 1
        return "---\n" * (self._count > 1) + write(go_round_trip(document, unsigned=True)).decode()

    def flush(self) -> str:
        return ""


class KyamlPrinter:
    def __init__(self, show_managed_fields: bool = False) -> None:
        self._all = show_managed_fields

    def print(self, obj: Printable) -> str:

        return write(as_document(obj) if isinstance(obj, WatchEvent) else _prepared(obj, self._all))

    def flush(self) -> str:
        return ""


def _prepared(obj: Obj, show_managed_fields: bool) -> Obj:
    if not obj.get("kind") or not obj.get("apiVersion"):
        raise PrintProblem("missing apiVersion or kind; try GetObjectKind().SetGroupVersionKind() if you know the type")
    return obj if show_managed_fields else without_managed_fields(obj)


def without_managed_fields(obj: Obj) -> Obj:
    """Return the object, or the objects of a list, without managed fields."""
    items = list_items(obj)
    if items is not None:
        return {**obj, "items": list(map(without_managed_fields, items))}
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}
