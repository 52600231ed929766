"""The steps of a path in a field set, in their one canonical spelling.

`f:name` is a field, `k:{"name":"c"}` the list item with that key, `v:"x"` the item of a set, `i:3` an index.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from setpoint.meta.goformat import plain, quote


class BadPathElement(ValueError):
    pass


def key_element(key: dict[str, Any]) -> str:
    """Return the element for a list item with these key fields, in any order."""
    return "k:" + _json({name: key[name] for name in sorted(key)})


def value_element(value: Any) -> str:
    return "v:" + _json(value)


def _json(value: Any) -> str:
    text = orjson.dumps(_whole_floats(value)).decode()
    if "<" in text or ">" in text or "&" in text or "\u2028" in text or "\u2029" in text:
        for char in "<>&\u2028\u2029":
            text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _whole_floats(value: Any) -> Any:
    """Convert whole floats to integers, because Go writes the float 80 as `80`."""
    if type(value) is float and value.is_integer() and abs(value) < 1e21:
        return int(value)
    if type(value) is dict:
        return {name: _whole_floats(member) for name, member in value.items()}
    return value


def canonical(element: str) -> str | None:
    """Return an element that a client spelled, in canonical form; None for a kind of element that is not known
    (yet)."""
    if len(element) < 2:
        raise BadPathElement("key must be 2 characters long:")
    if element[1] != ":":
        raise BadPathElement(f"missing colon: {element}")
    kind, content = element[0], element[2:]
    if kind == "f":
        return element
    if kind == "i":
        try:
            return f"i:{int(content)}"
        except ValueError:
            raise BadPathElement(f"strconv.Atoi: parsing {quote(content)}: invalid syntax") from None
    if kind not in "kv":
        return None
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise BadPathElement(f"invalid JSON in {element}: {error}") from None
    if kind == "v":
        return value_element(value)
    if type(value) is not dict:
        raise BadPathElement(f"not an object: {element}")
    return key_element(value)


def text(element: str) -> str:
    """Return the element as conflict messages show it: `.spec`, `[name="c"]`, `[="x"]`, `[3]`."""
    kind, content = element[0], element[2:]
    if kind == "f":
        return "." + content
    if kind == "i":
        return f"[{content}]"
    value = orjson.loads(content)
    if kind == "v":
        return f"[={_value_text(value)}]"
    return "[" + ",".join(f"{name}={_value_text(member)}" for name, member in value.items()) + "]"


def _value_text(value: Any) -> str:
    if type(value) is str:
        return quote(value)
    if value is None:
        return "null"
    if type(value) is list:
        return "[" + ",".join(map(_value_text, value)) + "]"
    if type(value) is dict:
        return "".join(f"{name}={_value_text(member)}" for name, member in value.items())
    return plain(value)


_KIND_ORDER = {".": 0, "f": 1, "k": 2, "v": 3, "i": 4}


def order(element: str) -> tuple[Any, ...]:
    """Return the sort key of an element: fields by name, then keys, then values, numbers by their size."""
    return _cached_order(element) if len(element) <= 256 else _order(element)


def _order(element: str) -> tuple[Any, ...]:
    kind, content = element[0], element[2:]
    rank = _KIND_ORDER.get(kind, 5)
    if kind == "i":
        return (rank, int(content))
    if kind == "k":
        return (rank, *((name, *_value_order(value)) for name, value in orjson.loads(content).items()))
    if kind == "v":
        return (rank, *_value_order(orjson.loads(content)))
    return (rank, content)


_cached_order = lru_cache(maxsize=8192)(_order)


def _value_order(value: Any) -> tuple[int, Any]:
    if type(value) in (int, float):
        return (0, value)
    if type(value) is str:
        return (1, value)
    if type(value) is bool:
        return (2, value)
    return (3, plain(value))
