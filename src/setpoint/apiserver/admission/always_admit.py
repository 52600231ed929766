"""AlwaysAdmit: lets everything pass; there because upstream has it."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Plugin
from setpoint.kinds.catalog import Resource


class AlwaysAdmit(Plugin):
    name = "AlwaysAdmit"

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return False
