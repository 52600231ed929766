"""Server-side apply: the live object after a manager applied its configuration.

Fields of the configuration are set and owned; fields that this manager applied before, omits now, and that no other
manager owns, are removed; fields that others own with another value are a conflict, or are overwritten with `force`.
"""

from __future__ import annotations

from typing import Any

from setpoint.meta.apply.check import problems, problems_text
from setpoint.meta.apply.conflicts import Conflicts, TypeMismatch, conflict_error
from setpoint.meta.apply.field_set import Filter, difference
from setpoint.meta.apply.last_applied import allowed_by_last_applied, sync_last_applied
from setpoint.meta.apply.managers import Entry, ManagerId, Managers, encode, make_entry, trusted
from setpoint.meta.apply.merge import merge
from setpoint.meta.apply.ownership import Converter, Obj, empty_object, take_over, track_update
from setpoint.meta.apply.prune import prune
from setpoint.meta.apply.reconcile import reconcile
from setpoint.meta.apply.walk import object_walk_of, walk_of
from setpoint.meta.errors import BadRequest
from setpoint.meta.schema import Type

_BEFORE_FIRST_APPLY = "before-first-apply"


def apply(
    type_: Type,
    live: Obj | None,
    config: Obj,
    *,
    manager: str,
    api_version: str,
    kind: str,
    now: str,
    force: bool = False,
    subresource: str = "",
    reset: Filter | None = None,
    convert: Converter | None = None,
) -> Obj:
    """Return the merged object with its new managedFields; `live` itself if the apply changes nothing at all.

    The result has not been decoded or defaulted. `live` None: the apply creates. Raises BadRequest, TypeMismatch and
    Conflict.
    """
    check_request(config, api_version, kind)
    stored: list[Entry] = (live.get("metadata") or {}).get("managedFields") or [] if live is not None else []
    managers = trusted(stored)
    base = live if live is not None else {**empty_object(type_), "apiVersion": api_version, "kind": kind}
    if not managers and live is not None:
        first = ManagerId(_BEFORE_FIRST_APPLY, "Update", api_version, subresource)
        track_update(type_, empty_object(type_), live, managers, first, now, reset, convert)
    check_types(type_, config)
    who = ManagerId(manager or "unknown", "Apply", "", subresource)

    def attempt(force: bool) -> tuple[Obj, Managers]:
        return _apply_once(type_, base, config, dict(managers), who, api_version, force, reset, convert)

    try:
        merged, after = attempt(force)
    except Conflicts as conflicts:
        # A manager that moves from client-side to server-side apply does not conflict with its own earlier writes.
        allowed = allowed_by_last_applied(type_, base, api_version) if manager == "kubectl" else None
        remaining = conflicts.found if allowed is None else conflicts.beyond(allowed)
        if remaining:
            raise conflict_error(remaining) from None
        merged, after = attempt(True)
    if merged is not base and who in after:
        after[who] = make_entry(who, api_version, after[who]["fieldsV1"], now)
    if manager == "kubectl":
        merged = sync_last_applied(merged, config)
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
    """Raises TypeMismatch."""
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
    type_: Type,
    base: Obj,
    config: Obj,
    managers: Managers,
    who: ManagerId,
    api_version: str,
    force: bool,
    reset: Filter | None,
    convert: Converter | None,
) -> tuple[Obj, Managers]:
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
    take_over(type_, base, merged, managers, who, api_version, force, reset, convert)
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
