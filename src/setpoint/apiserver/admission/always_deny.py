"""AlwaysDeny: refuses every write; for tests of clients."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.kinds.catalog import Resource


class AlwaysDeny(Plugin):
    name = "AlwaysDeny"

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return True

    async def mutate(self, attrs: Attributes) -> None:
        raise attrs.forbidden("admission control is denying all modifications")

    async def validate(self, attrs: Attributes) -> None:
        raise attrs.forbidden("admission control is denying all modifications")
