"""What an operator must be allowed: the ClusterRole for its service account, from what it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from setpoint.sdk.controller import Controller
from setpoint.sdk.kind import Kind

Obj = dict[str, Any]

_LOOK = ("get", "list", "watch")
_MAKE = ("create", "delete", "patch")


def cluster_role(operator: str, controllers: Sequence[Controller[Any, Any]], installed: Iterable[Obj]) -> Obj:
    """All that the SDK does by itself. What a reconcile does with `ctx.client` besides is for its author to add."""
    given: dict[tuple[str, str, str], set[str]] = {}

    def give(group: str, resource: str, verbs: Iterable[str], name: str = "") -> None:
        given.setdefault((group, resource, name), set()).update(verbs)

    def give_kind(kind: Kind[Any, Any], verbs: Iterable[str], subresource: str = "") -> None:
        give(kind.group, f"{kind.plural_name}/{subresource}".rstrip("/"), verbs)

    for controller in controllers:
        give_kind(controller.kind, (*_LOOK, "patch"))
        give_kind(controller.kind, ("get", "patch"), "status")
        give_kind(controller.kind, ("update",), "finalizers")
        for kind in controller.owns:
            give_kind(kind, (*_LOOK, *_MAKE))
        for watch in controller.watches:
            give_kind(watch.kind, _LOOK)
    give("", "events", ("create", "patch"))
    give("coordination.k8s.io", "leases", ("create",))
    give("coordination.k8s.io", "leases", ("get", "update"), operator)
    for obj in installed:
        group = obj["apiVersion"].rpartition("/")[0]
        plural = f"{obj['kind'].lower()}s"
        give(group, plural, ("create",))
        give(group, plural, ("get", "patch", *(("delete",) if "webhooks" in obj else ())), obj["metadata"]["name"])
        if "webhooks" in obj or obj.get("spec", {}).get("conversion"):
            give("", "secrets", ("create",))
            give("", "secrets", ("get", "update"), f"{operator}-webhook-tls")
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": operator},
        "rules": [_rule(*key, verbs) for key, verbs in sorted(given.items())],
    }


def _rule(group: str, resource: str, name: str, verbs: set[str]) -> Obj:
    rule: Obj = {"apiGroups": [group], "resources": [resource], "verbs": sorted(verbs)}
    return {**rule, "resourceNames": [name]} if name else rule
