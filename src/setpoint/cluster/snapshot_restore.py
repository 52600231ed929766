"""Plans to bring the objects of a snapshot into a running cluster: missing ones are created, changed ones restored.

A plan (`view/undo.py`) consists of ordinary requests with the rights of the client. Nothing is deleted, and objects
that components make are left to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from setpoint.client.resources import BY_PLURAL
from setpoint.cluster.cluster_copy import ClusterCopy
from setpoint.cluster.snapshot_file import INCLUDED
from setpoint.cluster.virtual.stored_state import kind_of
from setpoint.meta.objects import Obj, ObjView
from setpoint.view.made_anew import Taken
from setpoint.view.undo import Planner
from setpoint.view.undo_plan import ObjectRef, Options, Plan

_LEFT_OUT = (
    "core/events/",
    "core/nodes/",
    "core/endpoints/",
    "coordination.k8s.io/leases/",
    "discovery.k8s.io/endpointslices/",
    "networking.k8s.io/ipaddresses/",
    "storage.k8s.io/csinodes/",
    "storage.k8s.io/volumeattachments/",
)
"""Prefixes of objects that follow from others, or report what components do."""
_SECRETS, _SERVICES = "core/secrets/", "core/services/"


class _Present:
    """The present state of a cluster, as it was copied."""

    def __init__(self, copy: ClusterCopy) -> None:
        self.objects: dict[str, Obj] = {key: orjson.loads(item.value) for key, item in copy.objects.items()}
        self._places = {_place(object_ref(key, obj)): obj for key, obj in self.objects.items()}

    def find(self, api_version: str, kind: str, namespace: str, name: str) -> ObjView | None:
        group = api_version.rpartition("/")[0]
        return self._places.get((group, kind, namespace, name)) or self._places.get((group, kind, "", name))

    def taken(self) -> Taken:
        return Taken.by(obj for key, obj in self.objects.items() if key.startswith(_SERVICES))


def _place(ref: ObjectRef) -> tuple[str, str, str, str]:
    return ref.group, ref.kind, ref.namespace, ref.name


_VERSIONS = {
    (resource.group, resource.plural): resource.version
    for resource in BY_PLURAL.values()
    if resource.storage == (resource.group, resource.version)
}


def object_ref(key: str, obj: Mapping[str, Any]) -> ObjectRef:
    """Return the identity of a stored object."""
    group, plural, rest = key.split("/", 2)
    group = "" if group == "core" else group
    version = _VERSIONS.get((group, plural)) or str(obj.get("apiVersion", "")).rpartition("/")[2]
    namespace, _, name = rest.rpartition("/")
    return ObjectRef(group, version, plural, kind_of(key, obj), namespace, name)


def restore_plan(wanted: ClusterCopy, current: ClusterCopy, options: Options) -> Plan:
    """Return the plan that brings the objects of one copy into the cluster that the other was made of."""
    present = _Present(current)
    planner = Planner(present, options)
    for key in sorted(wanted.objects):
        if key.startswith(_LEFT_OUT) or (key.startswith(_SECRETS) and wanted.secrets != INCLUDED):
            continue
        obj: Obj = orjson.loads(wanted.objects[key].value)
        if obj["metadata"].get("deletionTimestamp"):
            continue
        ref, now = object_ref(key, obj), present.objects.get(key)
        if now is None or now["metadata"].get("deletionTimestamp"):
            planner.create(ref, obj, now)
        else:
            planner.restore(ref, obj, now)
    return planner.plan()
