"""Field ownership after a write: which managers lose fields to the writer, and which fields the writer owns now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import NamedTuple

from setpoint.meta.apply.check import problems, problems_text
from setpoint.meta.apply.created import created_fields, empty_object
from setpoint.meta.apply.field_set import EMPTY, FieldSet, Filter, contains, difference, from_paths, intersection, union
from setpoint.meta.apply.managers import (
    MAX_UPDATE_MANAGERS,
    BadManagedFields,
    Conflicts,
    Entry,
    ManagerId,
    Managers,
    TypeMismatch,
    cap_updates,
    decode,
    encode,
    id_of,
    is_reset,
    make_entry,
    trusted,
    with_fields,
)
from setpoint.meta.apply.merge import member_type
from setpoint.meta.apply.walk import object_walk_of, walk_of
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Shape, Type

_CONTAINERS = frozenset({Shape.STRUCT, Shape.MAP, Shape.LIST})


def reconcile(type_: Type, managers: Managers) -> None:
    """Give each owner of parts of a field that has since become atomic the whole field, in place."""
    for who, entry in managers.items():
        fields = _reconciled(type_, entry["fieldsV1"])
        if fields is not entry["fieldsV1"]:
            managers[who] = with_fields(entry, fields)


def _reconciled(type_: Type, fields: FieldSet) -> FieldSet:
    out = fields
    for element, node in fields.items():
        if not node:
            continue
        below = _type_below(type_, element)
        if below is None or below.shape not in _CONTAINERS:
            continue
        new = EMPTY if walk_of(below).leaf else _reconciled(below, node)
        if new is not node:
            if out is fields:
                out = dict(fields)
            out[element] = new
    return out


def _type_below(type_: Type, element: str) -> Type | None:
    if element[0] == "f":
        if type_.shape is Shape.STRUCT and element[2:] not in type_.fields:
            return None
        return member_type(type_, element[2:])
    return type_.item if type_.shape is Shape.LIST else None


Converter = Callable[[Obj, str], tuple[Type, Obj] | None]
"""Function that returns an object in another version with that version's type, or None if it is not served."""


class WrittenVersion(NamedTuple):
    """The version in which a manager writes an object."""

    type_: Type
    api_version: str
    reset: Filter | None = None
    """Removes the fields that this write resets, which therefore get no owner; None if it resets none."""
    convert: Converter | None = None
    """Converts objects to the versions of other managers' entries; None leaves these entries unchanged."""


def update(
    version: WrittenVersion, live: Obj | None, new: Obj, *, manager: str, now: str, subresource: str = ""
) -> list[Entry]:
    """Return the managedFields of `new` when `manager` writes it over `live` (None means a create); may be empty.

    `new["metadata"]["managedFields"]` is what the client sent: used if it is valid, treated as a request to remove all
    ownership if it is `[]` or `[{}]`, and otherwise, or on subresources, ignored in favour of the stored list.
    Entries of other versions stay unchanged unless the objects can be converted to those versions.
    """
    managers = _current_managers(live, new, subresource)
    who = ManagerId(manager or "unknown", "Update", version.api_version, subresource)
    if live is None:
        if not managers:
            fields = created_fields(version.type_, new, version.reset)
            return [make_entry(who, who.api_version, fields, now)] if fields else []
        live = empty_object(version.type_)
    elif not managers:
        return []
    track_update(version, live, new, managers, who, now)
    return encode(managers)


def _current_managers(live: Obj | None, new: Obj, subresource: str) -> Managers:
    stored = live["metadata"].get("managedFields") if live is not None else None
    if subresource:
        return trusted(stored)
    sent = (new.get("metadata") or {}).get("managedFields")
    if sent is None or sent is stored:
        return trusted(stored)
    if sent == stored:
        return trusted(stored)
    if is_reset(sent):
        return {}
    try:
        # A copy, so that the stored object does not reference the request body.
        return decode(deepcopy(sent)) or trusted(stored)
    except BadManagedFields:
        return trusted(stored)


def track_update(version: WrittenVersion, live: Obj, new: Obj, managers: Managers, who: ManagerId, now: str) -> None:
    """Update `managers` in place to those after the write."""
    if not version.type_.go:
        reconcile(version.type_, managers)
    removed, changed = _compare_objects(version.type_, live, new, version.reset)
    # Most updates change fields that the writer owns already. They are not removed from its set and added again.
    owned: FieldSet = managers[who]["fieldsV1"] if who in managers else EMPTY
    keeps = bool(changed) and not removed and union(owned, changed) is owned
    if keeps:
        del managers[who]
    if managers:
        _release(version, live, new, managers, None, (removed, changed))
    if changed:
        if not keeps:
            before = managers.get(who)
            owned = union(before["fieldsV1"], changed) if before is not None else changed
        # The set of an entry that keeps its fields is shared already.
        managers[who] = make_entry(who, who.api_version, owned, now, is_shared=keeps)
    if len(managers) > MAX_UPDATE_MANAGERS:
        cap_updates(managers)


