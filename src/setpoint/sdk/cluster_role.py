"""The ClusterRole for an operator's service account, derived from its controllers and webhooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from setpoint.sdk.controller import Controller
from setpoint.sdk.kind import Kind

Obj = dict[str, Any]

_READ_VERBS = ("get", "list", "watch")
_WRITE_VERBS = ("create", "delete", "patch")


def cluster_role(operator: str, controllers: Sequence[Controller[Any, Any]], installed: Iterable[Obj]) -> Obj:
    """Return the role with the permissions for everything that the SDK does; permissions for direct use of `ctx.client`
    are not included."""
    grants: dict[tuple[str, str, str], set[str]] = {}

    def grant(group: str, resource: str, verbs: Iterable[str], name: str = "") -> None:
        grants.setdefault((group, resource, name), set()).update(verbs)

    def grant_kind(kind: Kind[Any, Any], verbs: Iterable[str], subresource: str = "") -> None:
        grant(kind.group, f"{kind.plural_name}/{subresource}".rstrip("/"), verbs)

    for controller in controllers:
        grant_kind(controller.kind, (*_READ_VERBS, "patch"))
        grant_kind(controller.kind, ("get", "patch"), "status")
        grant_kind(controller.kind, ("update",), "finalizers")
        for kind in controller.owns:
            grant_kind(kind, (*_READ_VERBS, *_WRITE_VERBS))
        for watch in controller.watches:
            grant_kind(watch.kind, _READ_VERBS)
    grant("", "events", ("create", "patch"))
    grant("coordination.k8s.io", "leases", ("create",))
    grant("coordination.k8s.io", "leases", ("get", "update"), operator)
    for obj in installed:
        group = obj["apiVersion"].rpartition("/")[0]
        plural = f"{obj['kind'].lower()}s"
        grant(group, plural, ("create",))
        grant(group, plural, ("get", "patch", *(("delete",) if "webhooks" in obj else ())), obj["metadata"]["name"])
        if "webhooks" in obj or obj.get("spec", {}).get("conversion"):
            grant("", "secrets", ("create",))
            grant("", "secrets", ("get", "update"), f"{operator}-webhook-tls")
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": operator},
        "rules": [_rule(*key, verbs) for key, verbs in sorted(grants.items())],
    }


def _rule(group: str, resource: str, name: str, verbs: set[str]) -> Obj:
    rule: Obj = {"apiGroups": [group], "resources": [resource], "verbs": sorted(verbs)}
    return {**rule, "resourceNames": [name]} if name else rule
