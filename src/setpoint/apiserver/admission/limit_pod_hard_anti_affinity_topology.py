"""LimitPodHardAntiAffinityTopology: required anti-affinity may use only the topology of hosts."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import Forbidden
from setpoint.meta.node_labels import HOSTNAME


class LimitPodHardAntiAffinityTopology(Plugin):
    name = "LimitPodHardAntiAffinityTopology"

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        kind = (resource.group, resource.plural, subresource)
        return operation in ("CREATE", "UPDATE") and kind == ("", "pods", "")

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        affinity = (attrs.obj["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            key = term.get("topologyKey", "")
            if key != HOSTNAME:
                why = (
                    f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} "
                    "is allowed"
                )
                raise Forbidden.of("", "pods", attrs.obj["metadata"].get("name", ""), why)