def _compare_objects(type_: Type, old: Obj, new: Obj, reset: Filter | None = None) -> tuple[FieldSet, FieldSet]:
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
    written: WrittenVersion,
    live: Obj,
    new: Obj,
    managers: Managers,
    writer: ManagerId | None,
    compared: tuple[FieldSet, FieldSet],
) -> dict[ManagerId, FieldSet]:
    """Remove the fields that the write removes or changes, as `compared` says, from all managers but `writer`.

    Return the managers that lose fields to a change, with these fields."""
    conflicts: dict[ManagerId, FieldSet] = {}
    versions = {written.api_version: compared}
    for who, entry in list(managers.items()):
        fields = entry["fieldsV1"]
        if who == writer:
            if not fields:
                del managers[who]
            continue
        version = entry["apiVersion"]
        seen = versions.get(version)
        if seen is None:
            if written.convert is None:
                continue
            seen = versions[version] = _compare_in(version, live, new, written.reset, written.convert)
        if seen is _GONE:
            del managers[who]
            continue
        gone, conflicting = seen
        left = difference(fields, conflicting) if conflicting else fields
        if left is not fields:
            conflicts[who] = intersection(fields, conflicting)
        if gone:
            left = difference(left, gone)
        if not left:
            del managers[who]
        elif left is not fields:
            managers[who] = with_fields(entry, left)
    return conflicts


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
    return _compare_objects(new_there[0], old_there[1], new_there[1], reset)


def transfer_ownership(
    version: WrittenVersion, live: Obj, new: Obj, managers: Managers, who: ManagerId, force: bool
) -> None:
    """Update `managers`, which contains `who`, in place after `who` applied; raise Conflicts unless `force`."""
    conflicts = _release(version, live, new, managers, who, _compare_objects(version.type_, live, new, version.reset))
    if conflicts and not force:
        raise Conflicts(conflicts)


SCALE_VERSION = "autoscaling/v1"
_REPLICAS_IN_SCALE = ("f:spec", "f:replicas")

ReplicasPaths = Mapping[str, tuple[str, ...] | None]
"""Path of the replicas in the scaled kind, by version; None if that version has no scale subresource."""


def to_scale(entries: list[Entry], paths: ReplicasPaths) -> list[Entry]:
    """Return the managedFields of a Scale, from those of the scaled object."""
    owners: Managers = {}
    for who, entry in trusted(entries).items():
        path = paths.get(entry["apiVersion"])
        if path is not None and contains(entry["fieldsV1"], path):
            owners[who] = make_entry(who, SCALE_VERSION, from_paths(_REPLICAS_IN_SCALE), entry.get("time"))
    return encode(owners)


def to_parent(entries: list[Entry], scale_entries: list[Entry], api_version: str, paths: ReplicasPaths) -> list[Entry]:
    """Return the managedFields of the scaled object after its Scale was written with `scale_entries`.

    As upstream, an updater that retained the replicas is recorded as their new owner in its old entry, without a time.
    """
    scaled = trusted(scale_entries)
    parents = trusted(entries)
    after: Managers = {}
    for who, entry in parents.items():
        version = entry["apiVersion"]
        if version not in paths:
            continue
        path = paths[version]
        if path is None or not contains(entry["fieldsV1"], path) or scaled.pop(who, None) is not None:
            after[who] = entry
            continue
        left = difference(entry["fieldsV1"], from_paths(path))
        if left:
            after[who] = with_fields(entry, left)
    path = paths[api_version]
    assert path is not None
    for who, entry in scaled.items():
        if contains(entry["fieldsV1"], _REPLICAS_IN_SCALE):
            time = parents[who].get("time") if who in parents else None
            after[id_of(entry)] = make_entry(who, api_version, from_paths(path), time)
    return encode(after)


def retain_times(live: Obj, new: Obj) -> Obj:
    """Return `new` with the times of `live` in its managedFields if it differs from `live` in those times only.

    For a finished object, after defaults and admission; a caller then finds it equal to `live`.
    """
    old_entries = live["metadata"].get("managedFields") or []
    entries = new["metadata"].get("managedFields") or []
    if not entries or len(entries) != len(old_entries) or entries == old_entries:
        return new
    if any(_timeless(entry) != _timeless(old) for entry, old in zip(entries, old_entries)):
        return new
    settled = {**new, "metadata": {**new["metadata"], "managedFields": old_entries}}
    return settled if settled == live else new


def _timeless(entry: Obj) -> Obj:
    return {name: value for name, value in entry.items() if name != "time"}
