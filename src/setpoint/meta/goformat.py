"""Text as Go prints it: the reference's messages quote and print values by Go's rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", '"': '\\"', "\\": "\\\\",
}  # fmt: skip


def quote(text: str) -> str:
    """Return Go's %q for a string."""
    if text.isprintable():
        if '"' in text or "\\" in text:
            text = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{text}"'
    out = ['"']
    for char in text:
        escaped = _ESCAPES.get(char)
        if escaped:
            out.append(escaped)
        elif char.isprintable():
            out.append(char)
        elif ord(char) < 0x80:
            out.append(f"\\x{ord(char):02x}")
        elif ord(char) < 0x10000:
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(f"\\U{ord(char):08x}")
    out.append('"')
    return "".join(out)


def quote_all(texts: Iterable[str]) -> str:
    """Return Go's %q for a list of strings."""
    return "[" + " ".join(map(quote, texts)) + "]"


def aggregate(messages: Iterable[str]) -> str:
    """Return several errors as one message, without duplicates; more than one are put in brackets."""
    texts = list(dict.fromkeys(messages))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def plain(value: Any) -> str:
    """Return Go's %v for a decoded JSON value."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{plain(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(plain, value)) + "]"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:  # decoded as float64 there
        return _float(float(value))
    return str(value)


def _float(value: float) -> str:
    """Return Go's %v: the shortest digits, with an exponent below 1e-4 and from 1e6 on."""
    if value == 0 or 1e-4 <= abs(value) < 1e6 or value != value or abs(value) == float("inf"):
        return repr(value).removesuffix(".0")
    from decimal import Decimal  # costs start-up time, and such numbers are rare

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    scale = int(exponent) + len(digits) - 1
    text = "".join(map(str, digits))
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if scale < 0 else '+'}{abs(scale):02d}"


def type_name(value: Any) -> str:
    """Return Go's %T for a decoded JSON value."""
    if value is None:
        return "<nil>"
    if type(value) is int and not -(2**63) <= value < 2**63:
        return "float64"
    return _TYPES.get(type(value), type(value).__name__)


_TYPES: dict[type, str] = {
    dict: "map[string]interface {}", list: "[]interface {}", str: "string", bool: "bool", int: "int64",
    float: "float64",
}  # fmt: skip
_KINDS: dict[type, str] = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def kind_of(value: Any) -> str:
    """Return the JSON kind as Go's decoder names it in its errors."""
    return _KINDS.get(type(value), "null")


def label_selector(selector: Mapping[str, Any] | None) -> str:
    """Return Go's %v for a LabelSelector."""
    if selector is None:
        return "nil"
    labels = selector.get("matchLabels") or {}
    pairs = "".join(f"{key}: {labels[key]}," for key in sorted(labels))
    needs = "".join(
        f"LabelSelectorRequirement{{Key:{each['key']},Operator:{each['operator']},"
        f"Values:[{' '.join(each.get('values') or ())}],}},"
        for each in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{pairs}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{needs}}},}}"
    )
