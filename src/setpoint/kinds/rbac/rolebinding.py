"""RoleBinding: a Role or ClusterRole given to subjects in one namespace."""

from __future__ import annotations

from setpoint.kinds.rbac.rules import BindingStrategy


class RoleBindingStrategy(BindingStrategy):
    role_kinds = ("Role", "ClusterRole")
    namespaced = True


STRATEGY = RoleBindingStrategy()
