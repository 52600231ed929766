"""ClusterRoleBinding: a ClusterRole given to subjects everywhere."""

from __future__ import annotations

from setpoint.kinds.rbac.rules import BindingStrategy


class ClusterRoleBindingStrategy(BindingStrategy):
    role_kinds = ("ClusterRole",)
    namespaced = False


STRATEGY = ClusterRoleBindingStrategy()
