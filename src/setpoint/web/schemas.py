"""The OpenAPI schemas of kinds, read from the server when they are first needed."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from setpoint.client import Client
from setpoint.meta.errors import ApiError
from setpoint.view.schema_fields import KindSchema

_MAX_DOCUMENTS: Final = 8
_LIFETIME: Final = 60.0
"""Seconds after which a document is read again, because definitions may have changed."""


class Schemas:
    """Returns schemas of one logical cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._documents: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()
        """The documents by group and version, the least recently read first, with the time of reading."""

    async def of(self, api_version: str, kind: str) -> KindSchema | None:
        """Return the schema of a kind; None if the server does not have it."""
        group, _, version = api_version.rpartition("/")
        path = f"/openapi/v3/apis/{group}/{version}" if group else f"/openapi/v3/api/{version}"
        now = self._client.sender.clock.monotonic()
        at, document = self._documents.get(path, (-_LIFETIME, {}))
        if now - at >= _LIFETIME:
            try:
                document = await self._client.sender.json("GET", path)
            except (ApiError, ValueError):
                return None
            self._documents[path] = (now, document)
            self._documents.move_to_end(path)
            if len(self._documents) > _MAX_DOCUMENTS:
                self._documents.popitem(last=False)
        schema = KindSchema(document, group, version, kind)
        return schema if schema.found else None
