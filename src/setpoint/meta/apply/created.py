"""The fields that the creator of an object owns, cached by the shape of the object.

The field set of a new object depends on the names of its fields, on the keys of its list items, and on which fields
that are always written have their empty value; all other values do not matter. Thousands of Pods and Events have few
such shapes, and the shape takes a fraction of the time of the field set. Equal shapes have equal field sets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.meta.apply.field_set import EMPTY, FieldSet, Filter, shared
from setpoint.meta.apply.items import element_function
from setpoint.meta.apply.walk import NEVER_OWNED, NEVER_OWNED_METADATA, object_walk_of, walk_of
from setpoint.meta.decode import zero
from setpoint.meta.objects import Obj
from setpoint.meta.schema import ListType, Shape, Type

Append = Callable[[Any, list[Any]], None]
"""Appends the shape of a value that is not empty. A name or a number of items says how much follows, so that two lists
are equal only if the shapes are."""

_MAX_SHAPES = 256
"""Maximum number of cached shapes of one type."""
_MAX_LENGTH = 16_384
"""Maximum number of characters of the names in a cached shape: clients choose those of labels and data."""
_FORMS = 256
_ABSENT = object()
_SAME = "="
"""Stands for a value that is the same as in the empty object."""


class _UnknownField(Exception):
    """The object has a field that its type does not declare: its field set is not cached."""


def empty_object(type_: Type) -> Obj:
    """Return the object that a create is compared with: for built-in kinds it has the fields that are always
    written."""
    empty: Obj | None = type_.compiled.get("apply.zero")
    if empty is None:
        empty = type_.compiled["apply.zero"] = zero(type_) if type_.go else {}
    return empty


def created_fields(type_: Type, new: Obj, reset: Filter | None) -> FieldSet:
    """Return the fields that the creator of `new` owns, without those that `reset` removes."""
    if not type_.go or not new.get("metadata"):  # custom kinds may have any fields
        return computed_fields(type_, new, reset)
    append: Append | None = type_.compiled.get("apply.shape")
    if append is None:
        append = type_.compiled["apply.shape"] = _object_shape(type_)
    shape: list[Any] = [reset]
    try:
        append(new, shape)
    except _UnknownField:
        return computed_fields(type_, new, reset)
    known: dict[tuple[Any, ...], FieldSet] = type_.compiled.setdefault("apply.created", {})
    key = tuple(shape)
    found = known.get(key)
    if found is None:
        found = shared(computed_fields(type_, new, reset))
        if _length(key) <= _MAX_LENGTH:
            if len(known) >= _MAX_SHAPES:
                known.clear()
            known[key] = found
    return found


def computed_fields(type_: Type, new: Obj, reset: Filter | None) -> FieldSet:
    """Do the same as `created_fields`, without the cache."""
    pair = object_walk_of(type_).diff(empty_object(type_), new)
    changed = (pair[1] or EMPTY) if pair is not None else EMPTY
    return reset(changed) if reset is not None else changed


def _length(key: tuple[Any, ...]) -> int:
    """Return about the number of characters that a key holds."""
    length = 0
    for token in key:
        if type(token) is tuple:
            length += sum(map(len, token)) + 8 * len(token)
        else:
            length += len(token) if type(token) is str else 8
    return length


def _object_shape(type_: Type) -> Append:
    empty = empty_object(type_)
    metadata = type_.fields["metadata"].type
    return _struct_shape(
        type_,
        {**empty, "metadata": empty.get("metadata") or {}},
        NEVER_OWNED,
        {"metadata": _struct_shape(metadata, empty.get("metadata") or {}, NEVER_OWNED_METADATA)},
    )


def _shape_of(type_: Type) -> Append | None:
    """Return the function for values that the empty object does not have; None if they are owned as a whole."""
    known: Append | None = type_.compiled.get("apply.part_shape")
    if known is not None or walk_of(type_).leaf:
        return known

    def unfinished(value: Any, shape: list[Any]) -> None:
        made(value, shape)

    type_.compiled["apply.part_shape"] = unfinished  # a type may contain itself
    made = _struct_shape(type_, {}, frozenset()) if type_.shape is Shape.STRUCT else _items_shape(type_)
    type_.compiled["apply.part_shape"] = made
    return made


def _items_shape(type_: Type) -> Append:
    assert type_.item is not None
    item = _shape_of(type_.item)
    if type_.shape is Shape.LIST:
        element_of = element_function(type_)
        below = item if type_.list_type is ListType.MAP else None

        def append_list(value: Any, shape: list[Any]) -> None:
            shape.append(len(value))
            for each in value:
                element = element_of(each)
                shape.append(element)
                if below is not None and element is not None:
                    below(each, shape)

        return append_list

    def append_map(value: Any, shape: list[Any]) -> None:
        shape.append(tuple(value))
        if item is not None:
            for each in value.values():
                if each:
                    item(each, shape)
                else:
                    shape.append(None)

    return append_map


_Step = tuple[str, Append | None, Any]
"""A member of a struct: its name, the function for its shape, None for a scalar, and its value in the empty object."""


def _struct_shape(type_: Type, empty: Obj, skip: frozenset[str], parts: dict[str, Append] | None = None) -> Append:
    """Return the function for a struct that is compared with `empty`. `parts` has the functions of members that are
    compared in another way."""
    forms: dict[tuple[str, ...], list[_Step]] = {}

    def steps_of(names: tuple[str, ...]) -> list[_Step]:
        steps: list[_Step] = []
        for name in names:
            if name in skip:
                continue
            before = empty.get(name, _ABSENT)
            append = (parts or {}).get(name)
            if append is None:
                if name not in type_.fields:
                    raise _UnknownField
                member = type_.fields[name].type
                append = _shape_of(member)
                if append is not None and before is not _ABSENT and before:
                    append = _struct_shape(member, before, frozenset())
            if append is not None or before is not _ABSENT:
                steps.append((name, append, before))
        if len(forms) >= _FORMS:
            forms.clear()
        forms[names] = steps
        return steps

    def append_struct(value: Any, shape: list[Any]) -> None:
        names = tuple(value)
        shape.append(names)
        steps = forms.get(names)
        if steps is None:
            steps = steps_of(names)
        for name, append, before in steps:
            child = value[name]
            if before is not _ABSENT and child == before:
                shape.append(_SAME)
            elif append is not None and child:
                append(child, shape)
            else:
                shape.append(None)

    return append_struct
