"""NamespaceLifecycle: nothing is created in a namespace that is not there or is going, and some never go."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import NotFound

_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
# To say here whether a namespace exists would tell those who may not know.
_REVIEW = ("authorization.k8s.io", "localsubjectaccessreviews")


class NamespaceLifecycle(Plugin):
    name = "NamespaceLifecycle"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        kind = (resource.group, resource.plural)
        if kind == ("", "namespaces"):
            return operation == "DELETE"
        return operation == "CREATE" and resource.namespaced and kind != _REVIEW

    async def mutate(self, attrs: Attributes) -> None:
        if attrs.operation == "DELETE":
            if attrs.name in _IMMORTAL:
                raise attrs.forbidden("this namespace may not be deleted")
            return
        name = attrs.namespace
        namespace = self._reader.get("", "namespaces", "", name)
        if namespace is None:
            raise NotFound.of("", "namespaces", name)
        if namespace.get("status", {}).get("phase") == "Terminating":
            error = attrs.forbidden(f"unable to create new content in namespace {name} because it is being terminated")
            assert error.details is not None
            error.details["causes"] = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {name} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise error
