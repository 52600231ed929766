"""Server-side apply: the live object after a manager applied its configuration."""

from __future__ import annotations

from typing import Any

import orjson

from setpoint.meta.apply.check import problems, problems_text
from setpoint.meta.apply.created import empty_object
from setpoint.meta.apply.field_set import EMPTY, FieldSet, difference, intersection, union
from setpoint.meta.apply.managers import (
    Conflicts,
    Entry,
    ManagerId,
    Managers,
    TypeMismatch,
    conflict_error,
    encode,
    make_entry,
    trusted,
)
from setpoint.meta.apply.merge import merge, remove_items, with_named_fields
from setpoint.meta.apply.ownership import (
    Converter,
    WrittenVersion,
    reconcile,
    track_update,
    transfer_ownership,
)
from setpoint.meta.apply.walk import object_walk_of, walk_of
from setpoint.meta.errors import BadRequest
from setpoint.meta.objects import Obj
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
    """Return `merged` without the fields that are neither in `pruned` nor claimed."""
    retained = union(_named_members(type_, pruned), with_named_fields(type_, claimed))
    result: Obj = remove_items(type_, merged, difference(_named_members(type_, merged), retained)) or {}
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


ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_ANNOTATIONS_LIMIT = 256 * 1024


def _allowed_by_last_applied(type_: Type, live: dict[str, Any], api_version: str) -> FieldSet | None:
    """Return the fields that client-side apply wrote last and that still have that value, or None without the
    annotation."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
    if not text or problems(type_, live):
        return None
    try:
        applied = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if type(applied) is not dict or applied.get("apiVersion") != api_version or problems(type_, applied):
        return None
    walk = walk_of(type_)
    fields = walk.members(applied)
    removed, changed = walk.diff(applied, live) or (None, None)
    return difference(difference(fields, changed or EMPTY), removed or EMPTY)


def _sync_last_applied(obj: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Return `obj` with its annotation, if it has one, telling of this configuration; dropped if that would be too
    large."""
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    if not annotations.get(ANNOTATION):
        return obj
    text = _encoded(config)
    if annotations[ANNOTATION] == text:
        return obj
    annotations = {**annotations, ANNOTATION: text}
    if sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        del annotations[ANNOTATION]
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def _encoded(config: dict[str, Any]) -> str:
    """Return the configuration without the annotation itself, as Go encodes it: sorted, HTML-safe, with a newline."""
    metadata = config.get("metadata") or {}
    annotations = metadata.get("annotations")
    if annotations and ANNOTATION in annotations:
        rest = {name: value for name, value in annotations.items() if name != ANNOTATION}
        config = {**config, "metadata": {**metadata, "annotations": rest}}
    text = orjson.dumps(config, option=orjson.OPT_SORT_KEYS).decode()
    for char in "<>&\u2028\u2029":
        if char in text:
            text = text.replace(char, f"\\u{ord(char):04x}")
    return text + "\n"


_BEFORE_FIRST_APPLY = "before-first-apply"


def apply(
    version: WrittenVersion,
    live: Obj | None,
    config: Obj,
    *,
    manager: str,
    kind: str,
    now: str,
    force: bool = False,
    subresource: str = "",
) -> Obj:
    """Return the merged object with its new managedFields; `live` itself if the apply changes nothing at all.

    The result has not been decoded or defaulted. `live` None: the apply creates. Raises BadRequest, TypeMismatch and
    Conflict.
    """
    type_, api_version = version.type_, version.api_version
    check_request(config, api_version, kind)
    stored: list[Entry] = (live.get("metadata") or {}).get("managedFields") or [] if live is not None else []
    managers = trusted(stored)
    base = live if live is not None else {**empty_object(type_), "apiVersion": api_version, "kind": kind}
    if not managers and live is not None:
        first = ManagerId(_BEFORE_FIRST_APPLY, "Update", api_version, subresource)
        track_update(version, empty_object(type_), live, managers, first, now)
    check_types(type_, config)
    who = ManagerId(manager or "unknown", "Apply", "", subresource)

    def attempt(force: bool) -> tuple[Obj, Managers]:
        return _apply_once(version, base, config, dict(managers), who, force)

    try:
        merged, after = attempt(force)
    except Conflicts as conflicts:
        # A manager that moves from client-side to server-side apply does not conflict with its own earlier writes.
        allowed = _allowed_by_last_applied(type_, base, api_version) if manager == "kubectl" else None
        remaining = conflicts.found if allowed is None else conflicts.beyond(allowed)
        if remaining:
            raise conflict_error(remaining) from None
        merged, after = attempt(True)
    if merged is not base and who in after:
        after[who] = make_entry(who, api_version, after[who]["fieldsV1"], now)
    if manager == "kubectl":
        merged = _sync_last_applied(merged, config)
    entries = encode(after)
    if live is not None and merged is live and entries == stored:
        return live
    return _with_managed_fields(merged, entries)


def check_request(config: Obj, api_version: str, kind: str) -> None:
    """Raise BadRequest unless `config` is of this kind and has no managedFields."""
    if config.get("apiVersion") != api_version or config.get("kind") != kind:
        raise BadRequest(f"invalid object type: {_gvk(config)}")
    if type(_metadata(config).get("managedFields")) is list:
        raise BadRequest("metadata.managedFields must be nil")


def check_types(type_: Type, config: Obj) -> None:
    """Raise TypeMismatch unless the configuration fits the type."""
    found = problems(type_, config)
    if found:
        raise TypeMismatch(f"failed to create typed patch object ({_described(config)}): {problems_text(found)}")


def _metadata(config: Obj) -> Obj:
    metadata = config.get("metadata")
    return metadata if type(metadata) is dict else {}


def _text(value: object) -> str:
    return value if type(value) is str else ""


def _gvk(config: Obj) -> str:
    api_version = _text(config.get("apiVersion"))
    if api_version.count("/") > 1:
        return "/, Kind="
    group, _, version = api_version.rpartition("/")
    return f"{group}/{version}, Kind={_text(config.get('kind'))}"


def _described(config: Obj) -> str:
    metadata = _metadata(config)
    return f"{_text(metadata.get('namespace'))}/{_text(metadata.get('name'))}; {_gvk(config)}"


def _apply_once(
    version: WrittenVersion, base: Obj, config: Obj, managers: Managers, who: ManagerId, force: bool
) -> tuple[Obj, Managers]:
    type_, api_version, reset, convert = version
    if not type_.go:
        reconcile(type_, managers)
    merged: Obj = merge(type_, base, config)
    last = managers.get(who)
    fields = walk_of(type_).members(config)
    if reset is not None:
        fields = reset(fields)
    time = last.get("time") if last is not None else None
    managers[who] = make_entry(who, api_version, fields, time)
    if last is not None and difference(last["fieldsV1"], fields):
        merged = prune(type_, merged, managers, last, api_version, convert)
    transfer_ownership(version, base, merged, managers, who, force)
    owned = object_walk_of(type_).members(config)
    if reset is not None:
        owned = reset(owned)
    if not owned:
        managers.pop(who, None)
    elif who in managers:
        managers[who] = make_entry(who, api_version, owned, time)
    return (base if merged == base else merged), managers


def _with_managed_fields(obj: Obj, entries: list[Entry]) -> Obj:
    metadata: dict[str, Any] = dict(obj.get("metadata") or {})
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)
    return {**obj, "metadata": metadata}
