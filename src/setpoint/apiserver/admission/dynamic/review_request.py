"""A write as policies and webhooks are told of it: the AdmissionRequest, without the objects themselves."""

from __future__ import annotations

from setpoint.apiserver.admission.dynamic.served import Kind, kind_of
from setpoint.apiserver.admission.plugin import Attributes, Obj
from setpoint.kinds.catalog import Resource

_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


def namespace_of(attrs: Attributes) -> str:
    """A Namespace is taken to be in itself."""
    if not attrs.namespace and attrs.is_("", "namespaces", attrs.subresource):
        return attrs.name
    return attrs.namespace


def options_of(attrs: Attributes) -> Obj | None:
    kind = _OPTIONS.get(attrs.operation)
    if kind is None:
        return None
    options: Obj = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if attrs.operation == "DELETE":
        return options | dict(attrs.delete_options)
    for name in ("dryRun", "fieldManager", "fieldValidation"):
        values = [value for value in attrs.query.get(name, ()) if value]
        if values:
            options[name] = values if name == "dryRun" else values[0]
    return options


def user_of(attrs: Attributes) -> Obj:
    user = attrs.user
    info = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(user.extra[key]) for key in sorted(user.extra)},
    }
    return {key: value for key, value in info.items() if value}


def _kind(kind: Kind) -> Obj:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(resource: Resource) -> Obj:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def request_of(attrs: Attributes, matched: Resource) -> Obj:
    """`matched`: the resource as whom the request was matched, which need not be the one that was asked for."""
    request: Obj = {"kind": _kind(kind_of(matched, attrs.subresource)), "resource": _resource(matched)}
    if attrs.subresource:
        request["subResource"] = attrs.subresource
    request["requestKind"] = _kind(kind_of(attrs.resource, attrs.subresource))
    request["requestResource"] = _resource(attrs.resource)
    if attrs.subresource:
        request["requestSubResource"] = attrs.subresource
    if attrs.name:
        request["name"] = attrs.name
    namespace = namespace_of(attrs)
    if namespace:
        request["namespace"] = namespace
    request["operation"] = attrs.operation
    request["userInfo"] = user_of(attrs)
    request["dryRun"] = attrs.dry_run
    request["options"] = options_of(attrs)
    return request
