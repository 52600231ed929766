"""DenyServiceExternalIPs: Services may not add external IPs; those that they already have remain valid."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.kinds.catalog import Resource


class DenyServiceExternalIPs(Plugin):
    name = "DenyServiceExternalIPs"

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        kind = (resource.group, resource.plural, subresource)
        return operation in ("CREATE", "UPDATE") and kind == ("", "services", "")

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        wanted = set(attrs.obj["spec"].get("externalIPs") or ())
        if attrs.old is not None:
            wanted -= set(attrs.old["spec"].get("externalIPs") or ())
        if wanted:
            raise attrs.forbidden("Use of external IPs is denied by admission control")
