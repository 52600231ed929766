"""Where upstream keeps an object: it stands in the text of some refusals."""

from __future__ import annotations

from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import Conflict

_SPECIAL = {
    "replicationcontrollers": "controllers",
    "endpoints": "services/endpoints",
    "nodes": "minions",
    "services": "services/specs",
    "networking.k8s.io/ingresses": "ingress",
}
_BY_GROUP = ("apiextensions.k8s.io", "apiregistration.k8s.io")


def storage_path(resource: Resource, namespace: str, name: str) -> str:
    full = f"{resource.group}/{resource.plural}" if resource.group else resource.plural
    if resource.is_custom or resource.group in _BY_GROUP:
        prefix = full
    else:
        prefix = _SPECIAL.get(full, resource.plural)
    return f"/{prefix}/{namespace}/{name}" if resource.namespaced else f"/{prefix}/{name}"


def wrong_uid(resource: Resource, namespace: str, name: str, given: str, found: str, dry_run: bool) -> Conflict:
    """The refusal to write an object that is another one than the client thought, or none at all."""
    path = storage_path(resource, namespace, name)
    key = path if dry_run else f"/registry{path}"
    return Conflict.of(
        resource.group, resource.plural, name,
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {given}, UID in object meta: {found}",
    )  # fmt: skip
