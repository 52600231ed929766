"""StorageObjectInUseProtection: new volumes, claims and volume attribute classes get a protection finalizer."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.kinds.catalog import Resource

_FINALIZERS = {
    ("", "persistentvolumes"): "kubernetes.io/pv-protection",
    ("", "persistentvolumeclaims"): "kubernetes.io/pvc-protection",
    ("storage.k8s.io", "volumeattributesclasses"): "kubernetes.io/vac-protection",
}


class StorageObjectInUseProtection(Plugin):
    name = "StorageObjectInUseProtection"

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation == "CREATE" and not subresource and (resource.group, resource.plural) in _FINALIZERS

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        finalizer = _FINALIZERS[(attrs.resource.group, attrs.resource.plural)]
        meta = attrs.obj["metadata"]
        present = meta.get("finalizers") or []
        if finalizer not in present:
            meta["finalizers"] = [*present, finalizer]
