"""TaintNodesByCondition: a new node is tainted as not ready."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.kinds.catalog import Resource
from setpoint.meta.node_fit import NO_SCHEDULE
from setpoint.meta.node_labels import TAINT_NOT_READY


class TaintNodesByCondition(Plugin):
    name = "TaintNodesByCondition"

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation == "CREATE" and (resource.group, resource.plural, subresource) == ("", "nodes", "")

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        spec = attrs.obj.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(taint.get("key") == TAINT_NOT_READY and taint.get("effect") == NO_SCHEDULE for taint in taints):
            spec["taints"] = [*taints, {"key": TAINT_NOT_READY, "effect": NO_SCHEDULE}]
