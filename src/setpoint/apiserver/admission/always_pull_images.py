"""AlwaysPullImages: images are always pulled, so that a Pod cannot use a cached image without the credentials for
it."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.references import containers
from setpoint.meta.errors import PlainServerError
from setpoint.meta.field import not_supported
from setpoint.meta.goformat import aggregate
from setpoint.meta.objects import Obj

_ALWAYS = "Always"


class AlwaysPullImages(Plugin):
    name = "AlwaysPullImages"

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        kind = (resource.group, resource.plural, subresource)
        return operation in ("CREATE", "UPDATE") and kind == ("", "pods", "")

    async def mutate(self, attrs: Attributes) -> None:
        if _has_only_known_images(attrs):
            return
        assert attrs.obj is not None
        spec = attrs.obj["spec"]
        for key in ("initContainers", "containers", "ephemeralContainers"):
            for container in spec.get(key) or ():
                container["imagePullPolicy"] = _ALWAYS
        for volume in spec.get("volumes") or ():
            if volume.get("image") is not None:
                volume["image"] = {**volume["image"], "pullPolicy": _ALWAYS}

    async def validate(self, attrs: Attributes) -> None:
        if _has_only_known_images(attrs):
            return
        assert attrs.obj is not None
        messages = [attrs.forbidden(text).message for text in _violations(attrs.obj["spec"])]
        if messages:
            raise PlainServerError(aggregate(messages))


def _violations(spec: Obj) -> list[str]:
    found = []
    for key in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(key) or ()):
            policy = container.get("imagePullPolicy", "")
            if policy != _ALWAYS:
                path = f"spec.{key}[{i}].imagePullPolicy"
                found.append(not_supported(path, policy, (_ALWAYS,)).message())
    for i, volume in enumerate(spec.get("volumes") or ()):
        policy = (volume.get("image") or {}).get("pullPolicy", "")
        if volume.get("image") is not None and policy != _ALWAYS:
            found.append(not_supported(f"spec.volumes[{i}].image.pullPolicy", policy, (_ALWAYS,)).message())
    return found


def _has_only_known_images(attrs: Attributes) -> bool:
    if attrs.old is None or attrs.obj is None:
        return False
    old = {container.get("image") for container in containers(attrs.old["spec"])}
    return all(container.get("image") in old for container in containers(attrs.obj["spec"]))
