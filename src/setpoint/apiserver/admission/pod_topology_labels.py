"""PodTopologyLabels: a Pod that is bound to a node gets the node's zone and region labels."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.node_labels import REGION, ZONE

_LABELS = (ZONE, REGION)


class PodTopologyLabels(Plugin):
    name = "PodTopologyLabels"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return (
            operation == "CREATE"
            and (resource.group, resource.plural) == ("", "pods")
            and subresource in ("", "binding")
        )

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        if attrs.subresource:
            # The labels of a Binding are copied to its Pod.
            target = attrs.obj.get("target") or {}
            name = target.get("name", "") if target.get("kind") == "Node" else ""
        else:
            name = attrs.obj["spec"].get("nodeName", "")
        node = self._reader.get("", "nodes", "", name) if name else None
        if node is None:
            return
        labels = node["metadata"].get("labels") or {}
        copied = {key: labels[key] for key in _LABELS if key in labels}
        if copied:
            meta = attrs.obj.setdefault("metadata", {})
            meta["labels"] = {**(meta.get("labels") or {}), **copied}
