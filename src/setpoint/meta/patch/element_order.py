"""Order of the items of a merged list: the patch orders its items, the document orders the others."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from setpoint.meta.goformat import plain, type_name
from setpoint.meta.patch.errors import PatchRefused


def index_key(value: Any) -> Hashable:
    """Return a key that distinguishes values as JSON does: 1, 1.0 and true are three values."""
    if type(value) is str:
        return value
    if type(value) in (dict, list):
        return plain(value)
    return (type(value), value)


def partition(items: list[Any], by: list[Any], merge_key: str) -> tuple[list[Any], list[Any]]:
    """Return the items that are in `by` (by merge key, if there is one), and the others."""
    if not merge_key:
        wanted = {index_key(item) for item in by}
        return (
            [item for item in items if index_key(item) in wanted],
            [item for item in items if index_key(item) not in wanted],
        )
    wanted = set()
    for at, item in enumerate(by):
        if type(item) is not dict:
            raise PatchRefused(f"value for key {at} is not a map")
        if merge_key in item:
            wanted.add(index_key(item[merge_key]))
    ours: list[Any] = []
    theirs: list[Any] = []
    for item in items:
        if type(item) is not dict:
            actual = "%!s(<nil>)" if item is None else type_name(item)
            raise PatchRefused(f"expected a map[string]interface {{}}, but received a {actual}")
        if merge_key not in item:
            raise PatchRefused(f"map: {plain(item)} does not contain declared merge key: {merge_key}")
        (ours if index_key(item[merge_key]) in wanted else theirs).append(item)
    return ours, theirs


def interleave(
    ours: list[Any], theirs: list[Any], our_order: list[Any], their_order: list[Any], merge_key: str | None
) -> list[Any]:
    """Merge `ours`, sorted by one order, and `theirs`, sorted by the other.

    Each of theirs goes before the first of ours that it preceded in `their_order`. A `merge_key` of None means that the
    items are not maps."""
    ours = sorted_by(ours, our_order, merge_key)
    theirs = sorted_by(theirs, their_order, merge_key)
    if not ours or not theirs:
        return ours or theirs
    place = _places(their_order, merge_key)
    result: list[Any] = []
    at = 0
    for item in ours:
        here = place.get(_key(item, merge_key))
        while here is not None and at < len(theirs):
            there = place.get(_key(theirs[at], merge_key))
            if there is None or there >= here:
                break
            result.append(theirs[at])
            at += 1
        result.append(item)
    result.extend(theirs[at:])
    return result


def _key(item: Any, merge_key: str | None) -> Hashable:
    if merge_key is None:
        return index_key(item)
    return index_key(item.get(merge_key)) if type(item) is dict else index_key(None)


def _places(order: list[Any], merge_key: str | None) -> dict[Hashable, int]:
    places: dict[Hashable, int] = {}
    for at, item in enumerate(order):
        places.setdefault(_key(item, merge_key), at)
    return places


def sorted_by(items: list[Any], order: list[Any], merge_key: str | None) -> list[Any]:
    deleted: list[Any] = []
    if merge_key is not None:
        for listed in (items, order):
            for item in listed:
                if type(item) is not dict:
                    actual = "%!s(<nil>)" if item is None else type_name(item)
                    raise PatchRefused(f"expected a map[string]interface {{}}, but received a {actual}")
                if merge_key not in item:
                    raise PatchRefused(f"map: {plain(item)} does not contain declared merge key: {merge_key}")
        deleted = [item for item in items if item.get("$patch") == "delete"]
        if deleted:
            items = [item for item in items if item.get("$patch") != "delete"]
    places = _places(order, merge_key)
    found = [places.get(_key(item, merge_key)) for item in items]
    if None not in found:
        return [item for _, _, item in sorted(zip(found, range(len(items)), items))] + deleted
    return _insertion_sorted(items, found) + deleted


def _insertion_sorted(items: list[Any], places: list[int | None]) -> list[Any]:
    """Sort as the reference does: by a stable insertion sort in which an item without a place precedes any other.

    That comparison is inconsistent, so the result depends on the algorithm."""
    pairs = list(zip(places, items))
    for end in range(1, len(pairs)):
        at = end
        while at > 0:
            left, right = pairs[at - 1][0], pairs[at][0]
            if left is not None and right is not None and right >= left:
                break
            pairs[at - 1], pairs[at] = pairs[at], pairs[at - 1]
            at -= 1
    return [item for _, item in pairs]
