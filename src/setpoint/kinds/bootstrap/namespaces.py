"""The namespaces that are always there: deleted, they come back."""

from __future__ import annotations

from setpoint.kinds.strategy import Obj

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def namespaces() -> list[Obj]:
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in SYSTEM_NAMESPACES]
