"""Field sets of lists whose items have an identity: sets, and lists with keys."""

from __future__ import annotations

from typing import Any

from setpoint.meta.apply.field_set import EMPTY, FieldSet, sort
from setpoint.meta.apply.items import ElementOf, element_function
from setpoint.meta.apply.walker import Pair, Walk, diff_with_empty
from setpoint.meta.schema import ListType, Type

_UNKEYED = ""


def make_listed(walk: Walk, type_: Type, item: Walk) -> None:
    """Makes `walk` one for a list of this type, whose items walk like `item`."""
    element_of = element_function(type_)
    keyed = type_.list_type is ListType.MAP and not item.leaf

    def fill(value: list[Any], node: FieldSet) -> None:
        below: FieldSet = {}
        repeated: set[str] = set()
        for child in value:
            element = element_of(child)
            if element is None:
                continue
            if element in below:
                repeated.add(element)
            elif keyed:
                inner: FieldSet = {".": EMPTY}
                item.fill(child, inner)
                below[element] = inner if len(inner) > 1 else EMPTY
            else:
                below[element] = EMPTY
        for element in repeated:
            below[element] = EMPTY
        node.update(sort(below))

    def members(value: Any) -> FieldSet:
        node: FieldSet = {}
        if type(value) is not list:
            return node
        repeated: set[str] = set()
        for child in value:
            element = element_of(child)
            if element is None:
                element = _UNKEYED
            if element in node:
                repeated.add(element)
            elif keyed:
                below = item.members(child)
                node[element] = {".": EMPTY, **below} if below else EMPTY
            else:
                node[element] = EMPTY
        for element in repeated:
            node[element] = EMPTY
        node.pop(_UNKEYED, None)
        return sort(node)

    def diff(old: Any, new: Any) -> Pair | None:
        if not old or not new:
            return diff_with_empty(fill, old, new)
        before, after = _by_element(element_of, old), _by_element(element_of, new)
        removed: FieldSet = {}
        changed: FieldSet = {}
        for element, values in after.items():
            known = before.get(element)
            if known is None:
                changed[element] = item.whole(values[0]) if len(values) == 1 else EMPTY
            elif len(values) == 1 and len(known) == 1:
                if values[0] is known[0] or values[0] == known[0]:
                    continue
                pair = (None, EMPTY) if item.leaf else item.diff(known[0], values[0])
                if pair is not None:
                    if pair[0] is not None:
                        removed[element] = pair[0]
                    if pair[1] is not None:
                        changed[element] = pair[1]
            elif len(values) > 1 and len(known) > 1:
                if values != known:
                    changed[element] = EMPTY
            elif len(known) > 1:
                # No longer repeated: the mark goes, the one item comes.
                changed[element] = item.whole(values[0])
                removed[element] = EMPTY
            else:
                removed[element] = item.whole(known[0])
                changed[element] = EMPTY
        for element, values in before.items():
            if element not in after:
                removed[element] = item.whole(values[0]) if len(values) == 1 else EMPTY
        if not changed and not removed:
            return None
        return (removed or None, sort(changed) if changed else None)

    walk.fill, walk.members, walk.diff = fill, members, diff


def _by_element(element_of: ElementOf, items: list[Any]) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for item in items:
        element = element_of(item)
        if element is not None:
            out.setdefault(element, []).append(item)
    return out
