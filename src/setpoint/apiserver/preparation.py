"""The pure part of the prepare step of a write: system fields, preparation and validation by the kind, stored form."""

from __future__ import annotations

import orjson

from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import Context, Strategy
from setpoint.meta import chunked_json
from setpoint.meta.clock import Ids
from setpoint.meta.errors import BadRequest
from setpoint.meta.field import Errors
from setpoint.meta.names import path_segment, path_segment_prefix
from setpoint.meta.objectmeta import (
    validate_object_meta,
    validate_object_meta_update,
    validate_qualified_finalizers,
)
from setpoint.meta.objects import Obj

OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"
_SYSTEM_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


_META_ORDER = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
_STORED_ORDER = tuple(name for name in _META_ORDER if name != "resourceVersion")


def fill_system_fields(meta: Obj, ids: Ids, timestamp: str) -> None:
    """Set the fields that the server alone determines for a new object."""
    for name in _SYSTEM_FIELDS:
        meta.pop(name, None)
    meta["uid"] = ids.uid()
    meta["creationTimestamp"] = timestamp


def match_namespace(resource: Resource, ctx: RequestContext, meta: Obj) -> None:
    """Set the namespace of the request. Raises BadRequest if the object has another one."""
    wanted = ctx.target.namespace if resource.namespaced else ""
    given = meta.get("namespace", "")
    if not given and wanted:
        meta["namespace"] = wanted
    elif given != wanted:
        if not resource.namespaced:
            meta.pop("namespace", None)
            return
        raise BadRequest(OTHER_NAMESPACE)


def unshare(obj: Obj, live: Obj) -> None:
    """Copy what `obj` shares with the stored object, because admission and the kind may change it."""
    for key, value in obj.items():
        if value is live.get(key) and isinstance(value, dict | list):
            obj[key] = chunked_json.read(orjson.dumps(value))


def prepare_create(resource: Resource, obj: Obj, ctx: Context) -> Errors:
    """Let the kind prepare the object for its creation, and return the validation errors."""
    strategy, meta = resource.strategy, obj["metadata"]
    strategy.prepare_for_create(obj, ctx)
    errs: Errors = []
    validate_object_meta(meta, resource.namespaced, strategy.validate_name, "metadata", errs)
    if strategy.qualified_finalizers and "finalizers" in meta:
        validate_qualified_finalizers(meta, "metadata", errs)
    strategy.validate(obj, errs, ctx)
    return errs


def prepare_update(resource: Resource, obj: Obj, old: Obj, strategy: Strategy, ctx: Context) -> Errors:
    """Let the kind prepare the new state of an object, and return the validation errors.

    `strategy` is that of the subresource, if the object is written through one."""
    meta, old_meta = obj["metadata"], old["metadata"]
    strategy.prepare_for_update(obj, old, ctx)
    if resource.strategy.has_generation and resource.strategy.is_new_generation(obj, old):
        meta["generation"] = old_meta.get("generation", 0) + 1
    if not meta.get("uid"):
        meta["uid"] = old_meta["uid"]
    restore_field(meta, old_meta, "creationTimestamp")
    meta.pop("selfLink", None)
    if old_meta.get("deletionTimestamp"):
        meta["deletionTimestamp"] = old_meta["deletionTimestamp"]
    if "deletionGracePeriodSeconds" in old_meta:
        meta.setdefault("deletionGracePeriodSeconds", old_meta["deletionGracePeriodSeconds"])
    errs: Errors = []
    validate_object_meta(meta, resource.namespaced, _validate_path_segment, "metadata", errs)
    validate_object_meta_update(meta, old_meta, "metadata", errs, is_valid=not errs)
    if strategy.qualified_finalizers and "finalizers" in meta:
        validate_qualified_finalizers(meta, "metadata", errs)
    strategy.validate_update(obj, old, errs, ctx)
    return errs


def restore_field(meta: Obj, old: Obj, name: str) -> None:
    """Give a field its old value, or remove it if it had none."""
    if name in old:
        meta[name] = old[name]
    else:
        meta.pop(name, None)


def _validate_path_segment(name: str, prefix: bool) -> list[str]:
    return path_segment_prefix(name) if prefix else path_segment(name)


def stored_form(obj: Obj) -> Obj:
    """Return the object as it is stored: metadata in order, without resourceVersion."""
    meta = obj["metadata"]
    form: Obj = {"metadata": None, **obj}
    form["metadata"] = {name: meta[name] for name in _STORED_ORDER if name in meta}
    return form


def put_in_order(obj: Obj) -> None:
    """Put the metadata into upstream's order: the uid must precede every field that a user can fill freely."""
    meta = obj["metadata"]
    ordered = {name: meta[name] for name in _META_ORDER if name in meta}
    obj["metadata"] = ordered
