"""From values to field sets: which fields a value has, and which differ between two values.

Everything is compiled once per Type into closures. A value is a leaf (scalars; lists, maps and structs that are owned
whole), mapped (structs and maps: one element per field) or listed (sets and lists with keys: one element per item).
Null and empty containers count as leaves where nothing of the other side contradicts them, as in the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.meta.apply.field_set import EMPTY, FieldSet, sort
from setpoint.meta.apply.items import ElementOf, element_function, is_deduced
from setpoint.meta.schema import ListType, Shape, Type

Pair = tuple[FieldSet | None, FieldSet | None]
"""What was removed, and what was changed or added; nodes, so {} means: the place itself. None: nothing."""

_MISSING = object()
_UNKEYED = ""

NEVER_OWNED = frozenset({"apiVersion", "kind"})
NEVER_OWNED_METADATA = frozenset({
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
    "resourceVersion",
})  # fmt: skip


class Walk:
    """The compiled form of a Type. `leaf` walks have no functions worth calling."""

    __slots__ = ("diff", "fill", "leaf", "members")

    leaf: bool
    fill: Callable[[Any, FieldSet], None]
    """Adds the elements below a value, every one of them a member, as when the whole value is new."""
    members: Callable[[Any], FieldSet]
    """The elements below a value that an applier of this value owns."""
    diff: Callable[[Any, Any], Pair | None]
    """What is different between two values, both there, neither identical; None: nothing."""

    def __init__(self, leaf: bool) -> None:
        self.leaf = leaf

    def whole(self, value: Any) -> FieldSet:
        """The node of a value that is new, or gone."""
        if self.leaf or not value:
            return EMPTY
        node: FieldSet = {".": EMPTY}
        self.fill(value, node)
        return node if len(node) > 1 else EMPTY


def walk_of(type_: Type) -> Walk:
    walk: Walk | None = type_.compiled.get("apply")
    return walk or _compile(type_, "apply")


def object_walk_of(type_: Type) -> Walk:
    """For whole objects: blind to the fields that nobody ever owns."""
    walk: Walk | None = type_.compiled.get("apply.object")
    if walk is None:
        walk = type_.compiled["apply.object"] = Walk(False)
        metadata = Walk(False)
        field = type_.fields.get("metadata")
        _make_struct(metadata, field.type if field is not None else Type(Shape.STRUCT), NEVER_OWNED_METADATA)
        _make_struct(walk, type_, NEVER_OWNED, metadata)
    return walk


def _compile(type_: Type, name: str) -> Walk:
    shape = type_.shape
    if shape is Shape.LIST and type_.list_type is not ListType.ATOMIC:
        walk = type_.compiled[name] = Walk(False)
        _make_listed(walk, type_)
    elif type_.atomic:
        walk = type_.compiled[name] = _LEAF
    elif shape is Shape.STRUCT:
        walk = type_.compiled[name] = Walk(False)
        _make_struct(walk, type_, frozenset())
    elif shape is Shape.MAP and type_.item is not None:
        walk = type_.compiled[name] = Walk(False)
        item = walk_of(type_.item)
        if item.leaf:
            _make_leaf_map(walk)
        else:
            _make_mapped(walk, _Plans(item), frozenset())
    elif is_deduced(type_):
        walk = type_.compiled[name] = _DEDUCED
    else:
        walk = type_.compiled[name] = _LEAF
    return walk


class _Plans(dict[str, tuple[str, Walk, bool]]):
    """By field name: path element, walk, and whether the type declares the field. Keys that it does not declare are
    planned when they are met: for maps, and for structs that keep unknown fields."""

    def __init__(self, others: Walk) -> None:
        super().__init__()
        self._others = others

    def __missing__(self, name: str) -> tuple[str, Walk, bool]:
        return ("f:" + name, self._others, False)


def _make_struct(walk: Walk, type_: Type, skip: frozenset[str], metadata: Walk | None = None) -> None:
    plans = _Plans(_DEDUCED)
    for name, field in type_.fields.items():
        if name not in skip:
            plans[name] = ("f:" + name, walk_of(field.type), True)
    if metadata is not None:
        plans["metadata"] = ("f:metadata", metadata, True)
    _make_mapped(walk, plans, skip)
    if metadata is not None:
        _forgive_missing_metadata(walk, metadata)


def _forgive_missing_metadata(walk: Walk, metadata: Walk) -> None:
    """`metadata` itself is never owned, so whether it is there makes no difference."""
    diff, fill, members = walk.diff, walk.fill, walk.members

    def object_diff(old: Any, new: Any) -> Pair | None:
        if not old.get("metadata"):
            old = {**old, "metadata": {}}
        if not new.get("metadata"):
            new = {**new, "metadata": {}}
        return diff(old, new)

    def object_fill(value: Any, node: FieldSet) -> None:
        fill(value, node)
        if "f:metadata" in node:
            below: FieldSet = {}
            metadata.fill(value["metadata"] or {}, below)
            if below:
                node["f:metadata"] = below
            else:
                del node["f:metadata"]

    def object_members(value: Any) -> FieldSet:
        node = members(value)
        if node.get("f:metadata") == {}:
            del node["f:metadata"]
        return node

    walk.diff, walk.fill, walk.members = object_diff, object_fill, object_members


def _make_mapped(walk: Walk, plans: _Plans, skip: frozenset[str]) -> None:
    leaf_elements = {name: element for name, (element, inner, _) in plans.items() if inner.leaf}
    leaf_element = leaf_elements.get

    def fill(value: dict[str, Any], node: FieldSet) -> None:
        for name in sorted(value) if len(value) > 1 else value:
            element = leaf_element(name)
            if element is not None:
                node[element] = EMPTY
            elif name not in skip:
                element, inner, _ = plans[name]
                child = value[name]
                if child and not inner.leaf:
                    below: FieldSet = {".": EMPTY}
                    inner.fill(child, below)
                    node[element] = below if len(below) > 1 else EMPTY
                else:
                    node[element] = EMPTY

    def members(value: Any) -> FieldSet:
        node: FieldSet = {}
        if type(value) is not dict:
            return node
        for name in sorted(value):
            if name in skip:
                continue
            element, inner, declared = plans[name]
            if inner.leaf:
                node[element] = EMPTY
                continue
            child = value[name]
            below = inner.members(child)
            if not declared or child is None or child == {}:
                node[element] = {".": EMPTY, **below} if below else EMPTY
            elif below:
                node[element] = below
            elif inner is _DEDUCED and child != {} and type(child) is not dict:
                node[element] = EMPTY
        return node

    def diff(old: Any, new: Any) -> Pair | None:
        if not old or not new:
            return _diff_with_empty(fill, old, new)
        removed: FieldSet | None = None
        changed: FieldSet | None = None
        for name, value in new.items():
            before = old.get(name, _MISSING)
            if before is value or name in skip:
                continue
            element, inner, _ = plans[name]
            if before is _MISSING:
                node = EMPTY if inner.leaf else inner.whole(value)
            elif before == value:
                continue
            elif inner.leaf:
                node = EMPTY
            else:
                pair = inner.diff(before, value)
                if pair is None:
                    continue
                gone, changed_below = pair
                if gone is not None:
                    if removed is None:
                        removed = {}
                    removed[element] = gone
                if changed_below is None:
                    continue
                node = changed_below
            if changed is None:
                changed = {}
            changed[element] = node
        for name in old:
            if name not in new and name not in skip:
                if removed is None:
                    removed = {}
                element, inner, _ = plans[name]
                removed[element] = inner.whole(old[name])
        if changed is None:
            return None if removed is None else (removed, None)
        return (removed, sort(changed))

    walk.fill, walk.members, walk.diff = fill, members, diff


def _diff_with_empty(fill: Callable[[Any, FieldSet], None], old: Any, new: Any) -> Pair | None:
    """One side is null or empty, and there: what the other has comes or goes, but not the place itself."""
    node: FieldSet = {}
    if new:
        fill(new, node)
        return (None, node) if node else None
    if old:
        fill(old, node)
        return (node, None) if node else None
    return None if old == new else (None, EMPTY)


def _make_leaf_map(walk: Walk) -> None:
    """Maps of scalars: labels, annotations, data, resource quantities."""

    def fill(value: dict[str, Any], node: FieldSet) -> None:
        for name in sorted(value):
            node["f:" + name] = EMPTY

    def members(value: Any) -> FieldSet:
        return {"f:" + name: EMPTY for name in sorted(value)} if value else {}

    def diff(old: Any, new: Any) -> Pair | None:
        if not old or not new:
            return _diff_with_empty(fill, old, new)
        changed = {"f:" + name: EMPTY for name, value in new.items() if name not in old or old[name] != value}
        removed = {"f:" + name: EMPTY for name in old if name not in new}
        if not changed and not removed:
            return None
        return (removed or None, sort(changed) if changed else None)

    walk.fill, walk.members, walk.diff = fill, members, diff


def _make_listed(walk: Walk, type_: Type) -> None:
    element_of = element_function(type_)
    assert type_.item is not None
    item = walk_of(type_.item)
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
            return _diff_with_empty(fill, old, new)
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


def _make_deduced(walk: Walk) -> None:
    """Values without a schema: objects field by field, everything else whole."""
    mapped = Walk(False)
    _make_mapped(mapped, _Plans(walk), frozenset())

    def fill(value: Any, node: FieldSet) -> None:
        if type(value) is dict:
            mapped.fill(value, node)

    def members(value: Any) -> FieldSet:
        return mapped.members(value) if type(value) is dict else {}

    def diff(old: Any, new: Any) -> Pair | None:
        old_mapped, new_mapped = type(old) is dict or old is None, type(new) is dict or new is None
        if old_mapped and new_mapped:
            return mapped.diff(old, new)
        if type(old) is dict and old:
            node: FieldSet = {}
            mapped.fill(old, node)
            return (node, EMPTY)
        if type(new) is dict and new:
            node = {".": EMPTY}
            mapped.fill(new, node)
            return (None, node)
        return (None, EMPTY)

    walk.fill, walk.members, walk.diff = fill, members, diff


_LEAF = Walk(True)
_LEAF.members = lambda value: {}
_DEDUCED = Walk(False)
_make_deduced(_DEDUCED)
