"""NamespaceExists: no write of any sort in a namespace that is not there."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import NotFound


class NamespaceExists(Plugin):
    name = "NamespaceExists"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation != "CONNECT" and resource.namespaced

    async def validate(self, attrs: Attributes) -> None:
        if self._reader.get("", "namespaces", "", attrs.namespace) is None:
            raise NotFound.of("", "namespaces", attrs.namespace)
