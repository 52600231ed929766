"""TaintNodesByCondition: a new node takes no Pods until it is known to be ready."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.kinds.catalog import Resource

_KEY, _EFFECT = "node.kubernetes.io/not-ready", "NoSchedule"


class TaintNodesByCondition(Plugin):
    name = "TaintNodesByCondition"

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation == "CREATE" and (resource.group, resource.plural, subresource) == ("", "nodes", "")

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        spec = attrs.obj.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(taint.get("key") == _KEY and taint.get("effect") == _EFFECT for taint in taints):
            spec["taints"] = [*taints, {"key": _KEY, "effect": _EFFECT}]
