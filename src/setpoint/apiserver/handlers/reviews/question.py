"""What all reviews share: how a question is read and admitted, and how the answer goes out."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from setpoint.apiserver.admission.plugin import Attributes, Chain
from setpoint.apiserver.bodies import read_resource
from setpoint.apiserver.call import Call
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.options import write_options
from setpoint.apiserver.preparation import OTHER_NAMESPACE
from setpoint.apiserver.rendering import respond
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import UserInfo
from setpoint.meta import apply
from setpoint.meta.errors import BadRequest, Invalid
from setpoint.meta.field import Errors
from setpoint.meta.times import format_time

_META_ORDER = (
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers",
    "managedFields",
)  # fmt: skip
_SYSTEM_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


def read(
    call: Call, resource: Resource, default: Callable[[Obj], None] | None = None, *, keep_system_fields: bool = False
) -> Obj:
    """The question in the body, in the namespace of the request, with its fields owned by the caller."""
    write_options(call, "CreateOptions")
    obj = read_resource(call, resource)
    if default is not None:
        default(obj)
    call.sent(obj, resource.kind, resource.api_version)
    meta, namespace = obj["metadata"], call.target.namespace
    if not keep_system_fields:
        for name in _SYSTEM_FIELDS:
            meta.pop(name, None)
    if namespace and meta.get("namespace", namespace) != namespace:
        raise BadRequest(OTHER_NAMESPACE)
    meta.pop("namespace", None)
    if namespace:
        meta["namespace"] = namespace
    entries = apply.update(
        resource.type, None, obj, manager=call.field_manager, api_version=resource.api_version,
        subresource=call.target.subresource, now=format_time(call.now),
    )  # fmt: skip
    if entries:
        meta["managedFields"] = entries
    obj["metadata"] = ordered(meta)
    return obj


def ordered(meta: Obj) -> Obj:
    return {name: meta[name] for name in _META_ORDER if name in meta}


async def admit(call: Call, admission: Chain, obj: Obj) -> None:
    """Checks the question and lets admission see it. Raises."""
    resource = call.resource
    assert resource is not None
    attrs = Attributes(
        operation="CREATE", resource=resource, subresource="", namespace=call.target.namespace,
        name=obj["metadata"].get("name", ""), obj=obj, old=None, user=call.user, now=call.now, dry_run=call.dry_run,
        warnings=call.warnings,
    )  # fmt: skip
    if call.audit is not None:
        attrs.audit, attrs.audit_objects = call.audit.annotations, call.audit.tells_objects
    await admission.mutate(attrs)
    errs: Errors = []
    await call.work(resource.strategy.validate, obj, errs, call.context())
    if errs:
        # Upstream has forgotten the kind by then.
        raise Invalid.of(resource.group, "", "", errs)
    await admission.validate(attrs)


def answer(resource: Resource, form: Form, obj: Obj) -> Answer:
    body = {"kind": resource.kind, "apiVersion": resource.api_version, **obj}
    return respond(form, orjson.dumps(body) + b"\n", 201)


def user_info(user: UserInfo) -> Obj:
    """A user as authentication.k8s.io writes it; what is empty is left out."""
    extra = {key: list(user.extra[key]) for key in sorted(user.extra)}
    info = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}
    return {key: value for key, value in info.items() if value}
