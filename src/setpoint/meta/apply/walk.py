"""Conversion of values to field sets: the fields that a value has, and those that differ between two values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.meta.apply.field_set import EMPTY, FieldSet, sort
from setpoint.meta.apply.items import ElementOf, element_function, is_deduced
from setpoint.meta.schema import ListType, Shape, Type

Pair = tuple[FieldSet | None, FieldSet | None]
"""Removed fields, and changed or added fields; {} means the value itself, None means no fields."""


class Walk:
    """The compiled form of a Type. The functions of a `leaf` walk are never called."""

    __slots__ = ("diff", "fill", "leaf", "members")

    leaf: bool
    fill: Callable[[Any, FieldSet], None]
    """Add all elements below a value as members, as when the whole value is new."""
    members: Callable[[Any], FieldSet]
    """Return the elements below a value that an applier of this value owns."""
    diff: Callable[[Any, Any], Pair | None]
    """Compare two present values that are not identical; None means no difference."""

    def __init__(self, leaf: bool) -> None:
        self.leaf = leaf

    def whole(self, value: Any) -> FieldSet:
        """Return the node of a value that is new, or gone."""
        if self.leaf or not value:
            return EMPTY
        node: FieldSet = {".": EMPTY}
        self.fill(value, node)
        return node if len(node) > 1 else EMPTY


def _diff_with_empty(fill: Callable[[Any, FieldSet], None], old: Any, new: Any) -> Pair | None:
    """Compare two values of which one is null or empty: the other's fields are added or removed, but not the value
    itself."""
    node: FieldSet = {}
    if new:
        fill(new, node)
        return (None, node) if node else None
    if old:
        fill(old, node)
        return (node, None) if node else None
    return None if old == new else (None, EMPTY)


_UNKEYED = ""


def _make_listed(walk: Walk, type_: Type, item: Walk) -> None:
    """Complete `walk` for a list of this type whose items are walked by `item`."""
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
                # The item is no longer repeated: it replaces the mark.
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


_MISSING = object()
_FORMS = 1024

NEVER_OWNED = frozenset({"apiVersion", "kind"})
NEVER_OWNED_METADATA = frozenset(
    {
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    }
)


_Unfinished = dict[int, tuple[Type, Walk]]
"""Incomplete walks by the identity of their types, because a type may contain itself.

They are stored in the types when all are complete, because two threads may look one up at once."""


def walk_of(type_: Type) -> Walk:
    walk: Walk | None = type_.compiled.get("apply")
    if walk is None:
        unfinished: _Unfinished = {}
        walk = _part(type_, unfinished)
        _publish(unfinished)
    return walk


def _publish(finished: _Unfinished) -> None:
    for type_, walk in finished.values():
        type_.compiled["apply"] = walk


def _part(type_: Type, unfinished: _Unfinished) -> Walk:
    walk: Walk | None = type_.compiled.get("apply")
    if walk is not None:
        return walk
    known = unfinished.get(id(type_))
    return known[1] if known is not None else _compile(type_, unfinished)


def object_walk_of(type_: Type) -> Walk:
    """Return the walk for whole objects, which ignores the fields that are never owned."""
    walk: Walk | None = type_.compiled.get("apply.object")
    if walk is None:
        walk, metadata = Walk(False), Walk(False)
        unfinished: _Unfinished = {}
        field = type_.fields.get("metadata")
        metadata_type = field.type if field is not None else Type(Shape.STRUCT)
        _make_struct(metadata, metadata_type, unfinished, NEVER_OWNED_METADATA)
        _make_struct(walk, type_, unfinished, NEVER_OWNED, metadata)
        _publish(unfinished)
        type_.compiled["apply.object"] = walk
    return walk


def _compile(type_: Type, unfinished: _Unfinished) -> Walk:
    shape = type_.shape
    is_list = shape is Shape.LIST and type_.list_type is not ListType.ATOMIC and type_.item is not None
    if not is_list and (type_.atomic or not (shape is Shape.STRUCT or (shape is Shape.MAP and type_.item is not None))):
        walk = _DEDUCED if not type_.atomic and is_deduced(type_) else _LEAF
        unfinished[id(type_)] = type_, walk
        return walk
    walk = Walk(False)
    unfinished[id(type_)] = type_, walk
    if shape is Shape.STRUCT:
        _make_struct(walk, type_, unfinished, frozenset())
        return walk
    assert type_.item is not None
    item = _part(type_.item, unfinished)
    if is_list:
        _make_listed(walk, type_, item)
    elif item.leaf:
        _make_leaf_map(walk)
    else:
        _make_mapped(walk, _Plans(item), frozenset())
    return walk


class _Plans(dict[str, tuple[str, Walk, bool]]):
    """Plan of each field by name: path element, walk, and whether the type declares the field.

    Undeclared keys are added on first use: for maps, and for structs that preserve unknown fields."""

    def __init__(self, others: Walk) -> None:
        super().__init__()
        self._others = others

    def __missing__(self, name: str) -> tuple[str, Walk, bool]:
        return ("f:" + name, self._others, False)


def _make_struct(
    walk: Walk, type_: Type, unfinished: _Unfinished, skip: frozenset[str], metadata: Walk | None = None
) -> None:
    plans = _Plans(_DEDUCED)
    for name, field in type_.fields.items():
        if name not in skip:
            plans[name] = ("f:" + name, _part(field.type, unfinished), True)
    if metadata is not None:
        plans["metadata"] = ("f:metadata", metadata, True)
    _make_mapped(walk, plans, skip)
    if metadata is not None:
        _allow_missing_metadata(walk, metadata)


def _allow_missing_metadata(walk: Walk, metadata: Walk) -> None:
    """Treat missing and present metadata alike, because `metadata` itself is never owned."""
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
    # Cached by the names in a value: its elements in order, all without children, and those that may have some. Values
    # of a struct have few such forms, so most of the work is one dict copy.
    forms: dict[tuple[str, ...], tuple[FieldSet, list[tuple[str, str, Walk]]]] = {}

    def form_of(names: tuple[str, ...]) -> tuple[FieldSet, list[tuple[str, str, Walk]]]:
        known = [(name, *plans[name]) for name in sorted(names) if name not in skip]
        form = (
            {element: EMPTY for _, element, _, _ in known},
            [(name, element, inner) for name, element, inner, _ in known if not inner.leaf],
        )
        if len(known) <= len(plans) and all(declared for *_, declared in known):
            if len(forms) >= _FORMS:
                forms.clear()
            forms[names] = form
        return form

    def fill(value: dict[str, Any], node: FieldSet) -> None:
        names = tuple(value)
        elements, parents = forms.get(names) or form_of(names)
        node.update(elements)
        for name, element, inner in parents:
            child = value[name]
            if child:
                below: FieldSet = {".": EMPTY}
                inner.fill(child, below)
                if len(below) > 1:
                    node[element] = below

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


def _make_leaf_map(walk: Walk) -> None:
    """Build the walk of maps of scalars: labels, annotations, data, resource quantities."""

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


def _make_deduced(walk: Walk) -> None:
    """Build the walk of values without a schema: objects are owned field by field, everything else whole."""
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
