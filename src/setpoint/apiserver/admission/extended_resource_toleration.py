"""ExtendedResourceToleration: Pods that request an extended resource tolerate the taint of the nodes that have it."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.resources import is_extended


class ExtendedResourceToleration(Plugin):
    name = "ExtendedResourceToleration"

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        kind = (resource.group, resource.plural, subresource)
        return operation in ("CREATE", "UPDATE") and kind == ("", "pods", "")

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        spec = attrs.obj["spec"]
        names = {
            name
            for key in ("containers", "initContainers")
            for container in spec.get(key) or ()
            for name in (container.get("resources") or {}).get("requests") or ()
            if is_extended(name)
        }
        tolerations = list(spec.get("tolerations") or ())
        for name in sorted(names):
            wanted = {"key": name, "operator": "Exists", "effect": "NoSchedule"}
            if not _replaced(tolerations, wanted):
                tolerations.append(wanted)
        if names:
            spec["tolerations"] = tolerations


def _replaced(tolerations: list[dict[str, str]], wanted: dict[str, str]) -> bool:
    """Return whether a toleration of the same taint was replaced by the wanted one."""
    for i, one in enumerate(tolerations):
        if all(one.get(key, "") == wanted.get(key, "") for key in ("key", "effect", "operator", "value")):
            tolerations[i] = wanted
            return True
    return False
