"""Ownership after a write: who loses fields to the writer, and what the writer owns now."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from setpoint.meta.apply.check import problems, problems_text
from setpoint.meta.apply.conflicts import Conflicts, TypeMismatch
from setpoint.meta.apply.field_set import EMPTY, FieldSet, Filter, difference, intersection, union
from setpoint.meta.apply.managers import (
    MAX_UPDATE_MANAGERS,
    BadManagedFields,
    Entry,
    ManagerId,
    Managers,
    cap_updates,
    decode,
    encode,
    is_reset,
    make_entry,
    trusted,
    with_fields,
)
from setpoint.meta.apply.reconcile import reconcile
from setpoint.meta.apply.walk import object_walk_of
from setpoint.meta.decode import zero
from setpoint.meta.schema import Type

Obj = dict[str, Any]

Converter = Callable[[Obj, str], tuple[Type, Obj] | None]
"""Function that returns an object in another version with that version's type, or None if it is not served."""


def empty_object(type_: Type) -> Obj:
    """Return the object that a create is compared with: for built-in kinds it has the fields that are always
    written."""
    empty: Obj | None = type_.compiled.get("apply.zero")
    if empty is None:
        empty = type_.compiled["apply.zero"] = zero(type_) if type_.go else {}
    return empty


def update(
    type_: Type,
    live: Obj | None,
    new: Obj,
    *,
    manager: str,
    api_version: str,
    now: str,
    subresource: str = "",
    reset: Filter | None = None,
    convert: Converter | None = None,
) -> list[Entry]:
    """Return the managedFields of `new` when `manager` writes it over `live` (None means a create); may be empty.

    `new["metadata"]["managedFields"]` is what the client sent: used if it is valid, treated as a request to remove all
    ownership if it is `[]` or `[{}]`, and otherwise, or on subresources, ignored in favour of the stored list.
    Entries of other versions stay unchanged unless `convert` can convert the objects to those versions.
    """
    managers = _current_managers(live, new, subresource)
    if live is None:
        live = empty_object(type_)
    elif not managers:
        return []
    track_update(type_, live, new, managers, ManagerId(manager or "unknown", "Update", api_version, subresource),
                 now, reset, convert)  # fmt: skip
    return encode(managers)


def _current_managers(live: Obj | None, new: Obj, subresource: str) -> Managers:
    stored = live["metadata"].get("managedFields") if live is not None else None
    if subresource:
        return trusted(stored)
    sent = (new.get("metadata") or {}).get("managedFields")
    if sent is None or sent is stored:
        return trusted(stored)
    if is_reset(sent):
        return {}
    if sent == stored:
        return trusted(stored)
    try:
        # A copy: what is written must not hold on to what was sent.
        return decode(deepcopy(sent)) or trusted(stored)
    except BadManagedFields:
        return trusted(stored)


def track_update(
    type_: Type,
    live: Obj,
    new: Obj,
    managers: Managers,
    who: ManagerId,
    now: str,
    reset: Filter | None,
    convert: Converter | None,
) -> None:
    """Changes `managers` into those after the write."""
    if not type_.go:
        reconcile(type_, managers)
    removed, changed = compare_objects(type_, live, new, reset)
    _release(managers, None, removed, changed, live, new, who.api_version, reset, convert, {})
    if changed:
        before = managers.get(who)
        fields = union(before["fieldsV1"], changed) if before is not None else changed
        managers[who] = make_entry(who, who.api_version, fields, now)
    if len(managers) > MAX_UPDATE_MANAGERS:
        cap_updates(managers)


def compare_objects(type_: Type, old: Obj, new: Obj, reset: Filter | None = None) -> tuple[FieldSet, FieldSet]:
    """Return the fields that a write removes, and those it changes or adds, without fields that are never owned or that
    it resets."""
    pair = object_walk_of(type_).diff(old, new)
    if pair is None:
        return EMPTY, EMPTY
    removed, changed = pair[0] or EMPTY, pair[1] or EMPTY
    if reset is not None:
        removed, changed = reset(removed), reset(changed)
    return removed, changed


def _release(
    managers: Managers,
    writer: ManagerId | None,
    removed: FieldSet,
    changed: FieldSet,
    live: Obj,
    new: Obj,
    api_version: str,
    reset: Filter | None,
    convert: Converter | None,
    conflicts: dict[ManagerId, FieldSet],
) -> None:
    """Takes from everybody but `writer` the fields that the write changes or removes. `conflicts` gets who lost which
    fields to a change."""
    versions = {api_version: (removed, changed)}
    for who, entry in list(managers.items()):
        fields = entry["fieldsV1"]
        if who == writer:
            if not fields:
                del managers[who]
            continue
        version = entry["apiVersion"]
        seen = versions.get(version)
        if seen is None:
            if convert is None:
                continue
            seen = versions[version] = _compare_in(version, live, new, reset, convert)
        if seen is _GONE:
            del managers[who]
            continue
        gone, taken = seen
        left = difference(fields, taken) if taken else fields
        if left is not fields:
            conflicts[who] = intersection(fields, taken)
        if gone:
            left = difference(left, gone)
        if not left:
            del managers[who]
        elif left is not fields:
            managers[who] = with_fields(entry, left)


_GONE: tuple[FieldSet, FieldSet] = ({}, {})
"""Marks a version that is no longer served: its entries are dropped."""


def _compare_in(
    version: str, live: Obj, new: Obj, reset: Filter | None, convert: Converter
) -> tuple[FieldSet, FieldSet]:
    old_there, new_there = convert(live, version), convert(new, version)
    if old_there is None or new_there is None:
        return _GONE
    for what, (type_, value) in (("old", old_there), ("new", new_there)):
        found = problems(type_, value)
        if found:
            raise TypeMismatch(f"failed to convert {what} object: {problems_text(found)}")
    return compare_objects(new_there[0], old_there[1], new_there[1], reset)


def take_over(
    type_: Type,
    live: Obj,
    new: Obj,
    managers: Managers,
    who: ManagerId,
    api_version: str,
    force: bool,
    reset: Filter | None,
    convert: Converter | None,
) -> None:
    """Changes `managers` into those after `who`, already among them, applied. Raises Conflicts unless `force`."""
    removed, changed = compare_objects(type_, live, new, reset)
    conflicts: dict[ManagerId, FieldSet] = {}
    _release(managers, who, removed, changed, live, new, api_version, reset, convert, conflicts)
    if conflicts and not force:
        raise Conflicts(conflicts)
