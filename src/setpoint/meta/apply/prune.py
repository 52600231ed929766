"""Removal by omission: a field that a manager applied before and omits now is removed, unless another manager owns
it."""

from __future__ import annotations

from setpoint.meta.apply.field_set import EMPTY, FieldSet, difference, intersection, union
from setpoint.meta.apply.managers import Entry, Managers
from setpoint.meta.apply.ownership import Converter, Obj
from setpoint.meta.apply.remove import remove_items, with_named_fields
from setpoint.meta.apply.walk import walk_of
from setpoint.meta.schema import Type


def prune(
    type_: Type, merged: Obj, managers: Managers, last: Entry, api_version: str, convert: Converter | None
) -> Obj:
    """Return `merged` without the fields of the `last` entry of the applying manager that no entry in `managers` holds.

    `managers` already has the new entry of the applying manager. Fields are judged in the version in which they were
    last applied.
    """
    version = last["apiVersion"]
    if version == api_version:
        return _prune(type_, merged, managers, last["fieldsV1"], version, convert)
    there = convert(merged, version) if convert is not None else None
    if there is None:
        return merged
    assert convert is not None
    pruned = _prune(there[0], there[1], managers, last["fieldsV1"], version, convert)
    back = convert(pruned, api_version)
    return back[1] if back is not None else merged


def _prune(
    type_: Type, merged: Obj, managers: Managers, last: FieldSet, version: str, convert: Converter | None
) -> Obj:
    named_last = with_named_fields(type_, last)
    pruned: Obj = remove_items(type_, merged, named_last) or {}
    claimed: dict[str, FieldSet] = {}
    for entry in managers.values():
        there = entry["apiVersion"]
        claimed[there] = union(claimed.get(there, EMPTY), entry["fieldsV1"])
    pruned = _add_back(type_, merged, pruned, claimed.pop(version, EMPTY))
    for other, fields in claimed.items():
        pruned = _add_back_in(other, version, merged, pruned, fields, convert)
    everything = _named_members(type_, merged)
    dangling = difference(everything, _named_members(type_, pruned))
    result: Obj = remove_items(type_, merged, intersection(dangling, named_last))
    return result


def _named_members(type_: Type, obj: Obj) -> FieldSet:
    return with_named_fields(type_, walk_of(type_).members(obj))


def _add_back(type_: Type, merged: Obj, pruned: Obj, claimed: FieldSet) -> Obj:
    """Return `merged` without what is neither in `pruned` nor claimed."""
    kept = union(_named_members(type_, pruned), with_named_fields(type_, claimed))
    result: Obj = remove_items(type_, merged, difference(_named_members(type_, merged), kept)) or {}
    return result


def _add_back_in(
    version: str, back: str, merged: Obj, pruned: Obj, claimed: FieldSet, convert: Converter | None
) -> Obj:
    """Add back claimed fields of another version; claims in versions that cannot be converted are ignored."""
    if convert is None:
        return pruned
    merged_there, pruned_there = convert(merged, version), convert(pruned, version)
    if merged_there is None or pruned_there is None:
        return pruned
    result = convert(_add_back(merged_there[0], merged_there[1], pruned_there[1], claimed), back)
    return result[1] if result is not None else pruned
