"""Sets of field paths, represented as the FieldsV1 tries of managedFields.

A node is a dict from path element to node. A path is in the set if its node is empty or contains the key `.`; a node
with children and without `.` is only a prefix of other paths. `{}` at the top is the empty set. Sets are immutable:
operations share every part that they do not change, and return an argument itself where they can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from setpoint.meta.apply.path_element import BadPathElement, canonical, order, text
from setpoint.meta.chunked_sort import CHUNK_SIZE, sorted_in_chunks

FieldSet = dict[str, Any]

EMPTY: FieldSet = {}
"""Shared node of a path without children; also the empty set."""


_MOST_SHARED, _LONGEST_SHARED = 1024, 4096
_shared: dict[bytes, FieldSet] = {}


def shared(fields: FieldSet) -> FieldSet:
    """Return the interned copy of this set.

    Thousands of objects that were created alike have few distinct sets, and each set is larger than the fields it
    describes. Where an address or the like makes a set unique, its parts are still shared."""
    text = orjson.dumps(fields)
    found = _shared.get(text)
    if found is None:
        found = {
            top: {name: _shared_part(part) if part else part for name, part in below.items()} if below else below
            for top, below in fields.items()
        }
        _keep(text, found)
    return found


def _shared_part(part: FieldSet) -> FieldSet:
    text = orjson.dumps(part)
    found = _shared.get(text)
    if found is None:
        found = part
        _keep(text, found)
    return found


def _keep(text: bytes, fields: FieldSet) -> None:
    if len(text) <= _LONGEST_SHARED:
        if len(_shared) >= _MOST_SHARED:
            _shared.clear()
        _shared[text] = fields


def sort(node: FieldSet) -> FieldSet:
    """Return the node with its elements in canonical order; its children must be sorted already."""
    if len(node) < 2:
        return node
    keys = sorted(node) if len(node) <= CHUNK_SIZE else sorted_in_chunks(node)
    if keys[-1][0] != "f":
        keys.sort(key=order)
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
