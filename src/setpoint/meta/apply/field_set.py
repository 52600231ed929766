"""Sets of field paths, represented as the FieldsV1 tries of managedFields.

A node is a dict from path element to node. A path is in the set if its node is empty or contains the key `.`; a node
with children and without `.` is only a prefix of other paths. `{}` at the top is the empty set. Sets are immutable:
operations share every part that they do not change, and return an argument itself where they can.

The canonical form of a path element: `f:name` is a field, `k:{"name":"c"}` the list item with that key, `v:"x"` the
item of a set, `i:3` an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import orjson

from setpoint.meta.chunked_json import CHUNK_SIZE, sorted_in_chunks
from setpoint.meta.goformat import plain, quote

_KIND_ORDER = {".": 0, "f": 1, "k": 2, "v": 3, "i": 4}
EMPTY: FieldSet = {}
"""Shared node of a path without children; also the empty set."""
_MAX_SHARED, _LONGEST_SHARED = 1024, 4096
_MAX_SHARED_KEYS = 1_000
"""Maximum number of keys of a set that is interned."""


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


FieldSet = dict[str, Any]


class _Interned:
    """Sets by their JSON text and by their identity: the next update of an object need not encode its sets.

    There are two generations. A set that is used moves to the younger one; when that is full, the older one is dropped.
    So the sets of thousands of objects that contain an address or the like, each used once, do not evict the others."""

    def __init__(self) -> None:
        self._young: dict[bytes, FieldSet] = {}
        self._old: dict[bytes, FieldSet] = {}
        self._young_ids: dict[int, FieldSet] = {}
        self._old_ids: dict[int, FieldSet] = {}

    def contains(self, fields: FieldSet) -> bool:
        key = id(fields)
        return self._young_ids.get(key) is fields or self._old_ids.get(key) is fields

    def get(self, text: bytes) -> FieldSet | None:
        found = self._young.get(text)
        if found is None:
            found = self._old.get(text)
            if found is not None:
                self.put(text, found)
        return found

    def put(self, text: bytes, fields: FieldSet) -> None:
        if len(text) > _LONGEST_SHARED:
            return
        if len(self._young) >= _MAX_SHARED:
            self._old, self._old_ids = self._young, self._young_ids
            self._young, self._young_ids = {}, {}
        self._young[text] = self._young_ids[id(fields)] = fields


_interned = _Interned()


def shared(fields: FieldSet) -> FieldSet:
    """Return the interned copy of this set.

    Thousands of objects that were created alike have few distinct sets, and each set is larger than the fields it
    describes. Where an address or the like makes a set unique, its parts are still shared. A large set is returned as
    it is."""
    if _interned.contains(fields) or _exceeds(fields, _MAX_SHARED_KEYS):
        return fields
    text = orjson.dumps(fields)
    found = _interned.get(text)
    if found is None:
        found = {
            top: {name: _shared_part(part) if part else part for name, part in below.items()} if below else below
            for top, below in fields.items()
        }
        _interned.put(text, found)
    return found


def _exceeds(fields: FieldSet, limit: int) -> bool:
    """Return whether a set has more keys than `limit`, in a time that is bounded by it."""
    nodes = [fields]
    for node in nodes:  # the list grows meanwhile
        limit -= len(node)
        if limit < 0:
            return True
        nodes += filter(None, node.values())
    return False


def _shared_part(part: FieldSet) -> FieldSet:
    text = orjson.dumps(part)
    found = _interned.get(text)
    if found is None:
        found = part
        _interned.put(text, found)
    return found


def sort(node: FieldSet) -> FieldSet:
    """Return the node with its elements in canonical order; its children must be sorted already."""
    if len(node) < 2:
        return node
    keys = sorted(node) if len(node) <= CHUNK_SIZE else sorted_in_chunks(node)
    if keys[-1][0] != "f":
        keys = sorted(keys, key=order) if len(keys) <= CHUNK_SIZE else sorted_in_chunks(keys, order)
    return {key: node[key] for key in keys}


def union(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the paths in either set."""
    if not a:
        return b
    if not b or a is b:
        return a
    return _union(a, b)


def _union(a: FieldSet, b: FieldSet) -> FieldSet:
    out = a
    grown = False
    for key, theirs in b.items():
        ours = a.get(key)
        if ours is None:
            new, grown = theirs, True
        elif ours is theirs:
            continue
        elif not ours:
            if not theirs:
                continue
            new = theirs if "." in theirs else {".": EMPTY, **theirs}
        elif not theirs:
            if "." in ours:
                continue
            new = {".": EMPTY, **ours}
        else:
            new = _union(ours, theirs)
            if new is ours:
                continue
        if out is a:
            out = dict(a)
        out[key] = new
    return sort(out) if grown else out


def difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the paths in `a` that are not in `b`. A path in `b` does not include the paths below it."""
    out = a
    for key, theirs in b.items():
        ours = a.get(key)
        if ours is None or key == ".":
            continue
        new: FieldSet | None
        if not ours:
            if theirs and "." not in theirs:
                continue
            new = None
        elif not theirs:
            if "." not in ours:
                continue
            new = {child: node for child, node in ours.items() if child != "."}
        else:
            new = _lower_difference(ours, theirs)
            if new is ours:
                continue
        if out is a:
            out = dict(a)
        if new is None:
            del out[key]
        else:
            out[key] = new
    return out


def _lower_difference(ours: FieldSet, theirs: FieldSet) -> FieldSet | None:
    """Return the node that is left of two nodes with children; None if nothing is."""
    new = difference(ours, theirs)
    member = "." in ours
    if member and "." in theirs:
        if new is ours:
            new = dict(ours)
        del new["."]
        member = False
    if member and len(new) == 1:
        return EMPTY
    return new or None


def recursive_difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the paths in `a` that are neither in `b` nor below a path in `b`."""
    out = a
    for key, theirs in b.items():
        ours = a.get(key)
        if ours is None or key == ".":
            continue
        if not theirs or "." in theirs:
            new: FieldSet | None = None
        elif not ours:
            continue
        else:
            lower = recursive_difference(ours, theirs)
            if lower is ours:
                continue
            new = EMPTY if len(lower) == 1 and "." in lower else (lower or None)
        if out is a:
            out = dict(a)
        if new is None:
            del out[key]
        else:
            out[key] = new
    return out


def intersection(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the paths in both sets."""
    out: FieldSet = {}
    for key, ours in a.items():
        theirs = b.get(key)
        if theirs is None or key == ".":
            continue
        if not ours:
            if not theirs or "." in theirs:
                out[key] = EMPTY
        elif not theirs:
            if "." in ours:
                out[key] = EMPTY
        elif ours is theirs:
            out[key] = ours
        else:
            lower = intersection(ours, theirs)
            if "." in ours and "." in theirs:
                out[key] = {".": EMPTY, **lower} if lower else EMPTY
            elif lower:
                out[key] = lower
    return out


def leaves(fields: FieldSet) -> FieldSet:
    """Return the paths in the set that have no paths below them."""
    return {
        key: leaves({child: lower for child, lower in node.items() if child != "."}) if node else EMPTY
        for key, node in fields.items()
    }


def contains(fields: FieldSet, path: tuple[str, ...] | list[str]) -> bool:
    node: FieldSet | None = fields
    if not path:
        return False
    for element in path:
        if node is None:
            return False
        node = node.get(element)
    return node is not None and (not node or "." in node)


def paths(fields: FieldSet, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield all paths in the set: at each level first those that end there, then what is below."""
    for key, node in fields.items():
        if key != "." and (not node or "." in node):
            yield (*prefix, key)
    for key, node in fields.items():
        if node:
            yield from paths(node, (*prefix, key))


def path_text(path: tuple[str, ...]) -> str:
    return "".join(map(text, path))


def from_paths(*given: tuple[str, ...]) -> FieldSet:
    """Return a set of paths of elements; for field names only, see `of_fields`."""
    out: FieldSet = {}
    for path in given:
        node: FieldSet = EMPTY
        for element in reversed(path):
            node = {element: node}
        out = union(out, node)
    return out


def of_fields(*dotted: str) -> FieldSet:
    """Return the set of these dotted paths, as in `of_fields("status", "metadata.ownerReferences")`."""
    return from_paths(*(tuple("f:" + name for name in path.split(".")) for path in dotted))


Filter = Callable[[FieldSet], FieldSet]
"""Function that removes the fields that a resource resets from a set."""


def exclude(fields: FieldSet) -> Filter:
    """Return a filter that drops these paths and everything below them."""
    return lambda given: recursive_difference(given, fields)


def include(*patterns: tuple[str, ...]) -> Filter:
    """Return a filter that retains only paths at or below one of the patterns; `*` matches any element."""
    return lambda given: _matching(given, list(patterns))


def _matching(fields: FieldSet, patterns: list[tuple[str, ...]]) -> FieldSet:
    out: FieldSet = {}
    for key, node in fields.items():
        if key == ".":
            continue
        rest = [pattern[1:] for pattern in patterns if pattern and pattern[0] in ("*", key)]
        if not rest:
            continue
        if not node or () in rest:
            out[key] = node
            continue
        lower = _matching(node, rest)
        if "." in node:
            out[key] = {".": EMPTY, **lower} if lower else EMPTY
        elif lower:
            out[key] = lower
    return out


class BadFieldSet(ValueError):
    """The value is not a FieldsV1 trie."""


def parse(fields: Any) -> FieldSet:
    """Parse a set as a client sent it, in canonical form. Elements of unknown kinds are dropped."""
    if fields is None:
        return EMPTY
    if type(fields) is not dict:
        raise BadFieldSet("error decoding set: expected an object")
    out: FieldSet = {}
    for element, child in fields.items():
        if element == ".":
            continue
        try:
            key = canonical(element)
        except BadPathElement as error:
            raise BadFieldSet(f"error decoding set: parsing key as path element: {error}") from None
        if key is None:
            continue
        node = parse(child)
        if node and "." in child:
            node = {".": EMPTY, **node}
        out[key] = _union({key: out[key]}, {key: node})[key] if key in out else node
    return sort(out)
