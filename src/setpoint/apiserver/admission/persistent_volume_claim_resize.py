"""PersistentVolumeClaimResize: only bound claims of a class that allows expansion may grow."""

from __future__ import annotations

from setpoint.apiserver.admission.default_classes import BETA_STORAGE_CLASS_ANNOTATION
from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import compare


class PersistentVolumeClaimResize(Plugin):
    name = "PersistentVolumeClaimResize"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        kind = (resource.group, resource.plural, subresource)
        return operation == "UPDATE" and kind == ("", "persistentvolumeclaims", "")

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None and attrs.old is not None
        if compare(_size(attrs.obj), _size(attrs.old)) <= 0:
            return
        if (attrs.old.get("status") or {}).get("phase") != "Bound":
            raise attrs.forbidden("Only bound persistent volume claims can be expanded")
        name = _class(attrs.obj)
        found = self._reader.get("storage.k8s.io", "storageclasses", "", name) if name else None
        if name != _class(attrs.old) or found is None or not found.get("allowVolumeExpansion"):
            raise attrs.forbidden(
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
                "support resize"
            )


def _size(claim: Obj) -> str:
    size: str = ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0")
    return size


def _class(claim: Obj) -> str:
    annotations = claim["metadata"].get("annotations") or {}
    name: str = annotations.get(BETA_STORAGE_CLASS_ANNOTATION, claim["spec"].get("storageClassName") or "")
    return name
