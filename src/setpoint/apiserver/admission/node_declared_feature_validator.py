"""NodeDeclaredFeatureValidator: a bound Pod may be changed only in ways that its node declares to support."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.podspec.resources import is_sidecar
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import compare


class NodeDeclaredFeatureValidator(Plugin):
    name = "NodeDeclaredFeatureValidator"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        kind = (resource.group, resource.plural)
        return operation == "UPDATE" and kind == ("", "pods") and subresource in ("", "resize")

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None and attrs.old is not None
        spec, old = attrs.obj["spec"], attrs.old["spec"]
        name = spec.get("nodeName")
        if not name or attrs.obj["metadata"].get("generation") == attrs.old["metadata"].get("generation"):
            return
        needed = [feature for feature, is_needed in _FEATURES if is_needed(spec, old)]
        if not needed:
            return
        node = self._reader.get("", "nodes", "", name)
        if node is None:
            raise attrs.forbidden(f'node "{name}" not found')
        declared = (node.get("status") or {}).get("declaredFeatures") or ()
        missing = [feature for feature in needed if feature not in declared]
        if missing:
            raise attrs.forbidden(
                f'pod update requires features {", ".join(missing)} which are not available on node "{name}"'
            )


def _resizes_pod(spec: Obj, old: Obj) -> bool:
    return spec.get("resources") != old.get("resources")


def _resizes_init_container(spec: Obj, old: Obj) -> bool:
    pairs = zip(spec.get("initContainers") or (), old.get("initContainers") or ())
    return any(not is_sidecar(was) and now.get("resources") != was.get("resources") for now, was in pairs)


def _resizes_memory_volume(spec: Obj, old: Obj) -> bool:
    volumes, before = spec.get("volumes") or (), old.get("volumes") or ()
    if len(volumes) != len(before):
        return False
    for now, was in zip(volumes, before):
        held, held_before = now.get("emptyDir") or {}, was.get("emptyDir") or {}
        size, old_size = held.get("sizeLimit"), held_before.get("sizeLimit")
        if now.get("name") == was.get("name") and held.get("medium") == "Memory" and size and old_size:
            if compare(size, old_size):
                return True
    return False


_FEATURES: tuple[tuple[str, Callable[[Obj, Obj], bool]], ...] = (
    ("InPlacePodLevelResourcesVerticalScaling", _resizes_pod),
    ("InPlacePodVerticalScalingInitContainers", _resizes_init_container),
    ("InPlacePodVerticalScalingMemoryBackedVolumes", _resizes_memory_volume),
)
