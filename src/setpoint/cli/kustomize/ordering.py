"""The order of output objects: as in the input, or by kind with dependencies first."""

from __future__ import annotations

from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.kustomize.resource import Id, Resource

_FIRST = (
    "Namespace", "ResourceQuota", "StorageClass", "CustomResourceDefinition", "ServiceAccount", "PodSecurityPolicy",
    "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "ConfigMap", "Secret", "Endpoints", "Service",
    "LimitRange", "PriorityClass", "PersistentVolume", "PersistentVolumeClaim", "Deployment", "StatefulSet", "CronJob",
    "PodDisruptionBudget",
)  # fmt: skip
_LAST = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def ordered(resources: list[Resource], given: Any) -> list[Resource]:
    """Sort by the `sortOptions` in `given`; without them by kind. Raise Failed."""
    first, last = list(_FIRST), list(_LAST)
    if given is not None:
        order = (given or {}).get("order")
        if order not in ("fifo", "legacy"):
            raise Failed("the field 'sortOptions.order' must be one of [fifo, legacy]")
        own = given.get("legacySortOptions")
        if order == "fifo" and own is not None:
            raise Failed(
                "the field 'sortOptions.legacySortOptions' is set but the selected sort order is 'fifo', not 'legacy'"
            )
        if order == "fifo":
            return resources
        if own is not None:
            first, last = list(own.get("orderFirst") or ()), list(own.get("orderLast") or ())
    places = {kind: at - len(first) for at, kind in enumerate(first)} | {kind: at + 1 for at, kind in enumerate(last)}

    def key(one: Resource) -> tuple[Any, ...]:
        found: Id = one.id
        kind = "_".join((found.group or "~G", found.version or "~V", found.kind or "~K"))
        return places.get(found.kind, 0), kind, f"{one.namespace or '~X'}|{found.name or '~N'}"

    return sorted(resources, key=key)
