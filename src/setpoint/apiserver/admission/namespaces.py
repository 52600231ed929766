"""NamespaceLifecycle, NamespaceExists and NamespaceAutoProvision: the namespace of an object must exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import AlreadyExists, ApiError, Forbidden, NotFound

_PROTECTED = frozenset({"default", "kube-system", "kube-public"})
# This review must not reveal whether a namespace exists.
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
            if attrs.name in _PROTECTED:
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


class NamespaceExists(Plugin):
    name = "NamespaceExists"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation != "CONNECT" and resource.namespaced

    async def validate(self, attrs: Attributes) -> None:
        if self._reader.get("", "namespaces", "", attrs.namespace) is None:
            raise NotFound.of("", "namespaces", attrs.namespace)


CreateNamespace = Callable[[str], Awaitable[object]]
"""Creates the namespace of this name as the server itself. Raises ApiError."""


class NamespaceAutoProvision(Plugin):
    name = "NamespaceAutoProvision"

    def __init__(self, reader: Reader, create: CreateNamespace) -> None:
        self._reader = reader
        self._create = create

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation == "CREATE" and resource.namespaced

    async def mutate(self, attrs: Attributes) -> None:
        if attrs.dry_run or self._reader.get("", "namespaces", "", attrs.namespace) is not None:
            return
        try:
            await self._create(attrs.namespace)
        except AlreadyExists:
            return
        except Forbidden:
            raise
        except ApiError as error:
            raise attrs.forbidden(error.message) from None
