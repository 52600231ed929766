"""LimitPodHardAntiAffinityTopology: a Pod can keep others off its host, not off a whole zone."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import Forbidden

_HOST = "kubernetes.io/hostname"


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
            if key != _HOST:
                why = (
                    f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {_HOST} "
                    "is allowed"
                )
                raise Forbidden.of("", "pods", attrs.obj["metadata"].get("name", ""), why)
