"""DefaultIngressClass: an Ingress that names no class gets the default one."""

from __future__ import annotations

from setpoint.apiserver.admission.default_class import default_class
from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource

_GROUP = "networking.k8s.io"
_CLASS = "kubernetes.io/ingress.class"
_DEFAULT = ("ingressclass.kubernetes.io/is-default-class",)


class DefaultIngressClass(Plugin):
    name = "DefaultIngressClass"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation == "CREATE" and (resource.group, resource.plural, subresource) == (_GROUP, "ingresses", "")

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        if _CLASS in (attrs.obj["metadata"].get("annotations") or {}):
            return
        spec = attrs.obj.setdefault("spec", {})
        if spec.get("ingressClassName") is not None:
            return
        name = default_class(self._reader.list(_GROUP, "ingressclasses"), _DEFAULT)
        if name:
            spec["ingressClassName"] = name
