"""Aggregates the rules of ClusterRoles that a label selector chooses into another ClusterRole."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import from_label_selector
from setpoint.reconcile import Controller, Manager

_CLUSTER_ROLES = builtin("clusterroles", "rbac.authorization.k8s.io")
_AGGREGATED = "aggregated"
"""The index of the roles that have an aggregation rule."""
_WORKERS = 5


def clusterrole_aggregation_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "clusterrole-aggregation-controller"
    client, roles = manager.client_for(name), manager.informer(_CLUSTER_ROLES)

    async def reconcile(key: str) -> None:
        role = roles.get(key)
        if role is None or role.get("aggregationRule") is None:
            return
        rules = _aggregated(role, roles.items.values())
        if rules == (role.get("rules") or []):
            return
        wanted = {"apiVersion": role["apiVersion"], "kind": role["kind"], "metadata": {"name": key}, "rules": rules}
        await client.apply(wanted, field_manager=name, force=True)

    controller = Controller(name, reconcile, manager.clock, workers=_WORKERS)

    def changed(old: Obj | None, new: Obj | None) -> None:
        # Reconcile every aggregated role: there are few of them.
        for role in roles.by_index(_AGGREGATED, ""):
            controller.enqueue(role["metadata"]["name"])

    roles.add_index(_AGGREGATED, lambda role: () if role.get("aggregationRule") is None else ("",))
    roles.add_handler(changed)
    return controller


def _aggregated(role: Obj, roles: Iterable[Obj]) -> list[Obj]:
    """Return the rules of all selected roles except the role itself, without duplicates, ordered by selector and
    name."""
    rules: list[Obj] = []
    candidates = sorted(roles, key=lambda each: str(each["metadata"]["name"]))
    for selector in role["aggregationRule"].get("clusterRoleSelectors") or ():
        chosen = from_label_selector(selector)
        for each in candidates:
            if each["metadata"]["name"] == role["metadata"]["name"]:
                continue
            if chosen.matches(each["metadata"].get("labels") or {}):
                rules += [rule for rule in each.get("rules") or () if rule not in rules]
    return rules
