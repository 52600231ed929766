"""Writes as the page shows them: who wrote which objects, what has changed in them, and why.

A described write is a JSON object:

    {"revision": 291, "cause": {...}, "actor": "replicaset-controller", "person": false,
     "objects": [{"group": "", "version": "v1", "resource": "pods", "kind": "Pod",
                  "namespace": "default", "name": "web-x7", "uid": "...",
                  "owner": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "..."},
                  "part": "created", "action": "created", "changes": ["image nginx:1.29"], "fields": [...]}]}

`part` is what the write concerns: `created`, `spec`, `status`, `metadata`, `deleted`, or `heartbeat` if only times have
changed. `fields` are the changed fields with their values, as far as both are short.
"""

from __future__ import annotations

import json
from typing import Any

from setpoint.meta.cause import WriteCause
from setpoint.meta.objects import ObjView
from setpoint.view.actors import actor_of, is_component
from setpoint.view.changes import ABSENT, FieldChange, short_value
from setpoint.view.history import cause_to_json
from setpoint.view.why.steps import CREATION, DELETION, HEARTBEAT, Change, action_of

CREATED, SPEC, STATUS, METADATA, DELETED, HEARTBEATS = "created", "spec", "status", "metadata", "deleted", "heartbeat"
_MAX_FIELDS = 24
"""Number of changed fields of an object that are sent."""
_MAX_VALUE = 400
"""Length of a value up to which it is sent as it is."""


def described_write(revision: int, cause: WriteCause | None, objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the JSON form of a write."""
    found: dict[str, Any] = {"revision": revision, "actor": actor_of(cause), "person": is_person(cause)}
    if cause is not None:
        found["cause"] = cause_to_json(cause)
    return {**found, "objects": objects}


def is_person(cause: WriteCause | None) -> bool:
    """Return whether a person made the write, by any program, rather than a part of the system or a controller."""
    return cause is not None and bool(cause.user) and not is_component(cause) and not cause.claim.reconcile


def described_object(change: Change, version: str) -> dict[str, Any]:
    """Return the JSON form of the change of one object. `version` is the preferred version of its resource."""
    ref = change.ref
    action, texts = action_of(change)
    found: dict[str, Any] = {
        "group": ref.group,
        "version": version,
        "resource": ref.plural,
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "part": part_of(change),
        "action": action,
    }
    meta = change.obj.get("metadata") or {}
    if uid := meta.get("uid"):
        found["uid"] = uid
    if owner := _controller(meta):
        found["owner"] = owner
    if texts:
        found["changes"] = texts
    if change.before is not None and change.now is not None:
        found["fields"] = [_field(each) for each in change.fields[:_MAX_FIELDS]]
    return found


def part_of(change: Change) -> str:
    """Return which part of the object a write concerns."""
    rank = change.rank
    if rank == DELETION:
        return DELETED
    if rank == CREATION:
        return CREATED
    if rank == HEARTBEAT and change.known:
        return HEARTBEATS
    parts = {each.path[0] for each in change.fields if each.path}
    if parts - {"status", "metadata"}:
        return SPEC
    return STATUS if "status" in parts or not change.known else METADATA


def _controller(meta: ObjView) -> dict[str, str]:
    """Return the controlling owner of an object; empty if it has none."""
    for each in meta.get("ownerReferences") or ():
        if each.get("controller"):
            return {name: str(each.get(name, "")) for name in ("apiVersion", "kind", "name", "uid")}
    return {}


def _field(change: FieldChange) -> dict[str, Any]:
    found: dict[str, Any] = {"path": list(change.path)}
    for name, value in (("old", change.old), ("new", change.new)):
        if value is not ABSENT:
            found[name] = value if len(json.dumps(value)) <= _MAX_VALUE else short_value(value)
    return found
