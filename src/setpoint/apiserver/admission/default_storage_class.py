"""DefaultStorageClass: a claim that names no class gets the default one."""

from __future__ import annotations

from setpoint.apiserver.admission.default_class import default_class
from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource

BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


class DefaultStorageClass(Plugin):
    name = "DefaultStorageClass"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        kind = (resource.group, resource.plural, subresource)
        return operation == "CREATE" and kind == ("", "persistentvolumeclaims", "")

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        spec = attrs.obj["spec"]
        # An empty name is a choice too: no class at all.
        if spec.get("storageClassName") is not None or BETA_CLASS in (attrs.obj["metadata"].get("annotations") or {}):
            return
        name = default_class(self._reader.list("storage.k8s.io", "storageclasses"), _DEFAULT)
        if name:
            spec["storageClassName"] = name
