"""NamespaceAutoProvision: a namespace that is not there yet is made when something is created in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import AlreadyExists, ApiError, Forbidden

CreateNamespace = Callable[[str], Awaitable[object]]
"""Makes the namespace of this name, in the server's own name. Raises ApiError."""


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
