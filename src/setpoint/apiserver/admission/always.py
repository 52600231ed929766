"""AlwaysAdmit and AlwaysDeny: plugins for tests of clients, which exist because upstream has them."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.kinds.catalog import Resource


class AlwaysAdmit(Plugin):
    name = "AlwaysAdmit"

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return False


class AlwaysDeny(Plugin):
    name = "AlwaysDeny"

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return True

    async def mutate(self, attrs: Attributes) -> None:
        raise attrs.forbidden("admission control is denying all modifications")

    async def validate(self, attrs: Attributes) -> None:
        raise attrs.forbidden("admission control is denying all modifications")
