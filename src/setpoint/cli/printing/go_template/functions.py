"""The functions of templates: Go's own and the two that kubectl adds. Errors are ValueErrors with Go's words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from setpoint.cli.printing.go_template.formatting import (
    ABSENT,
    Boxed,
    Byte,
    Int,
    is_true,
    plain_value,
    sprint,
    sprintf,
    sprintln,
    text_of,
    type_name,
    unboxed,
    utf8,
)
from setpoint.meta.goformat import plain

_BAD_TYPE = "invalid type for comparison"
_INCOMPATIBLE = "incompatible types for comparison"


def equal(first: Any, *others: Any) -> bool:
    """Return whether the first value equals one of the others."""
    first = unboxed(first)
    if not others:
        raise ValueError("missing argument for comparison")
    for other in map(unboxed, others):
        sort = _sort(first)
        if sort != _sort(other):
            if first is not ABSENT and other is not ABSENT:
                raise ValueError(_INCOMPATIBLE)
        elif sort is not None:
            if first == other:
                return True
        elif first is ABSENT or other is ABSENT:
            if first is other:
                return True
        elif type(first) is not type(other):
            raise ValueError(
                f"non-comparable types {sprintf('%s', [first])}: {type_name(first)}, {type_name(other)}: {plain(other)}"
            )
        else:
            raise ValueError(f"non-comparable type {sprintf('%s', [other])}: {type_name(other)}")
    return False


def less(left: Any, right: Any) -> bool:
    left, right = unboxed(left), unboxed(right)
    sort = _sort(left)
    if sort is None or _sort(right) is None:
        raise ValueError(_BAD_TYPE)
    if sort != _sort(right):
        raise ValueError(_INCOMPATIBLE)
    if sort is bool:
        raise ValueError(_BAD_TYPE)
    return bool(left < right)


def _sort(value: Any) -> type | None:
    if isinstance(value, bool):
        return bool
    if isinstance(value, int):
        return int if -(2**63) <= value < 2**63 else float
    return next((sort for sort in (float, str) if isinstance(value, sort)), None)


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "ne": lambda left, right: not equal(left, right),
    "lt": less,
    "le": lambda left, right: less(left, right) or equal(left, right),
    "gt": lambda left, right: not (less(left, right) or equal(left, right)),
    "ge": lambda left, right: not less(left, right),
}


VALUE, ANY, TEXT = "reflect.Value", "interface {}", "string"
"""Parameter types: values as they are, interface contents, or strings only."""


class Function(NamedTuple):
    invocation: Callable[..., Any]
    fixed: tuple[str, ...]
    rest: str = ""
    """The type of variadic arguments; empty if there are none."""


def _len(value: Any) -> Int:
    if isinstance(value, Boxed) and value.value is None:
        raise ValueError("len of nil pointer")
    value = unboxed(value)
    if value is ABSENT:
        raise ValueError("reflect: call of reflect.Value.Type on zero Value")
    if isinstance(value, str):
        return Int(len(utf8(value)))
    if isinstance(value, dict | list):
        return Int(len(value))
    raise ValueError(f"len of type {type_name(value)}")


def _index(item: Any, *indexes: Any) -> Any:
    item = unboxed(item)
    if item is ABSENT:
        raise ValueError("index of untyped nil")
    for index in map(unboxed, indexes):
        if isinstance(item, Boxed) and item.value is None:
            raise ValueError("index of nil pointer")
        item = unboxed(item)
        if isinstance(item, dict):
            if index is ABSENT:
                raise ValueError("value is nil; should be of type string")
            if not isinstance(index, str):
                raise ValueError(f"value has type {type_name(index)}; should be string")
            item = Boxed(item.get(index))
        elif isinstance(item, list | str):
            content = utf8(item) if isinstance(item, str) else item
            at = _position(index, len(content))
            if at == len(content):
                raise ValueError(f"reflect: {'string' if isinstance(item, str) else 'slice'} index out of range")
            item = Byte(content[at]) if isinstance(item, str) else Boxed(content[at])
        else:
            raise ValueError(f"can't index item of type {type_name(item)}")
    return item


def _position(index: Any, most: int) -> int:
    if index is ABSENT:
        raise ValueError("cannot index slice/array with nil")
    if not isinstance(index, int) or isinstance(index, bool):
        raise ValueError(f"cannot index slice/array with type {type_name(index)}")
    if not 0 <= index <= most:
        raise ValueError(f"index out of range: {int(index)}")
    return int(index)


def _slice(item: Any, *indexes: Any) -> Any:
    item = unboxed(item)
    if item is ABSENT:
        raise ValueError("slice of untyped nil")
    if len(indexes) > 3:
        raise ValueError(f"too many slice indexes: {len(indexes)}")
    if not isinstance(item, list | str):
        raise ValueError(f"can't slice item of type {type_name(item)}")
    if isinstance(item, str) and len(indexes) == 3:
        raise ValueError("cannot 3-index slice a string")
    content = utf8(item) if isinstance(item, str) else item
    bounds = [0, len(content), len(content)]
    for place, index in enumerate(indexes):
        bounds[place] = _position(unboxed(index), len(content))
    for low, high in ((0, 1), (1, 2)) if len(indexes) == 3 else ((0, 1),):
        if bounds[low] > bounds[high]:
            raise ValueError(f"invalid slice index: {bounds[low]} > {bounds[high]}")
    part = content[bounds[0] : bounds[1]]
    return text_of(part) if isinstance(part, bytes) else part


def _not(value: Any) -> bool:
    return not is_true(value)


def _printed(args: tuple[Any, ...]) -> str:
    if len(args) == 1 and isinstance(args[0], str):
        return args[0]
    return sprint(["<no value>" if arg is None else arg for arg in args])


_HTML = str.maketrans({'"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;", "\x00": "\ufffd"})
_JS = {
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
    "<": "\\u003C",
    ">": "\\u003E",
    "&": "\\u0026",
    "=": "\\u003D",
}


def _html(*args: Any) -> str:
    return _printed(args).translate(_HTML)


def _js(*args: Any) -> str:
    return "".join(_JS.get(char) or (char if char.isprintable() else f"\\u{ord(char):04X}") for char in _printed(args))


def _urlquery(*args: Any) -> str:
    from urllib.parse import quote_plus  # rarely needed

    return quote_plus(utf8(_printed(args)), safe="")


def _invocation(name: str, function: Any, *_: Any) -> Any:
    function = unboxed(function)
    if function is ABSENT:
        raise ValueError("call of nil")
    raise ValueError(f"non-function {name} of type {type_name(function)}")


def _exists(item: Any, *indexes: Any) -> bool:
    if not indexes:
        return True  # no key was given that could be missing
    for index in indexes:
        if isinstance(item, dict) and (isinstance(index, str) or index is None):
            item = item.get(index or "")
        elif isinstance(item, list | str) and isinstance(index, int) and not isinstance(index, bool):
            content: Any = utf8(item) if isinstance(item, str) else item
            if not 0 <= index < len(content):
                return False
            item = content[index]
        else:
            return False
    return item is not None


_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/\r\n]")


def _base64decode(text: str) -> str:
    from binascii import a2b_base64  # rarely needed

    data = utf8(text)
    wrong = _wrong_base64(data)
    if wrong is not None:
        raise ValueError(f"base64 decode failed: illegal base64 data at input byte {wrong}")
    return text_of(a2b_base64(data))


def _wrong_base64(data: bytes) -> int | None:
    """Return the offset of the first invalid byte, as Go's decoder reports it; None if there is none."""
    found = _NOT_BASE64.search(data)
    end = found.start() if found else len(data)
    places = [at for at in range(end) if data[at] not in b"\r\n"]
    over = len(places) % 4
    if found is None:
        return end - over if over else None
    if data[end] != ord("=") or over < 2:
        return end
    at = end + 1
    for _ in range(3 - over):
        while at < len(data) and data[at] in b"\r\n":
            at += 1
        if at == len(data):
            return at
        if data[at] != ord("="):
            return at - 1
        at += 1
    while at < len(data) and data[at] in b"\r\n":
        at += 1
    return at if at < len(data) else None


FUNCTIONS: dict[str, Function] = {
    "and": Function(lambda *args: args[-1], (VALUE,), VALUE),  # evaluated lazily with the arguments
    "or": Function(lambda *args: args[-1], (VALUE,), VALUE),
    "not": Function(_not, (VALUE,)),
    "len": Function(_len, (VALUE,)),
    "index": Function(_index, (VALUE,), VALUE),
    "slice": Function(_slice, (VALUE,), VALUE),
    "call": Function(_invocation, (VALUE,), VALUE),
    "print": Function(lambda *args: sprint(args), (), ANY),
    "println": Function(lambda *args: sprintln(args), (), ANY),
    "printf": Function(lambda format, *args: sprintf(format, args), (TEXT,), ANY),
    "html": Function(_html, (), ANY),
    "js": Function(_js, (), ANY),
    "urlquery": Function(_urlquery, (), ANY),
    "eq": Function(equal, (VALUE,), VALUE),
    "exists": Function(lambda item, *rest: _exists(plain_value(item), *rest), (ANY,), ANY),
    "base64decode": Function(_base64decode, (TEXT,)),
    **{name: Function(compare, (VALUE, VALUE)) for name, compare in COMPARISONS.items()},
}
